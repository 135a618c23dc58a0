"""Runs killed at random moments and started again, against one that nothing interrupts: equal to the bit, or not.

* ``alone``: ``rmtbase baseline --plan``, killed with SIGKILL at a random moment (up to half a second after a random one
  of its chunks) and started again; so once or twice, and then it is left to finish.
* ``dask``: the same with ``--workers 2``: a random worker is killed at a random moment, then the process that asked, at
  another; it is started again, loses another worker, and is left to finish.

Every table is compared with that of an uninterrupted run, variable by variable, bit by bit, record and all. Beside
that, what the store costs: seconds to write a chunk, to check one when a run is resumed, and the peak memory of making
the table from 10⁵, 10⁶ and 10⁷ draws whose sample is not kept.

    python benchmarks/recovery.py [--quick] [--output FILE]
"""

import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import xarray as xr

from _machine import RMTBASE, Check, arguments, describe_machine, finish, recorded, run_process, timed
from rmtbase.montecarlo import Plan, make_plan, open_store

PLAN = """
ensemble = "low_rank_product"
draws = 10_000
seed = 20
chunk = 100
[[case]]
d_model = 128
d_head = [16, 32]
"""
CHUNKS = 200
RUNS, QUICK_RUNS = 20, 2
DRAWS, QUICK_DRAWS = (10**5, 10**6, 10**7), (10**4, 10**5)
SEED = 2024

MERGE = """
import sys
from pathlib import Path
from rmtbase.montecarlo import Store, make_plan
from rmtbase.montecarlo._summary import DrawSource
from rmtbase.montecarlo._table import make_table
plan = make_plan("gaussian_matrix", [{"n_rows": 6, "n_columns": 4}], int(sys.argv[2]), keep_sample=False)
store = Store(Path(sys.argv[1]), plan)
make_table(DrawSource(plan, store.read), store.settings())
"""


