"""Make the atlas that is shipped with rmtbase, shape by shape.

Each shape of the plan is simulated in full, compacted to a few kilobytes, and its draws deleted. A run that is stopped,
killed or run again goes on where it stood, also within a shape.

    python sims/make_atlas.py --work atlas-work
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import xarray as xr
from atlas_metadata import datacite
from compact_atlas import compact_baseline, merge_atlases

from rmtbase.errors import MissingFileError, TableError
from rmtbase.montecarlo import Inline, LocalProcesses, Plan, make_plan, read_plan, run_plan
from rmtbase.nulls import atlas_path
from rmtbase.progress import SILENT
from rmtbase.tables import open_table, write_bytes, write_table

BUDGET = 3_000_000
"""Bytes that the atlas may add to the package."""


class _Notes:
    """Progress of which only the notes are told."""

    bar = staticmethod(SILENT.bar)
    note = staticmethod(print)
    detail = staticmethod(SILENT.detail)


def single_shapes(plan: Plan) -> Iterator[Plan]:
    """Split a plan into one plan per shape, with the sample that compacting needs."""
    for case in plan.cases:
        yield make_plan(
            plan.ensemble,
            [case.parameters],
            case.draws,
            plan.seed,
            normalization="none",
            precision=plan.precision,
            name="{d_model}x{d_head}".format(**case.parameters),
        )


def finished(piece: Path, plan: Plan) -> xr.Dataset | None:
    """Read the compact null of a shape if it was made from this plan; None otherwise."""
    try:
        atlas = open_table(piece, "atlas")
    except (MissingFileError, TableError):
        return None
    made = json.loads(atlas.attrs["provenance"])["simulations"]
    return atlas if [shape[-1] for one in made for shape in one["shapes"]] == [plan.hash] else None


def compact_null(plan: Plan, work: Path, executor: Inline | LocalProcesses) -> xr.Dataset:
    """Read the compact null of a single shape from the work folder, or simulate it and keep it there."""
    piece = work / f"atlas-{plan.name}.nc"
    atlas = finished(piece, plan)
    if atlas is None:
        full = work / f"table-{plan.name}.nc"
        start = time.monotonic()
        atlas = compact_baseline(run_plan(plan, full, executor=executor, progress=_Notes()))
        write_table(atlas, piece)
        full.unlink()
        print(f"{plan.name}: {plan.total_draws} draws in {time.monotonic() - start:.0f} s", flush=True)
    return atlas


def main() -> None:
    """Parse the command line and make the atlas."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", type=Path, default=Path(__file__).with_name("atlas.toml"))
    parser.add_argument("--work", type=Path, default=Path("atlas-work"), help="folder of what is made so far")
    parser.add_argument("--workers", type=int, help="local processes to draw with; this one if not given")
    parser.add_argument("--output", type=Path, default=atlas_path(), help="by default where the package looks for it")
    options = parser.parse_args()
    plan = read_plan(options.plan)
    executor = Inline() if options.workers is None else LocalProcesses(options.workers)
    for folder in (options.work, options.output.parent):
        folder.mkdir(parents=True, exist_ok=True)
    atlas = merge_atlases([compact_null(one, options.work, executor) for one in single_shapes(plan)], plan.hash)
    write_table(atlas, options.output)
    write_bytes(datacite().encode(), options.output.with_name("datacite.json"))
    size = options.output.stat().st_size
    print(f"wrote {options.output}: {atlas.sizes['case']} shapes, {size} bytes")
    if size > BUDGET:
        raise SystemExit(f"expected at most {BUDGET} bytes: keep fewer shapes")


if __name__ == "__main__":
    main()
