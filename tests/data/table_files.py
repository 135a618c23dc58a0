"""Write a small file of each kind of table that needs no model of its own.

    export PYTHONPATH=src:sims:tests/plots:tests/scoring:tests/fuzz:tests/comparison
    python tests/data/table_files.py FOLDER --kinds KIND ...

Files that are there stay. ``--numbers`` writes what ``numbers.json`` says of the files of the folder.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray as xr
from compact_atlas import compact_baseline, merge_atlases

import rmtbase
from rmtbase.models import find_series, open_model
from rmtbase.montecarlo import element_baseline, make_plan, run_in_memory
from rmtbase.nulls import Gaussian
from rmtbase.results import open_table
from rmtbase.results.comparison import Training, compare
from rmtbase.results.depth import depth
from rmtbase.results.diff import diff
from rmtbase.results.signal import signal
from rmtbase.tables import groups_of, write_table


def atlas() -> xr.Dataset:
    """Two shapes."""
    cases = [{"d_model": 10, "d_head": 3}, {"d_model": 12, "d_head": 4}]
    plan = make_plan("low_rank_product", cases, 60, 0, normalization="none")
    made = merge_atlases([compact_baseline(run_in_memory(plan))])
    return made.assign_attrs(title="a test's", creator="rmtbase", license="BSD-3-Clause", version="0")


def effective_depth() -> xr.Dataset:
    """Two matrices of each layer of the demo model."""
    return depth("demo", components=("attention_query", "attention_key"), depths=(1, 2), draws=19)


def several_stacks() -> xr.DataTree:
    """A model of three stacks whose heads have different shapes, by three circuits."""
    from several_stacks import translator

    return rmtbase.score(translator(), Gaussian(draws=1000), circuits=("qk", "ov", "key"))


def scores() -> xr.DataTree:
    """A GPT-2 as it begins, with one constant matrix and one super-weight, by law, with the elements of its heads."""
    from element_models import GPT2_CONFIG, gpt2

    tensors = gpt2(2, np.random.default_rng(1))
    tensors["h.0.mlp.c_fc.weight"][:] = 0.02
    tensors["h.1.mlp.c_proj.weight"][200, 7] = 2.0
    return rmtbase.score(open_model(tensors, family="gpt2", config=GPT2_CONFIG), "analytic", elements="heads")


def trajectory() -> xr.DataTree:
    """Two checkpoints of a model with attention only, by law."""
    from originals import write_model

    with tempfile.TemporaryDirectory() as folder:
        for step in (0, 10):
            write_model(Path(folder) / "run" / f"step-{step}", 3 + step)
        return rmtbase.trajectory(find_series(Path(folder) / "run", proof=False), nulls="analytic")


def comparison() -> xr.DataTree:
    """Four random models in two groups, with published ones."""
    from matrices_group import random_scores

    models = {name: random_scores(seed) for seed, name in enumerate("abcd", start=1)}
    training = {"a": Training(1e-3, 0.01, 1_000), "b": Training(1e-4, 0.01, 143_000)}
    groups = {"first": ["a", "b"], "second": ["c", "d"]}
    return compare(models, groups, training, ["a"], published=True, permutations=99)


def changes() -> xr.DataTree:
    """Two models with attention only."""
    from originals import write_model

    with tempfile.TemporaryDirectory() as folder:
        return diff(*(write_model(Path(folder) / f"model-{seed}", seed) for seed in (3, 5)))


MADE: dict[str, Callable[[], xr.Dataset | xr.DataTree]] = {
    "atlas": atlas,
    "baseline": lambda: rmtbase.baseline([12, 10], [3, 2], [1.0, (0.5, 0.25)], draws=12),
    "changes": changes,
    "comparison": comparison,
    "effective_depth": effective_depth,
    "elements": lambda: element_baseline((12, 3), draws=8),
    "scores": scores,
    "scores-of-several-stacks": several_stacks,
    "signal": lambda: signal(open_model("demo", "step-200"), circuits=("qk", "query"), matrices="spectra"),
    "trajectory": trajectory,
    "spectra": lambda: run_in_memory(make_plan("gaussian_matrix", [{"n_rows": 6, "n_columns": 4}], 12, 7)),
}


def numbers(table: xr.Dataset | xr.DataTree) -> dict[str, list[float]]:
    """Of each group how many finite floats it holds, and their sum."""
    found = {}
    for name, group in groups_of(table).items():
        floats = [group[one].values.ravel() for one in sorted(group.data_vars) if group[one].dtype.kind == "f"]
        every = np.concatenate([np.zeros(0), *floats])
        finite = every[np.isfinite(every)]
        found[name] = [len(finite), math.fsum(finite.tolist())]
    return found


def write_numbers(folder: Path) -> None:
    """Write those of every file of a folder."""
    found = {path.name: numbers(open_table(path, path.stem.partition("-")[0])) for path in sorted(folder.glob("*.nc"))}
    lines = [f" {json.dumps(name)}: {json.dumps(one)}" for name, one in found.items()]
    (folder / "numbers.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kinds", nargs="+", default=list(MADE), choices=list(MADE))
    parser.add_argument("--numbers", action="store_true", help="write numbers.json, and no table")
    arguments = parser.parse_args()
    if arguments.numbers:
        write_numbers(arguments.folder)
        arguments.kinds = []
    for kind in arguments.kinds:
        path = arguments.folder / f"{kind}.nc"
        if not path.exists():
            write_table(MADE[kind](), path)
            print(path.name, path.stat().st_size)
