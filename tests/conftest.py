"""What all tests share: a cache of their own, JAX on the CPU, no network, checked array shapes, and small models."""

import functools
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import install_import_hook
from numpy.typing import NDArray
from safetensors.numpy import save_file

from rmtbase.results import register_all

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["RMTBASE_PROOF"] = "0"  # but for the tests of it: each would take seconds

# The samplers, whose signatures are shapes. Where a user passes arguments beartype would refuse the bad ones before the
# code itself could, with another message than the one that is tested.
SAMPLERS = ("chi", "thin_gaussian_chain", "ensemble", "full_matrix", "orthogonal_matrix")
install_import_hook([f"rmtbase.ensembles._{name}" for name in SAMPLERS], "beartype.beartype")
register_all()  # so that rmtbase.tables.KINDS has every kind when tests are parametrised

# Large libraries leave half a million objects as they are imported: to look through them for garbage took a sixth of
# the time of quick tests. It is done less often, and not at all of what was there before the first test.
gc.set_threshold(700, 10, 200)


def pytest_collection_finish() -> None:
    """What is imported by now stays."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """What JAX compiles it compiles once for a session: for all workers, and for the commands that tests start.

    And once for all sessions where the environment names a folder for it, ``JAX_COMPILATION_CACHE_DIR``.
    """
    if not hasattr(config, "workerinput"):
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            compiled = tempfile.TemporaryDirectory(prefix="rmtbase-compiled-", ignore_cleanup_errors=True)
            config.add_cleanup(compiled.cleanup)
            os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled.name
        # Two workers on two cores: the threads of BLAS, and those of torch, would wait for each other.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a file in the order in which they are written but for the ``optimized``, which come last."""
    places = {path: place for place, path in enumerate(dict.fromkeys(item.path for item in items))}
    items.sort(key=lambda item: (places[item.path], item.get_closest_marker("optimized") is not None))


QUICK = "JAX_DISABLE_MOST_OPTIMIZATIONS"
# XLA refuses a flag that it does not know, and later ones do not know this one any more.
HAS_PLAIN_LOOPS = tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11)
PLAIN_LOOPS = "--xla_cpu_use_fusion_emitters=false" if HAS_PLAIN_LOOPS else ""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What tests draw is compiled in less than half the time, without optimisation, but where they are ``optimized``.

    Programs of one kind and of the other never meet: what was compiled is let go wherever the kind changes.
    """
    quick = item.get_closest_marker("optimized") is None
    jax = sys.modules.get("jax")
    if jax is not None and HAS_PLAIN_LOOPS:
        _choose_emitters(sys.modules["jax._src.compiler"])
    setting = "1" if quick else "0"
    if os.environ.get(QUICK, "0") == setting:
        return
    flags = PLAIN_LOOPS if quick else ""  # for the commands that tests start, which need not try them
    os.environ |= {QUICK: setting, "XLA_FLAGS": flags, "RMTBASE_XLA_FLAGS_TRIED": flags}
    if jax is not None:
        jax.config.update("jax_disable_most_optimizations", quick)
        jax.clear_caches()


def _choose_emitters(compiler: Any) -> None:
    """Let XLA emit the loops of what is not optimised without its fusion emitters: compiled in two thirds of the time.

    XLA's own flag, which it reads once, holds for a whole process, and would for what is ``optimized``, too.
    """
    options_of = compiler.get_compile_options
    if hasattr(options_of, "__wrapped__"):
        return

    @functools.wraps(options_of)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        options = options_of(*args, **kwargs)
        fused = os.environ.get(QUICK, "0") == "0"
        options.env_option_overrides = [*options.env_option_overrides, ("xla_cpu_use_fusion_emitters", fused)]
        return options

    compiler.get_compile_options = chosen


D_MODEL, D_HEAD, N_HEADS, N_KEY_HEADS, N_LAYERS = 32, 8, 4, 2, 2


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests() -> Iterator[Path]:
    """Nulls simulated by tests are kept in a folder of this session, never in the user's cache."""
    with tempfile.TemporaryDirectory(prefix="rmtbase-tests-") as folder:
        before = os.environ.get("RMTBASE_CACHE")
        os.environ["RMTBASE_CACHE"] = folder
        yield Path(folder)
        if before is None:
            del os.environ["RMTBASE_CACHE"]
        else:
            os.environ["RMTBASE_CACHE"] = before


