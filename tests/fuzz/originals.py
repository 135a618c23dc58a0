"""The files that are mutated: one folder for each kind, with all that its command reads, made by the library itself.

Small, so that little of a file is numbers and much of it what says how to read them; of fixed seeds. Beside each a
donor, another file of the same kind, from which pieces are taken.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from sandbox import environment

from rmtbase.models import find_series, open_model
from rmtbase.nulls import Axes, Gaussian, Table

sys.path.append(str(Path(__file__).parents[2] / "sims"))  # where the atlas is made

D_MODEL, D_HEAD, HEADS, KEY_HEADS, LAYERS = 12, 8, 4, 2, 2
DRAWS = 40
PLAN = """\
name = "small"
title = "Small matrices"
ensemble = "gaussian_matrix"
draws = [DRAWS]
seed = [SEED]
chunk = 10
keep_sample = true
[[case]]
n_rows = 6
n_columns = 4
"""
SECRET = "secret.dat"
"""A file beside each original that no command is asked to read."""

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": D_MODEL,
    "num_attention_heads": HEADS, "num_key_value_heads": KEY_HEADS, "num_hidden_layers": LAYERS, "head_dim": D_HEAD,
    "intermediate_size": 20, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "tie_word_embeddings": True,
    "torch_dtype": "float32",
}  # fmt: skip


def weights(seed: int) -> dict[str, np.ndarray]:
    """The tensors of a Llama, attention only."""
    rng = np.random.default_rng(seed)
    shapes = {
        "q_proj": (HEADS * D_HEAD, D_MODEL),
        "k_proj": (KEY_HEADS * D_HEAD, D_MODEL),
        "v_proj": (KEY_HEADS * D_HEAD, D_MODEL),
        "o_proj": (D_MODEL, HEADS * D_HEAD),
    }
    return {
        f"model.layers.{layer}.self_attn.{name}.weight": (0.02 * rng.standard_normal(shape)).astype(np.float32)
        for layer in range(LAYERS)
        for name, shape in shapes.items()
    }


def write_model(folder: Path, seed: int = 3) -> Path:
    """A checkpoint of one safetensors file."""
    _configured(folder)
    save_file(weights(seed), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_sharded_model(folder: Path, seed: int = 3) -> Path:
    """The same in two shards and an index."""
    _configured(folder)
    tensors = weights(seed)
    places = {name: f"model-{1 + i % 2:05d}-of-00002.safetensors" for i, name in enumerate(tensors)}
    for shard in set(places.values()):
        save_file({name: tensor for name, tensor in tensors.items() if places[name] == shard}, folder / shard)
    index = {"metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    return folder


def write_torch_model(folder: Path, seed: int = 3) -> Path:
    """The same as torch saves it."""
    import torch

    _configured(folder)
    torch.save({name: torch.from_numpy(tensor) for name, tensor in weights(seed).items()}, folder / "pytorch_model.bin")
    return folder


def _configured(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1))


def make_checkpoints(root: Path) -> None:
    """The kinds of file of a checkpoint."""
    for kind, write, name in (
        ("config", write_model, "config.json"),
        ("safetensors", write_model, "model.safetensors"),
        ("shard", write_sharded_model, "model-00002-of-00002.safetensors"),
        ("index", write_sharded_model, "model.safetensors.index.json"),
    ):
        write(root / kind / "model")
        _keep_donor(root, kind, write(root / "made" / kind, seed=4) / name)


def make_torch_file(root: Path) -> None:
    """What torch saves."""
    write_torch_model(root / "bin" / "model")
    _keep_donor(root, "bin", write_torch_model(root / "made" / "bin", seed=4) / "pytorch_model.bin")


def make_nulls(root: Path) -> None:
    """Tables of W_QK, what is made with them, and a null in the cache beside a model that needs it."""
    from compact_atlas import compact_baseline

    import rmtbase
    from rmtbase.montecarlo import baseline_plan, run_in_memory
    from rmtbase.tables import write_table

    for seed in (1, 0):
        made = root / "made" / f"nulls-{seed}"
        model = write_model(made / "model", 3 + seed)
        options = {"draws": DRAWS, "seed": seed, "normalization": "none"}
        table = rmtbase.baseline(D_MODEL, D_HEAD, **options)
        plan = baseline_plan(D_MODEL, D_HEAD, keep_sample=False, **options)
        files = {
            "baseline": table,
            "baseline_without_sample": run_in_memory(plan),
            "atlas": compact_baseline(table),
            "scores": rmtbase.score(model, Table(table)),
            "resampled_scores": rmtbase.score(model, Axes(draws=19), matrices="none"),
            "circuit_scores": rmtbase.score(model, "analytic", matrices="none", circuits=("output",)),
        }
        for kind, content in files.items():
            _place(root, kind, write_table(content, made / f"{kind}.nc"), seed == 0)
        folder = root / "cache_entry" if seed == 0 else made / "cached"
        with environment(RMTBASE_CACHE=str(folder / "cache")):
            rmtbase.score(write_model(folder / "model"), Gaussian(draws=DRAWS, seed=seed), matrices="none")
    _keep_donor(root, "cache_entry", next((root / "made" / "nulls-1" / "cached" / "cache").glob("*.nc")))
    for kind in ("baseline", "atlas"):
        write_model(root / kind / "model")


def make_other_tables(root: Path) -> None:
    """Tables of elements, of effective depths, of compositions, of changes, and of signal and noise."""
    from rmtbase.montecarlo import make_plan, run_in_memory
    from rmtbase.results.composition import composition
    from rmtbase.results.depth import depth
    from rmtbase.results.diff import diff
    from rmtbase.results.signal import signal
    from rmtbase.tables import write_table

    for seed in (1, 0):
        made = root / "made" / f"others-{seed}"
        model = write_model(made / "model", 3 + seed)
        shape = {"d_model": D_MODEL, "d_head": D_HEAD}
        plan = make_plan("low_rank_product", [shape], DRAWS, seed, measure="elements", name="elements")
        files = {
            "elements": run_in_memory(plan),
            "depth": depth(model, depths=[1, 2], draws=19, components=["attention_query"]),
            "composition": composition(model),
            "changes": diff(model, write_model(made / "later", 5 + seed)),
            "signal": signal(open_model(model, proof=False), circuits=("query",)),
        }
        for kind, content in files.items():
            _place(root, kind, write_table(content, made / f"{kind}.nc"), seed == 0)


def make_trajectories(root: Path) -> None:
    """Trajectories of two steps."""
    import rmtbase

    for seed in (1, 0):
        made = root / "made" / f"trajectories-{seed}"
        for step in (0, 5):
            write_model(made / "run" / f"step-{step}", 3 + seed + step)
        rmtbase.trajectory(
            find_series(made / "run", proof=False), output=made / "trajectory.nc", nulls="analytic", matrices="none"
        )
        _place(root, "trajectory", made / "trajectory.nc", seed == 0)


def make_comparisons(root: Path) -> None:
    """Comparisons of four models, two seeds of each of two groups."""
    import rmtbase
    from rmtbase.results.comparison import Training, compare
    from rmtbase.tables import write_table

    for seed in (1, 0):
        made = root / "made" / f"comparisons-{seed}"
        models = {
            name: rmtbase.score(
                open_model(write_model(made / name, 10 * seed + k), proof=False), "analytic", matrices="elements"
            )
            for k, name in enumerate("abcd")
        }
        training = {"a": Training(1e-3, 0.01, 1_000), "b": Training(3e-4, 0.1, 1_000)}
        tree = compare(models, {"x": ["a", "b"], "y": ["c", "d"]}, training, ["c"], published=True, permutations=9)
        _place(root, "comparison", write_table(tree, made / "comparison.nc"), seed == 0)


def make_stores(root: Path) -> None:
    """A table of spectra, its plan, and the chunks that it is made of."""
    from rmtbase.montecarlo import read_plan, run_plan

    for seed in (1, 0):
        made = root / "made" / f"stores-{seed}"
        made.mkdir(parents=True)
        plan = made / "small.toml"
        plan.write_text(PLAN.replace("[DRAWS]", str(DRAWS)).replace("[SEED]", str(seed)))
        table, chunks = made / "small.nc", made / "small.nc.chunks"
        run_plan(read_plan(plan), table, keep_chunks=True)
        for lock in chunks.glob("lock"):
            lock.unlink()
        _place(root, "spectra", table, seed == 0)
        _place(root, "plan", plan, seed == 0)
        one = sorted(chunks.glob("*.chunk"))[3]
        for kind, donor in (
            ("chunk", one),
            ("manifest", chunks / "store.json"),
            ("manifest_gone_on_with", chunks / "store.json"),
        ):
            if seed:
                _keep_donor(root, kind, donor)
            else:
                shutil.copytree(chunks, root / kind / "small.nc.chunks")
                shutil.copy(plan, root / kind / "small.toml")
    sorted((root / "manifest_gone_on_with" / "small.nc.chunks").glob("*.chunk"))[0].unlink()


MAKERS: dict[Callable[[Path], None], frozenset[str]] = {
    make_nulls: frozenset(
        {"baseline", "baseline_without_sample", "atlas", "scores", "resampled_scores", "circuit_scores", "cache_entry"}
    ),
    make_stores: frozenset({"spectra", "plan", "chunk", "manifest", "manifest_gone_on_with"}),
    make_other_tables: frozenset({"elements", "depth", "composition", "changes", "signal"}),
    make_trajectories: frozenset({"trajectory"}),
    make_comparisons: frozenset({"comparison"}),
    make_checkpoints: frozenset({"config", "safetensors", "shard", "index"}),
    make_torch_file: frozenset({"bin"}),
}
"""Which kinds each of the makers makes."""


def finish(root: Path, kinds: Iterable[str]) -> None:
    """Put a file that concerns nobody beside each original."""
    for kind in kinds:
        (root / kind / SECRET).write_bytes(np.full(4096, 1.0).tobytes())


def donor(root: Path, kind: str) -> bytes:
    """The other file of a kind."""
    return (root / "donors" / kind).read_bytes()


def _place(root: Path, kind: str, file: Path, original: bool) -> None:
    if original:
        (root / kind).mkdir(exist_ok=True)
        shutil.copy(file, root / kind / f"{'small' if kind == 'plan' else 'table'}{file.suffix}")
    else:
        _keep_donor(root, kind, file)


def _keep_donor(root: Path, kind: str, file: Path) -> None:
    (root / "donors").mkdir(exist_ok=True)
    shutil.copy(file, root / "donors" / kind)
