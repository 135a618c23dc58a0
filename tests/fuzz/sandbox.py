"""A piece of work in a forked process of its own: its limits, how it ended, and what it said.

A process that has imported everything and computed nothing forks one child for each piece, so that a piece costs what
it does and not what the imports do. The memory is what is resident: an allocation that no page of is touched costs
nothing, and one that fails says nothing of machines with more.
"""

import ctypes
import os
import re
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30
MEMORY, CPU = GIB, 20  # bytes resident, seconds: what any command may take on any input
_ADDRESSES = 32 * GIB  # of which more cannot be meant
_STANDSTILL = 10.0  # seconds without a tick of CPU time: nothing will come of it
_LOOK = 0.02  # seconds between two looks at a child
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Ended:
    """How a piece of work ended.

    Attributes:
        status: its exit status; negative the signal that ended it.
        limit: the limit that it broke, in words; empty where none.
        out: what it wrote to stdout.
        err: what it wrote to stderr.
        cpu: seconds of CPU time.
        memory: bytes, at the most.
    """

    status: int
    limit: str
    out: bytes
    err: bytes
    cpu: float
    memory: int

    def last_words(self) -> str:
        """The end of what it said: of a traceback the place in the library, and the error."""
        lines = self.err.decode(errors="replace").splitlines()
        places = [line.strip() for line in lines if line.lstrip().startswith("File ") and "/rmtbase/" in line]
        place = re.sub(r'File ".*/(rmtbase/.*)", ', r"\1 ", places[-1]) if places else ""
        said = next((line for line in reversed(lines) if line.strip()), "")
        return f"{said[:300]} ({place})" if place else said[:300]


def run_forked(work: Callable[[], object], folder: Path, unprivileged: bool = False) -> Ended:
    """Run ``work`` in a child, in ``folder``, within the limits."""
    pipes = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(work, folder, [writing for _, writing in pipes], unprivileged)
    for _, writing in pipes:
        os.close(writing)
    said: dict[int, list[bytes]] = {reading: [] for reading, _ in pipes}
    limit = _watched(pid, said)
    _, raw, usage = os.wait4(pid, 0)
    for reading in said:
        os.close(reading)
    status, cpu, memory = os.waitstatus_to_exitcode(raw), usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10
    if status == -signal.SIGXCPU or cpu > CPU:
        limit = limit or f"more than {CPU} s of CPU"
    elif memory > MEMORY:
        limit = limit or f"{memory / GIB:.1f} GiB of memory"
    out, err = (b"".join(parts) for parts in said.values())
    return Ended(status, limit, out, err, cpu, memory)


def die_with_parent() -> None:
    """From now on this process is killed where the one that forked it ends, however that ends."""
    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)


def _become(work: Callable[[], object], folder: Path, pipes: list[int], unprivileged: bool) -> None:
    status = 1
    try:
        die_with_parent()
        _redirect(pipes)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU, CPU + 5))
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(folder)
        if unprivileged:
            give_up_privileges()
        work()
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, UnicodeError):
                status = status or 120  # as the interpreter does
        os._exit(status)


def _redirect(pipes: list[int]) -> None:
    """Nothing to read on stdin, and stdout and stderr into the pipes: limits on files do not hold for what is said."""
    for target, descriptor in enumerate([os.open(os.devnull, os.O_RDONLY), *pipes]):
        os.dup2(descriptor, target)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # for the rest of the process
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def _watched(pid: int, said: dict[int, list[bytes]]) -> str:
    """Hear a child out, or end it where it breaks a limit that the system does not enforce; which."""
    ended, open_ones = os.pidfd_open(pid), set(said)
    try:
        cpu, since = -1.0, time.monotonic()
        while True:
            ready = select.select([ended, *open_ones], [], [], _LOOK)[0]
            for pipe in open_ones.intersection(ready):
                part = os.read(pipe, 1 << 20)
                said[pipe].append(part)
                if not part:
                    open_ones.discard(pipe)
            if ended in ready and not open_ones.intersection(ready):
                return ""
            resident, now = _resident(pid), _cpu(pid)
            if now != cpu:
                cpu, since = now, time.monotonic()
            limit = ""
            if resident > MEMORY:
                limit = f"{resident / GIB:.1f} GiB of memory"
            elif time.monotonic() - since > _STANDSTILL:
                limit = "stands still"
            if limit:
                os.kill(pid, signal.SIGKILL)
                return limit
    finally:
        os.close(ended)


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):  # it is ending
        return 0


def _cpu(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICK if len(fields) > 12 else 0.0


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


_VERSION_3 = 0x20080522  # of the Linux kernel's capability sets, 64 bits in two words


def give_up_privileges() -> None:
    """Permissions hold for this process from now on, even if it is root's."""
    if os.geteuid() == 0:
        header, sets = _Header(_VERSION_3, 0), (_Sets * 2)()
        if ctypes.CDLL(None, use_errno=True).capset(ctypes.byref(header), sets) != 0:
            raise OSError("the capabilities of root cannot be given up")


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Environment variables for the length of a ``with`` block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
