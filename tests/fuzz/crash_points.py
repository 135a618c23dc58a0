"""Commands that are killed, or whose system calls fail, at every point at which they touch the file system.

After each: what was there before is untouched or the new is whole, an error is one line and status 2, and the command
run again gives the same bytes as one that nothing interrupts, with no other file left.

The points are the calls of which Python tells (its audit events), ``fsync`` and ``flock``; and, for what libraries in C
write, limits on the size of files, which end a write in the middle of its bytes.
"""

import errno
import hashlib
import itertools
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from cases import RIGHT, WRONG, Case, Verdict
from sandbox import Ended, run_forked

INTERRUPTED = "interrupted "  # and the name of a command: in the place of a kind of file
KILL = "kill"
_ERRORS = {
    "read": (errno.EACCES, errno.EMFILE, errno.EIO),
    "open": (errno.EACCES, errno.EMFILE, errno.ENOSPC, errno.EROFS),
    "os.rename": (errno.EACCES, errno.EIO, errno.ENOSPC),
    "os.remove": (errno.EACCES, errno.EROFS),
    "os.mkdir": (errno.EACCES, errno.ENOSPC),
    "os.rmdir": (errno.EACCES,),
    "os.chmod": (errno.EPERM,),
    "os.listdir": (errno.EIO,),
    "os.scandir": (errno.EIO,),
    "fsync": (errno.EIO, errno.ENOSPC, errno.EDQUOT),
    "flock": (errno.ENOLCK, errno.EIO),
}
"""What may fail of each call, and how; to ``open`` is to open for writing, to ``read`` for reading."""

_SIZES = (0, 1, 100, 1000, 4096, 10_000, 20_000, 40_000)
"""Bytes beyond which no file grows."""


@dataclass(frozen=True)
class Command:
    """A command that writes outputs, in whose place something else lies before, in the folder of a kind's originals."""

    kind: str
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]


COMMANDS = {
    "finish a run": Command("manifest", ("baseline", "small.toml", "-o", "small.nc"), ("small.nc",)),
    "go on with a run": Command("manifest_gone_on_with", ("baseline", "small.toml", "-o", "small.nc"), ("small.nc",)),
    "begin a run": Command("plan", ("baseline", "small.toml", "-o", "small.nc"), ("small.nc",)),
    "score": Command(
        "baseline",
        ("score", "model", "--null", "table.nc", "-o", "scores.nc", "-o", "report.html"),
        ("scores.nc", "report.html"),
    ),
    "plot": Command(
        "baseline",
        ("plot", "table.nc", "-o", "figures"),
        ("figures/table-null-spectrum-12x8.png", "figures/table-ordered-eigenvalues-12x8.png"),
    ),
    "depth": Command(
        "safetensors",
        ("depth", "model", "--max-depth", "2", "--draws", "19", "--component", "attention_query", "-o", "depth.nc"),
        ("depth.nc",),
    ),
}

_DATA = Path(__file__).parents[1] / "data"


def _before(output: str) -> bytes:
    """An older output of the same kind, which a command replaces."""
    by_suffix = {
        ".html": b'<!DOCTYPE html>\n<meta name="generator" content="rmtbase 0">\n',
        ".png": b"\x89PNG\r\n\x1a\n tEXtSoftware\0rmtbase",
    }
    tables = {"small.nc": "spectra.nc", "scores.nc": "scores.nc", "depth.nc": "effective_depth.nc"}
    return by_suffix.get(Path(output).suffix) or (_DATA / tables[output]).read_bytes()


class Points:
    """Counts the calls that touch a folder, and does something at one of them."""

    def __init__(self, folder: Path, act: Callable[[int, str], None]) -> None:
        self._folder, self._act, self._count = os.fspath(folder.resolve()), act, itertools.count()
        self._inside = False

    def watch(self) -> None:
        """From now on, for the rest of the process."""
        import fcntl

        fsync, flock = os.fsync, fcntl.flock

        def fsync_and_tell(descriptor: int) -> None:
            self.passed("fsync", descriptor)
            fsync(descriptor)

        def flock_and_tell(descriptor: int, how: int) -> None:
            if how != fcntl.LOCK_UN:
                self.passed("flock", descriptor)
            flock(descriptor, how)

        os.fsync, fcntl.flock = fsync_and_tell, flock_and_tell
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple) -> None:
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            event = "read"
        if event in _ERRORS:
            self.passed(event, arguments[0])

    def passed(self, event: str, place: object) -> None:
        """A call of that name, about to be made on a path or descriptor."""
        if self._inside or not self._concerns(place):
            return
        self._inside = True  # what the action itself calls does not count
        try:
            self._act(next(self._count), event)
        finally:
            self._inside = False

    def _concerns(self, place: object) -> bool:
        self._inside = True
        try:
            if isinstance(place, int):
                path = os.readlink(f"/proc/self/fd/{place}")  # noqa: PTH115
            else:
                path = os.path.abspath(os.fsdecode(place or "."))  # noqa: PTH100  # links are not followed
            return path.startswith(self._folder)
        except (OSError, TypeError, ValueError):
            return False
        finally:
            self._inside = False


def some_points(root: Path, name: str, count: int | None) -> list[Case]:
    """As many of a command's cases as wanted, all if None: each way of ending once, then each call, before a second."""
    found = points(root, name)
    Random(name).shuffle(found)
    ways: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    turns = {}
    for case in found:
        way = case.mutator.rpartition(", ")[2]
        ways[way] += 1
        calls[case.mutator] += 1
        turns[case] = (ways[way] > 1, calls[case.mutator])
    return sorted(found, key=turns.__getitem__)[:count]


