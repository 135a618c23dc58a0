"""Machine, load, memory of a process and checks: what every benchmark records beside its times."""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from threadpoolctl import threadpool_info

RESULTS = Path(__file__).parent / "results"
RMTBASE = [sys.executable, "-m", "rmtbase"]
"""The command `rmtbase`, in this interpreter."""

FREE = 0.25
"""Cores kept busy by others, at most, for times by the clock to be judged."""

CORES = 2
"""Of the machine that limits on time are meant for."""

_PACKAGES = ("numpy", "scipy", "jax", "jaxlib", "xarray", "netCDF4")

# The kernel counts what a process had in memory before it became another program, so that a child's peak is never
# less than its parent's size. This one is small; it starts the command, waits for it, and reports on it alone.
_LAUNCHER = """
import json, os, subprocess, sys, time
begin = time.perf_counter()
child = subprocess.Popen(sys.argv[2:])
_, status, usage = os.wait4(child.pid, 0)
seconds = time.perf_counter() - begin
with open(sys.argv[1], "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), seconds, usage.ru_maxrss, usage.ru_utime + usage.ru_stime], file)
"""


@dataclass(frozen=True)
class Timing:
    """Wall time of one call, and what else the machine did.

    Attributes:
        seconds: wall time.
        cpu_seconds: processor time of this process and of the children that it waited for.
        load_average: of the last minute, before the call (its own predecessors count in it).
        other_cores: cores kept busy meanwhile by other processes, on average.
    """

    seconds: float
    cpu_seconds: float
    load_average: float
    other_cores: float


@dataclass(frozen=True)
class Process:
    """Record of a command run in a fresh process; ``seconds`` from its start to its end."""

    seconds: float
    cpu_seconds: float
    peak_rss_gib: float
    load_average: float
    other_cores: float
    output: str


@dataclass(frozen=True)
class Check:
    """A claim about a measured number, and whether it holds."""

    claim: str
    measured: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def passed(self) -> bool:
        """Return True if the number lies within its limits."""
        above = self.at_least is None or self.measured >= self.at_least
        return above and (self.at_most is None or self.measured <= self.at_most)


def timed(call: Callable[[], Any]) -> Timing:
    """Call, and time it."""
    load, busy, own, begin = os.getloadavg()[0], _busy(), _own(), time.perf_counter()
    call()
    seconds = time.perf_counter() - begin
    own = _own() - own
    return Timing(seconds, own, load, max(0.0, _busy() - busy - own) / seconds)


def limit_on_time(claim: str, seconds: float, cpu_seconds: float, other_cores: float, at_most: float) -> Check:
    """Check a limit on wall time if the machine was free, and otherwise on processor time over two cores."""
    if other_cores < FREE:
        return Check(f"{claim}, by the clock", seconds, at_most=at_most)
    return Check(f"{claim}, processor time over {CORES} cores of a busy machine", cpu_seconds / CORES, at_most=at_most)


def run_process(command: list[str], environment: Mapping[str, str] | None = None) -> Process:
    """Run a command to its end in a fresh process; raise if it fails. ``output`` is its standard output."""
    finished: list[subprocess.CompletedProcess[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.json"
        launch = [sys.executable, "-S", "-E", "-c", _LAUNCHER, str(record), *command]
        env = {**os.environ, **(environment or {})}
        timing = timed(lambda: finished.append(subprocess.run(launch, env=env, capture_output=True, text=True)))
        done = finished[0]
        status, seconds, peak, cpu_seconds = json.loads(record.read_text())
    if status != 0:
        raise RuntimeError(f"exit status {status}: {' '.join(command)}\n{done.stderr}")
    peak_bytes = peak if sys.platform == "darwin" else 1024 * peak
    return Process(seconds, cpu_seconds, peak_bytes / 2**30, timing.load_average, timing.other_cores, done.stdout)


def recorded(run: Process) -> dict[str, Any]:
    """Convert a process to plain values, without its output."""
    return {key: value for key, value in asdict(run).items() if key != "output"}


def describe_machine() -> dict[str, Any]:
    """Processor, memory, system, interpreter, packages and BLAS: nothing that names the machine or its user."""
    import rmtbase

    blas = [{key: value for key, value in one.items() if key != "filepath"} for one in threadpool_info()]
    return {
        "processor": _processor(),
        "cores": psutil.cpu_count(),
        "cores_of_this_process": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}, {_distribution()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {"rmtbase": rmtbase.__version__, **{name: version(name) for name in _PACKAGES}},
        "thread_pools": blas,
    }


def arguments(description: str, default: str, **texts: str) -> argparse.Namespace:
    """Parse the options of every benchmark, ``--output`` and ``--quick``, and texts with their defaults."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--output", type=Path, default=RESULTS / default, help="JSON file to write")
    parser.add_argument("--quick", action="store_true", help="a small run that only shows that it works")
    for name, text in texts.items():
        parser.add_argument(f"--{name}", default=text, help=f"{text}, unless another is named")
    return parser.parse_args()


def finish(result: dict[str, Any], checks: list[Check], output: Path) -> None:
    """Print the verdicts, and write the result with them as JSON."""
    print()
    for check in checks:
        limits = (("≥", check.at_least), ("≤", check.at_most))
        asked = ", ".join(f"{sign} {limit:g}" for sign, limit in limits if limit is not None)
        print(f"{'passed' if check.passed else 'FAILED'}  {check.claim}: {check.measured:.4g} ({asked})")
    result["checks"] = [{**asdict(check), "passed": check.passed} for check in checks]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(f"\nwrote {output}")


def _busy() -> float:
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted in user time already
    return sum(times) - idle - guest


def _own() -> float:
    return sum(os.times()[:4])


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    if described.is_file():
        for line in described.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.version()