@dataclass(frozen=True)
class Weights:
    """Query and key factors of a small model: (layer, head, d_head, d_model) and (layer, key head, d_head, d_model)."""

    queries: NDArray[np.float32]
    keys: NDArray[np.float32]

    @classmethod
    def random(cls, seed: int = 3, sigma: float = 0.05) -> "Weights":
        rng = np.random.default_rng(seed)
        return cls(
            (sigma * rng.standard_normal((N_LAYERS, N_HEADS, D_HEAD, D_MODEL))).astype(np.float32),
            (sigma * rng.standard_normal((N_LAYERS, N_KEY_HEADS, D_HEAD, D_MODEL))).astype(np.float32),
        )

    def save(self, folder: Path, sharded: bool = False, **config: object) -> Path:
        """Write them as a Llama checkpoint: its configuration and one safetensors file, or one shard per tensor."""
        folder.mkdir(parents=True, exist_ok=True)
        n_layers, n_heads, d_head, d_model = self.queries.shape
        settings = {
            "model_type": "llama", "hidden_size": d_model, "head_dim": d_head, "num_hidden_layers": n_layers,
            "num_attention_heads": n_heads, "num_key_value_heads": self.keys.shape[1],
        } | config  # fmt: skip
        (folder / "config.json").write_text(json.dumps(settings))
        tensors = {
            f"model.layers.{layer}.self_attn.{name}.weight": np.ascontiguousarray(part[layer].reshape(-1, d_model))
            for layer in range(n_layers)
            for name, part in (("q_proj", self.queries), ("k_proj", self.keys))
        }
        if not sharded:
            save_file(tensors, folder / "model.safetensors")
            return folder
        places = {name: f"model-{number:05d}.safetensors" for number, name in enumerate(tensors)}
        for name, shard in places.items():
            save_file({name: tensors[name]}, folder / shard)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
        return folder


@pytest.fixture(scope="session")
def make_weights() -> Callable[[NDArray[np.floating], NDArray[np.floating]], Weights]:
    """Weights from query and key factors of any shape, to be saved as a checkpoint."""
    return lambda queries, keys: Weights(queries.astype(np.float32), keys.astype(np.float32))


@pytest.fixture
def weights() -> Weights:
    """Random weights of the small model's shape."""
    return Weights.random()


@pytest.fixture
def model_folder(weights: Weights, tmp_path: Path) -> Path:
    """The small model's checkpoint, in a folder of its own."""
    return weights.save(tmp_path / "model")


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it said."""

    status: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run the command line in this process, with 160 columns."""
    from rmtbase.cli import main

    monkeypatch.setenv("COLUMNS", "160")  # readline sets it for child processes, such as those of pytest-xdist

    def run_command(*arguments: object) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Ran(int(left.value.code or 0), said.out, said.err)

    return run_command


COMMAND = (sys.executable, "-m", "rmtbase")


@pytest.fixture
def run_process() -> Callable[..., Ran]:
    """Run the command line in a process of its own."""

    def run_command(*arguments: object, **environment: str) -> Ran:
        ended = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            capture_output=True,
            text=True,
            env=os.environ | environment,
            timeout=300,
            check=False,
        )
        return Ran(ended.returncode, ended.stdout, ended.stderr)

    return run_command


class Folder:
    """The files under a folder as they are now, to be compared with what they are later."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.before = self.contents()

    def contents(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.root)): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}

    def assert_untouched(self) -> None:
        """Nothing is changed, added or removed: no half-written and no temporary file either."""
        now = self.contents()
        assert set(now) == set(self.before)
        assert now == self.before


@pytest.fixture
def watch() -> Callable[[Path], Folder]:
    """Take note of a folder's files."""
    return Folder
