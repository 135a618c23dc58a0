"""The fuzz suite from the command line: many mutations of every kind of file, one table, and what is wrong.

    python tests/fuzz/run.py --mutations 1000 --seed 0
    python tests/fuzz/run.py --kind baseline --kind config --mutations 200
    python tests/fuzz/run.py --replay "config:a raw value:123456"

Exit status 1 where anything is wrong.
"""

import argparse
import contextlib
import gc
import importlib
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "HF_HUB_OFFLINE": "1",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # small programs, of which the compiling is most
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TERM": "dumb",
    "COLUMNS": "160",
}
os.environ.update(ENVIRONMENT)  # before NumPy is imported: a process that forks has one thread

import cases as fuzz  # noqa: E402
import originals  # noqa: E402
from crash_points import COMMANDS, INTERRUPTED, check_point, some_points  # noqa: E402
from kinds import KINDS  # noqa: E402
from sandbox import GIB, die_with_parent, environment, run_forked  # noqa: E402

_SAID_EVERY = 500  # cases, how far it is
SEEDS = Path(__file__).with_name("seeds.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases, print the table, and return the exit status."""
    given = _parser().parse_args(arguments)
    replayed = [
        fuzz.Case.parse(text) for text in [*given.replay, *(json.loads(SEEDS.read_text()) if given.seeds else ())]
    ]
    everything = not (given.kind or given.command or replayed)
    kinds, commands = (list(KINDS), list(COMMANDS)) if everything else (given.kind, given.command)
    started = time.monotonic()
    with _scratch() as root:
        warm()
        needed = {*kinds, *(COMMANDS[name].kind for name in commands), *map(_original, replayed)}
        make_originals(root, {name for name in needed if not KINDS[name].torch}, given.jobs)
        chosen = list(replayed)
        for name in kinds:
            count = max(1, round(given.mutations * KINDS[name].share))
            chosen += fuzz.cases(root, KINDS[name], count, given.seed)
        with _forked(given.jobs) as pool:
            for points in pool.map(partial(some_points, root, count=given.points), commands):
                chosen += points
        verdicts = []
        for verdict in _checked(root, chosen, given):
            verdicts.append(verdict)
            if len(verdicts) % _SAID_EVERY == 0:
                print(f"{len(verdicts)} of {len(chosen)} cases", file=sys.stderr, flush=True)
    print_report(verdicts, time.monotonic() - started)
    if given.json is not None:
        given.json.write_text(json.dumps([_record(one) for one in verdicts], indent=1))
    wrong = any(one.outcome == fuzz.WRONG for one in verdicts)
    return int(wrong)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=1000, help="of each kind of file")
    parser.add_argument("--points", type=int, help="at which each command is interrupted; default all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="append", default=[], choices=list(KINDS), help="a kind of file; repeat")
    parser.add_argument("--command", action="append", default=[], choices=list(COMMANDS), help="a command; repeat")
    parser.add_argument("--replay", action="append", default=[], metavar="KIND:MUTATION:SEED", help="one case; repeat")
    parser.add_argument("--seeds", action="store_true", help="the cases of seeds.json, which were wrong once")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="file for all verdicts")
    return parser


def _original(case: fuzz.Case) -> str:
    """The folder of originals that a case needs."""
    if case.kind.startswith(INTERRUPTED):
        return COMMANDS[case.kind.removeprefix(INTERRUPTED)].kind
    return case.kind


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rmtbase-fuzz-", ignore_cleanup_errors=True) as folder:
        (Path(folder) / "made").mkdir()
        compiled = {
            "JAX_COMPILATION_CACHE_DIR": f"{folder}/made/jax",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        with environment(RMTBASE_CACHE=f"{folder}/made/cache-of-all", **compiled):
            yield Path(folder)


def warm() -> None:
    """Import what the commands import, so that no child has to; compute nothing that starts threads."""
    import h5py  # noqa: F401
    import xarray as xr
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from rmtbase.cli import main as command_line

    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "said").open("w") as said:
        path = Path(folder) / "any.nc"
        xr.Dataset({"a": ("x", [1.0])}).to_netcdf(path, engine="netcdf4")
        xr.load_dataset(path, engine="netcdf4")
        figure = Figure()
        figure.suptitle("any")
        FigureCanvasAgg(figure).print_png(os.devnull)
        for refused in (["plot", folder], ["score", folder, "-o", "r"], ["depth", folder], ["baseline", folder]):
            with contextlib.suppress(SystemExit), contextlib.redirect_stderr(said):
                command_line(refused)
    gc.collect()
    gc.freeze()


