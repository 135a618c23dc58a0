"""Commands that are interrupted, and what must hold afterwards; ``benchmarks/interrupts.py`` draws the moments.

A command is started in a folder of its own. When its signal handlers stand it gets SIGINT, SIGTERM or SIGHUP (sometimes
twice, to the process alone or to its whole group as a terminal does). Then it must end with status 130 (143, 129), with
one last line ``rmtbase: interrupted`` (``terminated``, ``hung up``) on stderr, without a traceback, a temporary file or
a process left behind, and every table that is there is whole.
"""

from __future__ import annotations

import math
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import xarray as xr

from rmtbase.results import open_table

COMMAND = (sys.executable, "-m", "rmtbase")
PLAN = """ensemble = "low_rank_product"
draws = 6000
chunk = 250
[[case]]
d_model = [64, 96]
d_head = 16
"""
BASELINE = ("baseline", "plan.toml", "-o", "table.nc")
SCORE = ("score", "demo", "--matrices", "spectra", "-o", "scores.nc", "-o", "page.html")
COMMANDS = {
    "law": ("law", "--d-model", "768", "--d-head", "64"),
    "baseline": BASELINE,
    "score": SCORE,
    "constants": ("constants", "--digits", "40"),
    "cite": ("cite", "product_upper_edge"),
    "demo": ("demo", "-o", "results"),
    "plot": ("plot", "given.nc", "-o", "figures"),
    "depth": ("depth", "demo", "--draws", "20", "-o", "depth.nc"),
    "doctor": ("doctor",),
    "baseline --workers 2": (*BASELINE, "--workers", "2"),
    "signal": ("signal", "demo", "-o", "signal.nc"),
    "composition": ("composition", "demo", "-o", "composition.nc"),
    "diff": ("diff", "demo@step-200", "demo@final", "-o", "diff.nc"),
    "trajectory": ("trajectory", "demo", "-o", "trajectory.nc"),
    "inspect": ("inspect", "demo"),
    "compare": ("compare", "first.nc", "last.nc", "-o", "compare.nc"),
    "export": ("export", "given.nc", "-o", "given.csv"),
}
ENDING = {
    signal.SIGINT: (130, "rmtbase: interrupted"),
    signal.SIGTERM: (143, "rmtbase: terminated"),
    signal.SIGHUP: (129, "rmtbase: hung up"),
}
TOO_LATE = 0.2  # seconds: a command that ends of itself so soon after the signal was ending when it came
LONGEST = 300.0


@dataclass(frozen=True)
class Whole:
    """A command that nothing interrupted."""

    seconds: float  # of processor time from the moment that its handlers stood
    files: frozenset[str]  # what it left, by name
    table: xr.Dataset | None  # its ``table.nc``, if it writes one


@dataclass(frozen=True)
class Moment:
    """When and how a command is interrupted."""

    after: float  # seconds of processor time of all its threads
    signal: signal.Signals = signal.SIGINT
    again: float | None = None  # seconds until the second signal, or None for one alone
    group: bool = False  # whether the command's workers get it too, as from a terminal
    terminal: bool = False  # whether stderr is a terminal, so that bars are shown


