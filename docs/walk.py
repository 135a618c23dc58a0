"""Run every command that README and docs show, as it stands there: ``python docs/walk.py [--json FILE]``.

The commands run in the order of the pages, each once, in a new folder with the files that they expect: a plan, a style
file, two models and scores of several seeds. The plan of residual paths makes a fiftieth of its draws, all of which
would take a quarter of an hour. Commands that need a cluster are listed, with the test that runs them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import rmtbase
from rmtbase.tables import write_table

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/studies")]
from tiny_gpt2 import write_tiny_gpt2  # noqa: E402

from markdown_pages import PAGES, commands  # noqa: E402

FIRST = ("README.md", "docs/newcomer.md", "docs/guide/baseline.md", "docs/guide/score.md")
ELSEWHERE = {"tls://HOST:PORT": "tests/montecarlo/test_dask.py"}
"""Options that need other machines, and the tests that run them."""


def shown() -> dict[str, str]:
    """Each command of the pages, and the page that has it first."""
    first = [ROOT / name for name in FIRST]
    found: dict[str, str] = {}
    for page in [*first, *(page for page in PAGES if page not in first)]:
        for command in commands(page):
            found.setdefault(command, page.relative_to(ROOT).as_posix())
    return found


def prepare(folder: Path) -> None:
    """Write the files that the commands expect to exist."""
    shutil.copytree(ROOT / "sims", folder / "sims", ignore=shutil.ignore_patterns("__pycache__"))
    plan = folder / "sims/residual-paths.toml"
    plan.write_text(plan.read_text(encoding="utf-8").replace("draws = 200\n", "draws = 4\n"), encoding="utf-8")
    shutil.copy(ROOT / "examples/paper/paper.mplstyle", folder)
    for seed, name in enumerate(("BASE", "TUNED")):
        write_tiny_gpt2(folder / name, seed)
    rng = np.random.default_rng(0)
    for kind in "mg":
        for seed in range(4):
            w_q, w_k = rng.standard_normal((2, 2, 8, 16, 128))
            write_table(rmtbase.score_heads(w_q, w_k, model=f"{kind}{seed}"), folder / f"{kind}{seed}.nc")


def main() -> int:
    """Run the command line; return 1 if a command failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, help="where to keep what each took")
    options = parser.parse_args()
    records, failed = [], 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        for command, page in shown().items():
            by = next((test for option, test in ELSEWHERE.items() if option in command), None)
            if by:
                records.append({"page": page, "command": command, "run_by": by})
                print(f"-     {page}: {command}: by {by}", flush=True)
                continue
            began = time.perf_counter()
            ran = subprocess.run(
                command.replace("rmtbase", f"{sys.executable} -m rmtbase", 1),
                shell=True, cwd=folder, capture_output=True, text=True, check=False,
            )  # fmt: skip
            seconds = round(time.perf_counter() - began, 1)
            records.append({"page": page, "command": command, "status": ran.returncode, "seconds": seconds})
            print(f"{ran.returncode} {seconds:5.1f} s {page}: {command}", flush=True)
            if ran.returncode:
                failed += 1
                print(ran.stderr, flush=True)
    print(f"{len(records)} commands, {failed} failed")
    if options.json:
        options.json.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
