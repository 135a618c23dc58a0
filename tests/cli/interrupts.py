"""Ctrl-C at random moments to every command, and what must hold afterwards.

    python tests/cli/interrupts.py --runs 100 --seed 0

Each run starts one command in a folder of its own, waits until its signal handlers stand, and sends SIGINT, SIGTERM or
SIGHUP (sometimes twice, to the process alone or to its whole group as a terminal does) at a moment drawn over the
processor time that the command takes (which is the same however busy the machine is), its first seconds above all.
Then it must end with status 130 (143, 129), with one last line ``rmtbase: interrupted`` (``terminated``, ``hung up``)
on stderr, without a traceback, a temporary file or a process left behind; every table that is there is whole, and the
interrupted ``baseline`` run again gives the table of an uninterrupted run, to the bit.

The time from the first signal to the end is recorded (``--record FILE``, one JSON object a line).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
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
EARLY = 6.0  # seconds: most interrupts come before, where there is most to import, to compile and to start
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

    @classmethod
    def drawn(cls, seconds: float, chance: random.Random) -> Moment:
        return cls(
            after=chance.uniform(0.0, chance.choices((0.3, min(seconds, EARLY), seconds), (0.15, 0.6, 0.25))[0]),
            signal=chance.choices(list(ENDING), (0.5, 0.4, 0.1))[0],
            again=chance.uniform(0.0, 0.3) if chance.random() < 0.25 else None,
            group=chance.random() < 0.5,
            terminal=chance.random() < 0.4,
        )


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
        """When the process was first seen to catch SIGTERM, which Python of itself does not."""
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
        """Wait for its end, for what it still says, and for the processes that it started."""
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
        """Wait until the process has used so much processor time since its handlers stood, or has ended."""
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
        """The processes of its session, each with its command line."""
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


def uninterrupted(folder: Path, arguments: tuple[str, ...]) -> Whole:
    run = Run(folder, arguments)
    begin = end = run.used()
    while run.process.poll() is None:
        time.sleep(0.02)
        end = used if (used := run.used()) < math.inf else end
    run.finish()
    assert run.status == 0, run.err.decode(errors="replace")
    assert not run.wrong, run.wrong
    return Whole(end - begin, run.files(), run.table())


def interrupted(folder: Path, arguments: tuple[str, ...], moment: Moment, whole: Whole) -> Run | None:
    """A command after an interrupt, with all that is wrong with its end; None if it had ended before."""
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


def run_again(folder: Path, arguments: tuple[str, ...], whole: Whole) -> list[str]:
    """What is wrong with the table that the same command gives after an interrupt."""
    again = Run(folder, arguments)
    again.finish()
    if again.status != 0:
        return [f"run again: status {again.status}: {again.lines}"]
    table = again.table()
    wrong = [] if table is not None and table.identical(whole.table) else [f"run again: {_differences(table, whole)}"]
    if left := again.files() - whole.files:
        wrong.append(f"run again: left {sorted(left)}")
    return [*wrong, *again.wrong]


def _differences(table: xr.Dataset | None, whole: Whole) -> str:
    if table is None or whole.table is None:
        return "no table"
    values = [str(name) for name in whole.table.variables if not table[name].identical(whole.table[name])]
    attributes = {name: (table.attrs.get(name), value) for name, value in whole.table.attrs.items()}
    return f"other values of {values}, other attributes {[one for one, (a, b) in attributes.items() if a != b]}"


@cache
def given(name: str) -> dict[str, bytes]:
    """The files that a command reads, by name; made by other processes, so that this one uses no thread of JAX."""
    scored = ("score", "--draws", "200", "--matrices", "elements")
    commands = {}
    if name in ("plot", "export"):
        commands["given.nc"] = ("baseline", "--d-model", "32", "--d-head", "8", "--draws", "200")
    if name == "compare":
        commands |= {"first.nc": (*scored, "demo@step-0"), "last.nc": (*scored, "demo@final")}
    with tempfile.TemporaryDirectory() as folder:
        for file, command in commands.items():
            subprocess.run([*COMMAND, *command, "-o", file], cwd=folder, check=True, capture_output=True)
        return {file: Path(folder, file).read_bytes() for file in commands}


def prepare(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in given(name).items():
        (folder / file).write_bytes(content)


def spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return (
        f"{len(ordered)} ended, median {ordered[len(ordered) // 2]:.2f} s, 99 % within "
        f"{ordered[max(0, math.ceil(0.99 * len(ordered)) - 1)]:.2f} s, longest {ordered[-1]:.2f} s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=COMMANDS, action="append", help="these commands; default all")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end after so long, whatever is left")
    parser.add_argument("--record", type=Path, help="file to add a line of JSON to for each interrupt")
    parser.add_argument("--seconds", type=float, help="of every command but baseline, in place of running it once")
    options = parser.parse_args()
    chance, names = random.Random(options.seed), options.only or list(COMMANDS)
    ends: Counter[str] = Counter()
    took: dict[str, list[float]] = {}
    wrong = done = 0
    until = time.monotonic() + 60.0 * options.minutes
    with tempfile.TemporaryDirectory(prefix="rmtbase-interrupts-") as root:
        whole: dict[str, Whole] = {}
        while done < options.runs and time.monotonic() < until:
            name = chance.choice(names)
            if name not in whole and options.seconds and COMMANDS[name][0] != "baseline":
                whole[name] = Whole(options.seconds, frozenset(), None)
            if name not in whole:
                prepare(Path(root, "whole", name), name)
                whole[name] = uninterrupted(Path(root, "whole", name), COMMANDS[name])
                print(f"{name}: {whole[name].seconds:.1f} s uninterrupted", flush=True)
            moment = Moment.drawn(whole[name].seconds, chance)
            folder = Path(root, f"{done}-{chance.random()}")
            prepare(folder, name)
            run = interrupted(folder, COMMANDS[name], moment, whole[name])
            if run is None:
                ends["too late, drawn again"] += 1
                whole[name] = replace(whole[name], seconds=0.9 * min(whole[name].seconds, moment.after))
                continue
            if whole[name].table is not None and not run.wrong and chance.random() < 0.25:
                run.wrong += run_again(folder, COMMANDS[name], whole[name])
            done += 1
            wrong += bool(run.wrong)
            ends[f"status {run.status}"] += 1
            took.setdefault(name, []).append(run.took)
            said = "; ".join(run.wrong) or "as it should"
            print(f"{done} {name} {moment}: {run.took:.2f} s, {said} {run.lines[-1:]}", flush=True)
            if run.wrong:
                print(run.err.decode(errors="replace")[-6000:], flush=True)
            if options.record:
                line = {"command": name, "after": round(moment.after, 3), "signal": moment.signal.name}
                line |= {"twice": moment.again is not None, "took": round(run.took, 3), "status": run.status}
                with options.record.open("a") as file:
                    file.write(json.dumps(line | {"wrong": run.wrong}) + "\n")
            shutil.rmtree(folder, ignore_errors=True)
    for name, seconds in took.items():
        print(f"{name}: {spread(seconds)}")
    print(f"{done} interrupts, {wrong} wrong: {dict(ends)}; {spread([one for each in took.values() for one in each])}")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