@dataclass
class Run:
    """One command in a folder, as it goes and as it ended."""

    folder: Path
    arguments: tuple[str, ...]
    terminal: bool = False
    err: bytes = b""
    status: int = 0
    ended: float = 0.0
    took: float = 0.0  # seconds from the first signal to the end
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # In a shell's background SIGINT is ignored, and by all that is started there.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        (self.folder / "tmp").mkdir(parents=True, exist_ok=True)
        if not (self.folder / "plan.toml").exists():
            (self.folder / "plan.toml").write_text(PLAN)
        places = {"TMPDIR": self.folder / "tmp", "RMTBASE_CACHE": self.folder / "cache"}
        environment = os.environ | {name: str(place) for name, place in places.items()}
        environment |= {"HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": "cpu", "TERM": "xterm", "COLUMNS": "120"}
        environment |= {"PYTHONFAULTHANDLER": "1"}  # which prints the stacks of all threads at SIGABRT
        self._ours, theirs = pty.openpty() if self.terminal else os.pipe()
        with (self.folder / "stdout").open("wb") as out:
            self.process = subprocess.Popen(
                [*COMMAND, *self.arguments],
                stdin=subprocess.DEVNULL, stdout=out, stderr=theirs,
                cwd=self.folder, env=environment, start_new_session=True,
            )  # fmt: skip
        os.close(theirs)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.began = self._handlers_stand()

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self._ours, 65536)
            except OSError:  # a terminal whose other end is closed
                break
            if not part:
                break
            self.err += part

    def _handlers_stand(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status")
        caught = 1 << (signal.SIGTERM - 1)
        while self.process.poll() is None:
            masks = re.search(r"SigCgt:\s*([0-9a-f]+)", status.read_text())
            if masks and int(masks[1], 16) & caught:
                break
            time.sleep(0.001)
        return time.monotonic()

    def send(self, number: signal.Signals, group: bool) -> None:
        if self.process.poll() is None:
            (os.killpg if group else os.kill)(self.process.pid, number)

    def finish(self) -> None:
        try:
            self.status = self.process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            self.wrong.append(f"still running after {LONGEST:.0f} s")
            self.process.send_signal(signal.SIGABRT)
            self.status = self.process.wait()
        self.ended = time.monotonic()
        left = self._left_behind(10.0)
        if left:
            self.wrong.append(f"left processes: {left}")
            os.killpg(self.process.pid, signal.SIGKILL)
        self._reader.join()
        os.close(self._ours)

    def wait_for(self, seconds: float) -> None:
        until = self.used() + seconds
        while self.process.poll() is None and self.used() < until:
            time.sleep(0.02)

    def used(self) -> float:
        with suppress(OSError, IndexError):
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return math.inf

    def stop(self, moment: Moment) -> None:
        sent = time.monotonic()
        self.send(moment.signal, moment.group)
        if moment.again is not None:
            time.sleep(moment.again)
            self.send(moment.signal, moment.group)
        self.finish()
        self.took = self.ended - sent

    def _left_behind(self, patience: float) -> list[str]:
        """Command lines of the processes of its session that are there after so many seconds."""
        end = time.monotonic() + patience
        while there := self.processes():
            if time.monotonic() > end:
                return list(there.values())
            time.sleep(0.02)
        return []

    def processes(self) -> dict[int, str]:
        found = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with suppress(OSError):  # it has ended meanwhile
                    if os.getsid(int(folder.name)) == self.process.pid:
                        found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")[:120]
        return found

    @property
    def lines(self) -> list[str]:
        """What stderr holds, without the terminal's control sequences and what they have wiped out."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.err.decode(errors="replace"))
        lines = re.split(r"[\r\n]+", text)
        return [line for line in lines if line.strip() and (not self.terminal or re.search("rmtbase: |  File", line))]

    def files(self) -> frozenset[str]:
        return frozenset(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))

    def table(self) -> xr.Dataset | None:
        path = self.folder / "table.nc"
        return xr.load_dataset(path, engine="netcdf4") if path.exists() else None


def interrupted(folder: Path, arguments: tuple[str, ...], moment: Moment, whole: Whole) -> Run | None:
    run = Run(folder, arguments, moment.terminal)
    run.wait_for(moment.after)
    run.stop(moment)
    if run.status == 0 and run.took < TOO_LATE + (moment.again or 0.0):
        return None
    status, words = ENDING[moment.signal]
    if run.status != status:
        run.wrong.append(f"status {run.status}, expected {status}")
    said = [line for line in run.lines if line.startswith(words)]
    if len(said) != 1 or run.lines[-1:] != said:
        run.wrong.append(f"expected one last line {words!r}")
    if stray := [line for line in run.lines if not line.startswith("rmtbase: ")]:
        run.wrong.append(f"stray lines: {stray[:3]}")
    files = run.files()
    if temporary := [name for name in files if name.endswith(".part")]:
        run.wrong.append(f"temporary files: {temporary}")
    # torch keeps a folder there, too.
    if in_tmp := [one for one in files - whole.files if one.startswith("tmp/") and "torchinductor" not in one]:
        run.wrong.append(f"in the folder of temporary files: {in_tmp}")
    for name in files:
        if name.endswith(".nc"):
            open_table(folder / name)
    return run