def warm_torch() -> None:
    """The same of what reads the files that torch saves."""
    gc.unfreeze()
    importlib.import_module("torch")  # its threads start with its first computation
    gc.collect()
    gc.freeze()


def make_originals(root: Path, kinds: set[str], jobs: int) -> None:
    """The originals of these kinds, each group of them in a child of its own."""
    makers = [make for make, made in originals.MAKERS.items() if made & kinds]
    with _forked(min(jobs, len(makers)) or 1) as pool:
        for failed in pool.map(partial(_made, root), makers):
            if failed:
                raise SystemExit(f"the originals cannot be made: {failed}")


def _made(root: Path, make: Callable[[Path], None]) -> str:
    ended = run_forked(lambda: make(root), root)
    if ended.status != 0:
        return ended.limit or ended.last_words()
    originals.finish(root, originals.MAKERS[make])
    return ""


def _forked(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("fork"), initializer=die_with_parent)


def _checked(root: Path, chosen: Sequence[fuzz.Case], given: argparse.Namespace) -> Iterator[fuzz.Verdict]:
    check = partial(_check, root)
    for torch in (False, True):  # a process that has imported torch takes twice as long to fork
        some = [case for case in chosen if KINDS[_original(case)].torch == torch]
        if not some:
            continue
        if torch:
            warm_torch()
            make_originals(root, {_original(case) for case in some}, given.jobs)
        with _forked(given.jobs) as pool:
            yield from pool.map(check, some, chunksize=max(1, min(8, len(some) // (4 * given.jobs))))


def _check(root: Path, case: fuzz.Case) -> fuzz.Verdict:
    try:
        if case.kind.startswith(INTERRUPTED):
            return check_point(root, case)
        return fuzz.check(root, case)
    except Exception as error:  # of the suite itself, which must not hide
        return fuzz.Verdict(case, fuzz.WRONG, f"the suite failed: {type(error).__name__}: {error}", 0.0, 0)


def print_report(verdicts: Sequence[fuzz.Verdict], seconds: float) -> None:
    """One line for each kind, and one for each case that is wrong."""
    print(f"{'kind':<26}{'mutations':>10}{'refused':>9}{'right':>7}{'wrong':>7}{'slowest':>9}{'memory':>10}")
    for kind in dict.fromkeys(one.case.kind for one in verdicts):
        of_kind = [one for one in verdicts if one.case.kind == kind]
        count = Counter(one.outcome for one in of_kind)
        slowest, largest = max(one.cpu for one in of_kind), max(one.memory for one in of_kind)
        print(
            f"{kind:<26}{len(of_kind):>10}{count[fuzz.REFUSED]:>9}{count[fuzz.RIGHT]:>7}{count[fuzz.WRONG]:>7}"
            f"{slowest:>7.1f} s{largest / GIB:>6.2f} GiB"
        )
    print(f"{len(verdicts)} mutations in {seconds:.0f} s")
    for one in verdicts:
        if one.outcome == fuzz.WRONG:
            print(f"wrong: {one.case}: {one.why}")


def _record(one: fuzz.Verdict) -> dict[str, object]:
    return {"case": str(one.case), "outcome": one.outcome, "why": one.why, "cpu": one.cpu, "memory": one.memory}


if __name__ == "__main__":
    sys.exit(main())
