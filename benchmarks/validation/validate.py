"""Every analytic quantity beside simulation: results/validation.json, TABLE.md, the tables of README.md, the figures.

    python benchmarks/validation/validate.py [--quick] [--draws-folder DIR] [--only SECTION] [--no-simulation]

A full run simulates 100 000 heads of each shape (hours on few cores), keeps them in the draws folder, and then takes
minutes. ``--quick`` runs a hundredth of it on small shapes, and writes to a folder of its own. ``--only`` runs some of
the sections and leaves the others' results as they are.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

import chains
import elements
import figures
import heads
import residual
import spikes
import tails
import traces
import weibull
import weights
from effort import SEED, Effort
from threadpoolctl import threadpool_limits

import tables
from _machine import describe_machine

HERE = Path(__file__).resolve().parent
SECTIONS = {
    module.SECTION: module.run
    for module in (heads, traces, chains, tails, elements, residual, weibull, spikes, weights)
}


def main() -> None:
    options = arguments()
    folder = options.output or (Path(tempfile.mkdtemp(prefix="validation-")) if options.quick else HERE)
    results = folder / "results" / "validation.json"
    record: dict[str, Any] = tables.from_json(results.read_text()) if results.is_file() else {"sections": {}}
    effort = Effort(options.quick, options.draws_folder, not options.no_simulation)
    for name in options.only or SECTIONS:
        print(name, flush=True)
        begin = time.perf_counter()
        with threadpool_limits(limits=1, user_api="blas"):  # the matrices are small
            rows, curves = SECTIONS[name](effort)
        record["sections"][name] = {
            "seconds": round(time.perf_counter() - begin, 1),
            "rows": [row.as_dict() for row in rows],
            "curves": curves,
        }
    record = {
        "benchmark": "validation",
        "quick": options.quick,
        "seed": SEED,
        "machine": describe_machine(),
        "sections": {name: record["sections"][name] for name in SECTIONS if name in record["sections"]},
    }
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(tables.as_json(record))
    record = tables.from_json(results.read_text())
    (folder / "TABLE.md").write_text(tables.full(record))
    (folder / "README.md").write_text(tables.filled((HERE / "README.md").read_text(), record))
    figures.draw_all(record, folder / "figures")
    print(tables.verdict(record))
    print(f"wrote {folder}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Every analytic quantity beside simulation.")
    parser.add_argument("--quick", action="store_true", help="few draws of small cases, to show that it works")
    parser.add_argument(
        "--draws-folder", type=Path, default=Path(tempfile.gettempdir()) / "rmtbase-validation",
        help="where the draws of heads are kept, and looked for (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--only", nargs="+", choices=list(SECTIONS), help="run these sections, keep the others' results"
    )
    parser.add_argument("--no-simulation", action="store_true", help="leave out the shapes without draws")
    parser.add_argument(
        "--output", type=Path, help="folder to write to (default: this one; a temporary one for --quick)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