def points(root: Path, name: str) -> list[Case]:
    """Every case of a command: to be killed at each of its points, and each way in which a call may fail there."""
    command, kind = COMMANDS[name], f"{INTERRUPTED}{name}"
    with tempfile.TemporaryDirectory(prefix="rmtbase-crash-", dir=root / "made") as scratch:
        folder = _fresh(root, command, Path(scratch))
        log = Path(scratch) / "points"
        log.touch()

        def tell(number: int, event: str) -> None:
            with log.open("a") as file:
                file.write(f"{event}\n")

        ended = _run(command, folder, lambda: Points(folder, tell).watch())
        if ended.status != 0:
            raise RuntimeError(f"{name} fails undisturbed: {ended.err.decode()}")
        events = log.read_text().splitlines()
    found = [Case(kind, f"{event}, {KILL}", number) for number, event in enumerate(events)]
    found += [
        Case(kind, f"{event}, {errno.errorcode[code]}", number)
        for number, event in enumerate(events)
        for code in _ERRORS[event]
    ]
    return found + [Case(kind, f"size, {how}", size) for how in (KILL, "EFBIG") for size in _SIZES]


def check_point(root: Path, case: Case) -> Verdict:
    """Run a command to one of its points, see what is there, run it again, and see that all is as it should be."""
    command = COMMANDS[case.kind.removeprefix(INTERRUPTED)]
    expected = _undisturbed(root, command)
    with tempfile.TemporaryDirectory(prefix="rmtbase-crash-", dir=root / "made") as scratch:
        folder = _fresh(root, command, Path(scratch))
        inputs = {name: content for name, content in _contents(folder).items() if name not in command.outputs}
        ended = _run(command, folder, lambda: _arm(case, folder))
        again: Ended | None = None
        wrong = _after(case, command, ended, folder, inputs, expected)
        if not wrong:
            again = _run(command, folder, lambda: None)
            wrong = _after_all(again, folder, expected)
    cpu, memory = max(ended.cpu, again.cpu if again else 0.0), max(ended.memory, again.memory if again else 0)
    return Verdict(case, WRONG if wrong else RIGHT, wrong, cpu, memory)


def _after(
    case: Case, command: Command, ended: Ended, folder: Path, inputs: dict[str, bytes], expected: dict[str, bytes]
) -> str:
    """What is wrong when the command has been disturbed."""
    err = ended.err.decode(errors="replace")
    killed = case.mutator.endswith(f", {KILL}")
    if ended.limit or (ended.status < 0 and not killed) or ended.status not in (0, 2, -signal.SIGKILL, -signal.SIGXFSZ):
        return f"status {ended.status}: {ended.limit or ended.last_words()}"
    lines = err.splitlines()
    if ended.status == 2 and not (lines and lines[-1].startswith("rmtbase: error: ")):
        return f"no line of error: {ended.last_words()}"
    if "Traceback" in err or sum("error: " in line for line in lines) > 1:
        return f"more than a line of error: {ended.last_words()}"
    now = _contents(folder)
    for name in command.outputs:
        allowed = (expected[name],) if ended.status == 0 else (_kept(_before(name)), expected[name])
        if now.get(name) not in allowed:
            return f"{name} is {'gone' if name not in now else 'neither the old nor the new'}, status {ended.status}"
    kept = [name for name in inputs if ".chunks/" not in name]  # which go when the table is there
    if lost := [name for name in kept if now.get(name) != inputs[name]]:
        return f"changed: {lost[:3]}"
    return ""


def _after_all(again: Ended, folder: Path, expected: dict[str, bytes]) -> str:
    """What is wrong when it has been run again."""
    if again.status != 0 or again.limit:
        return f"run again, status {again.status}: {again.limit or again.last_words()}"
    now = _contents(folder)
    other = sorted(name for name in expected if now.get(name) != expected[name])
    if other:
        return f"run again, other bytes: {other[:3]}"
    left = sorted(name for name in now.keys() - expected.keys() if "/damaged/" not in name)
    return f"run again, still there: {left[:3]}" if left else ""


def _arm(case: Case, folder: Path) -> None:
    event, _, how = case.mutator.rpartition(", ")
    if event == "size":
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if how == KILL else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (case.seed, resource.RLIM_INFINITY))
        return

    def act(number: int, event: str) -> None:
        if number != case.seed:
            return
        if how == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        code = getattr(errno, how)
        raise OSError(code, os.strerror(code))

    Points(folder, act).watch()


def _run(command: Command, folder: Path, prepare: Callable[[], None]) -> Ended:
    def work() -> None:
        from rmtbase.cli import main

        prepare()
        main(list(command.arguments))

    return run_forked(work, folder)


def _fresh(root: Path, command: Command, scratch: Path) -> Path:
    """The folder in which a command runs, with something in the place of each output."""
    folder = scratch / "work"
    shutil.copytree(root / command.kind, folder)
    for name in command.outputs:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(_before(name))
    return folder


@cache
def _undisturbed(root: Path, command: Command) -> dict[str, bytes]:
    """The digests of all that lies there after a run that nothing interrupts."""
    with tempfile.TemporaryDirectory(prefix="rmtbase-crash-", dir=root / "made") as scratch:
        folder = _fresh(root, command, Path(scratch))
        ended = _run(command, folder, lambda: None)
        if ended.status != 0:
            raise RuntimeError(f"it fails undisturbed: {ended.err.decode()}")
        return _contents(folder)


def _contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder: its bytes where they are few, their digest else."""
    return {str(path.relative_to(folder)): _kept(path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def _kept(content: bytes) -> bytes:
    return content if len(content) < 64 else hashlib.sha256(content).digest()
