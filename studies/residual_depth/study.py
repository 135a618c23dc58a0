"""Residual paths against their laws, and trained matrices against residual paths.

    python studies/residual_depth/study.py

writes results.json, edges.png, toy_model.png and trained.png beside this file (or into ``--out``). All is seeded.
"""

import argparse
import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

from compare import gaussian_and_logistic, toy, trained
from figure import draw_edges, draw_toy, draw_trained
from verify import verify

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE, help="folder for results.json and the figures")
    parser.add_argument("--draw", action="store_true", help="only draw the figures again, from results.json")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "results.json"
    if not args.draw:
        record = {
            "versions": {name: version(name) for name in ("numpy", "scipy", "jax")},
            "verification": verify(),
            "toy": toy(),
            "independent": gaussian_and_logistic(),
            "trained": trained(),
        }
        path.write_text(_compact(record), encoding="utf-8")
    publish(json.loads(path.read_text(encoding="utf-8")), args.out)


def publish(record: dict[str, Any], out: Path) -> None:
    """Draw the figures."""
    draw_edges(record["verification"], out / "edges.png")
    draw_toy(record, out / "toy_model.png")
    draw_trained(record["trained"], out / "trained.png")


def _compact(record: dict[str, Any]) -> str:
    """JSON with a list of numbers on one line."""
    text = json.dumps(record, indent=1)
    return re.sub(r"\[[^][{}\"]*\]", lambda numbers: " ".join(numbers.group().split()), text) + "\n"


if __name__ == "__main__":
    main()