class Run:
    """``rmtbase baseline --plan`` at work, in a process group of its own."""

    def __init__(self, output: Path, *options: str) -> None:
        self.output, self.chunks = output, output.with_name(f"{output.name}.chunks")
        command = [*RMTBASE, "baseline", str(output.with_name("plan.toml")), "-o", str(output), *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    @property
    def ended(self) -> bool:
        """State of the process: True if it has ended."""
        return self.process.poll() is not None

    def drawn(self) -> int:
        """Count the chunks on disk."""
        return len(list(self.chunks.glob("*.chunk")))

    def stage(self) -> str:
        """Describe how far the run is, from the files on disk."""
        if self.output.exists():
            return "table written, chunks being removed" if self.chunks.exists() else "all done"
        drawn = self.drawn()
        if drawn == CHUNKS:
            return "all chunks drawn, table not yet written"
        return "drawing" if drawn else "before the first chunk"

    def wait(self, moment: Callable[[], bool]) -> None:
        """Wait until ``moment`` returns True, or the run has ended."""
        while not self.ended and not moment():
            time.sleep(0.001)

    def kill(self, rng: random.Random) -> str | None:
        """Kill the run at a random moment; return its stage, or None if it had ended."""
        self.wait(self.chunks.exists)
        _moment(self, rng)
        if self.ended:
            return None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        return self.stage()

    def kill_worker(self, rng: random.Random) -> bool:
        """Kill one of the run's Dask workers at a random moment; return True if there was one."""
        _moment(self, rng)
        workers = [] if self.ended else [one for one in _family(self.process.pid) if _is_worker(one)]
        if not workers:
            return False
        rng.choice(workers).kill()
        return True

    def finish(self) -> float:
        """Wait for the end of the run, and return the seconds since its folder of chunks existed."""
        self.wait(self.chunks.exists)
        begin = time.monotonic()
        _, said = self.process.communicate()
        if self.process.returncode != 0:
            raise RuntimeError(said)
        return time.monotonic() - begin


def _moment(run: Run, rng: random.Random) -> None:
    """Wait until a random number of chunks is drawn, and then up to half a second more."""
    chunks, seconds = rng.randint(run.drawn(), CHUNKS), rng.uniform(0, 0.5)
    run.wait(lambda: run.drawn() >= chunks)
    end = time.monotonic() + seconds
    run.wait(lambda: time.monotonic() > end)


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


def different(found: Path, expected: Path) -> list[str]:
    """List the variables, and ``attributes``, that are not the same to the bit."""
    with xr.open_dataset(found) as a, xr.open_dataset(expected) as b:
        names = {str(name) for name in {*a.variables, *b.variables}}
        unlike = sorted(name for name in names if name not in a or name not in b or _bits(a[name]) != _bits(b[name]))
        return unlike if a.attrs == b.attrs else [*unlike, "attributes"]


def _bits(variable: xr.DataArray) -> object:
    values = variable.values
    return values.tolist() if values.dtype.kind in "OTU" else (values.dtype.str, values.shape, values.tobytes())


def alone(folder: Path, rng: random.Random) -> dict[str, Any]:
    stages = []
    for _ in range(rng.randint(1, 2)):
        stage = Run(folder / "table.nc").kill(rng)
        if stage is not None:
            stages.append(stage)
    Run(folder / "table.nc").finish()
    return {"killed": stages, "workers_killed": 0}


def dask(folder: Path, rng: random.Random) -> dict[str, Any]:
    first = Run(folder / "table.nc", "--workers", "2")
    workers = first.kill_worker(rng)
    family = _family(first.process.pid)
    stage = first.kill(rng)
    _, left = psutil.wait_procs(family, timeout=30)
    second = Run(folder / "table.nc", "--workers", "2")
    workers += second.kill_worker(rng)
    family += _family(second.process.pid)
    second.finish()
    _, still = psutil.wait_procs(family, timeout=30)
    return {
        "killed": [stage] if stage else [],
        "workers_killed": int(workers),
        "left_processes": len(left) + len(still),
    }


def killed(
    name: str, way: Callable[[Path, random.Random], dict[str, Any]], runs: int, reference: Path
) -> tuple[dict[str, Any], list[Check]]:
    rng = random.Random(f"{SEED} {name}")
    found = []
    for number in range(runs):
        with tempfile.TemporaryDirectory() as home:
            folder = Path(home)
            (folder / "plan.toml").write_text(PLAN)
            one = way(folder, rng)
            one["different"] = different(folder / "table.nc", reference)
            one["left_files"] = sorted({file.name for file in folder.iterdir()} - {"plan.toml", "table.nc"})
        found.append(one)
        print(f"  {name} {number + 1:2}: killed {', '.join(one['killed']) or 'never'}", flush=True)
    stages = Counter(stage for one in found for stage in one["killed"])
    kills = sum(stages.values()) + sum(one["workers_killed"] for one in found)
    print(
        f"\n{name}: {runs} runs, {sum(stages.values())} killed processes, {kills - sum(stages.values())} killed workers"
    )
    for stage, count in stages.most_common():
        print(f"  {stage:42}{count:4}")
    checks = [
        Check(f"runs of {name} whose table differs", sum(bool(one["different"]) for one in found), at_most=0),
        Check(f"runs of {name} that left a file behind", sum(bool(one["left_files"]) for one in found), at_most=0),
        Check(f"runs of {name} that were killed", sum(bool(one["killed"]) for one in found), at_least=0.8 * runs),
    ]
    if name == "dask":
        left = sum(one["left_processes"] for one in found)
        checks.append(Check("processes that were left behind", left, at_most=0))
    return {"runs": found, "killed_in_stage": dict(stages)}, checks


def store_costs(folder: Path, draws: tuple[int, ...]) -> tuple[dict[str, Any], list[Check]]:
    """Write and check chunks of numbers that look like draws, and make the table from them."""
    rng = np.random.default_rng(SEED)
    found = []
    for count in draws:
        plan = make_plan("gaussian_matrix", [{"n_rows": 6, "n_columns": 4}], count, keep_sample=False)
        place = folder / f"{count}.chunks"
        with open_store(place, plan) as store:
            store.record_settings({}, lambda: ["svd"])
            writes = [
                timed(partial(store.write, chunk, _numbers(rng, plan, chunk.count))).seconds for chunk in plan.chunks
            ]
            size = sum(file.stat().st_size for file in place.glob("*.chunk"))
            check = timed(lambda store=store: store.missing(print)).seconds
        merged = run_process([sys.executable, "-c", MERGE, str(place), str(count)])
        found.append(
            {
                "draws": count,
                "chunks": len(plan.chunks),
                "bytes": size,
                "write_seconds_per_chunk": statistics.median(writes),
                "check_seconds": check,
                "check_seconds_per_gib": check / (size / 2**30),
                "table": recorded(merged),
            }
        )
        one = found[-1]
        print(
            f"  {count:>10,} draws: write {1e3 * one['write_seconds_per_chunk']:6.1f} ms a chunk, "
            f"check {one['check_seconds_per_gib']:5.2f} s/GiB, "
            f"table {merged.seconds:6.1f} s in {merged.peak_rss_gib:.2f} GiB"
        )
    peak = found[-1]["table"]["peak_rss_gib"]
    return {"store": found}, [Check(f"GiB of memory for the table of {draws[-1]:,} draws", peak, at_most=2.0)]


def _numbers(rng: np.random.Generator, plan: Plan, count: int) -> dict[str, np.ndarray]:
    values = np.sort(rng.chisquare(6, (4, count)), axis=0)[::-1]
    return {"statistic": rng.random((16, count)), "eigenvalue": values, "norm_squared": rng.chisquare(24, (1, count))}


def main() -> None:
    options = arguments("Runs that are killed and started again.", "recovery.json")
    runs = QUICK_RUNS if options.quick else RUNS
    result: dict[str, Any] = {
        "benchmark": "recovery",
        "command": "python benchmarks/recovery.py" + (" --quick" if options.quick else ""),
        "machine": describe_machine(),
        "plan": PLAN,
    }
    checks: list[Check] = []
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        (folder / "plan.toml").write_text(PLAN)
        result["uninterrupted_seconds"] = Run(folder / "table.nc").finish()
        for name, way in (("alone", alone), ("dask", dask)):
            result[name], found = killed(name, way, runs, folder / "table.nc")
            checks += found
        print()
        result["store"], found = store_costs(folder, QUICK_DRAWS if options.quick else DRAWS)
        checks += found
    finish(result, checks, options.output)


if __name__ == "__main__":
    main()
