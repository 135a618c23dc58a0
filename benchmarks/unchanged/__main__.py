"""Compare two installations of rmtbase: names, numbers to the bit, draws, commands with all that they print and write.

    python benchmarks/unchanged BEFORE_PYTHON AFTER_PYTHON [--json FILE] [--only SECTION]... [--keep FOLDER]

Each section runs in both interpreters, in a process of its own; what is meant to differ is written in ``stated.py``.
Status 1 if anything else does.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path

import compared
from entries import Entries, load

SECTIONS = ("names", "laws", "elements", "constant_values", "draws", "scores", "commands")
HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="python benchmarks/unchanged", description=__doc__.splitlines()[0])
    parser.add_argument("before", help="interpreter of the installation before")
    parser.add_argument("after", help="and after")
    parser.add_argument("--json", type=Path, help="write every entry that is not the same")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="this section; repeat for more")
    parser.add_argument(
        "--keep", type=Path, help="keep here what was collected and compiled, and use what is there of BEFORE"
    )
    given = parser.parse_args()
    if given.before == "collect":
        return collect(*given.after.split(":"))
    results = []
    with tempfile.TemporaryDirectory(prefix="unchanged-") as folder:
        kept = given.keep or Path(folder)
        kept.mkdir(parents=True, exist_ok=True)
        for section in given.only or SECTIONS:
            before = kept / f"{section}-before.npz"
            if not (given.keep and before.exists()):
                run(given.before, section, before, Path(folder), kept)
            run(given.after, section, kept / f"{section}-after.npz", Path(folder), kept, before)
            result = compared.section(section, load(before), load(kept / f"{section}-after.npz"))
            results.append(result)
            say(result.line())
    print(compared.report(results))
    if given.json:
        given.json.write_text(json.dumps([result.record() for result in results], indent=1) + "\n")
    return int(any(result.different for result in results))


def run(python: str, section: str, output: Path, folder: Path, kept: Path, before: Path | None = None) -> None:
    """Collect one section in one interpreter, on one core, with a cache of its own."""
    began = time.perf_counter()
    cache = folder / f"cache-{output.stem}"
    settings = {
        "JAX_PLATFORMS": "cpu",
        "OPENBLAS_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "120",
        "PYTHONHASHSEED": "0",
        "RMTBASE_PROGRESS_SECONDS": "86400",
        "RMTBASE_CACHE": str(cache),
        # What the two have in common they compile once.
        "JAX_COMPILATION_CACHE_DIR": str(kept.resolve() / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    say(f"{section}: {python}")
    paths = [str(output), *([str(before)] if before else [])]
    subprocess.run([python, HERE, "collect", ":".join([section, *paths])], env=os.environ | settings, check=True)
    say(f"{section}: {time.perf_counter() - began:.0f} s")


def collect(section: str, output: str, before: str | None = None) -> int:
    entries = Entries(load(Path(before)) if before else {})
    try:
        import_module(section).collect(entries)
    except Exception as error:  # what was collected until then is compared, and the rest is missing
        traceback.print_exc()
        entries.add("stopped by", f"{type(error).__name__}: {error}")
    entries.save(Path(output))
    return 0


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
