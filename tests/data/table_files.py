"""Write a small file of each kind of table that holds draws, with whichever rmtbase is imported: one of its schema.

    PYTHONPATH=SOURCES_OF_A_VERSION/src:SOURCES_OF_A_VERSION/sims python tests/data/table_files.py FOLDER

Files that are there stay. Those of an earlier schema were made by the last commit that had it, and are not made again.
``--numbers`` writes what ``numbers.json`` says of the files of the folder.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray as xr
from compact_atlas import compact_baseline, merge_atlases

import rmtbase
from rmtbase.montecarlo import element_baseline, make_plan, run_in_memory
from rmtbase.scoring import effective_depths
from rmtbase.tables import SCHEMA_VERSION, TableWarning, groups_of, open_table, write_table


def atlas() -> xr.Dataset:
    """One shape."""
    plan = make_plan("low_rank_product", [{"d_model": 12, "d_head": 4}], 60, 0, normalization="none")
    made = merge_atlases([compact_baseline(run_in_memory(plan))])
    return made.assign_attrs(title="a test's", creator="rmtbase", license="BSD-3-Clause", version="0")


def effective_depth() -> xr.Dataset:
    """Two matrices of the demo model."""
    return effective_depths("demo", components=("attention_query",), depths=(1, 2), draws=19)


def spectra() -> xr.Dataset:
    """A chain of three factors, and one of two."""
    return run_in_memory(make_plan("gaussian_chain", [{"dims": (6, 3, 5, 4)}, {"dims": (5, 2, 6)}], 6, 0))


MADE: dict[str, Callable[[], xr.Dataset | xr.DataTree]] = {
    "atlas": atlas,
    "baseline": lambda: rmtbase.baseline(9, 4, draws=6),
    "effective_depth": effective_depth,
    "elements": lambda: element_baseline((8, 2), draws=4, bins=5),
    "scores": lambda: rmtbase.score("demo", matrices="none"),
    "spectra": spectra,
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
    warnings.simplefilter("ignore", TableWarning)
    files = sorted(folder.glob("*-schema-*.nc"))
    found = {path.name: numbers(open_table(path, path.stem.partition("-")[0])) for path in files}
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
        path = arguments.folder / f"{kind}-schema-{SCHEMA_VERSION}.nc"
        if not path.exists():
            write_table(MADE[kind](), path)
            print(path.name, path.stat().st_size)
