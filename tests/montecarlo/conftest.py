"""A small plan, its table, and folders that cannot be written."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import xarray as xr

from rmtbase.montecarlo import Plan, make_plan, run_in_memory


@pytest.fixture(scope="session")
def plan() -> Plan:
    """Twelve chunks of what is compiled and drawn at once."""
    return make_plan("gaussian_matrix", [{"n_rows": 6, "n_columns": 4}], 120, 7, chunk=10, name="small")


@pytest.fixture(scope="session")
def plan_text() -> Callable[[int], str]:
    """The file of that plan with another number of draws."""
    lines = ('ensemble = "gaussian_matrix"', "seed = 7", "chunk = 10", "[[case]]", "n_rows = 6", "n_columns = 4")
    return lambda draws: "\n".join([f"draws = {draws}", *lines, ""])


@pytest.fixture(scope="session")
def table(plan: Plan) -> xr.Dataset:
    return run_in_memory(plan)


class Running:
    """``rmtbase baseline`` at work in a process group of its own, on a plan of the test, with code run beforehand."""

    def __init__(self, plan: str, output: Path, *options: object, beforehand: str = "") -> None:
        self.output, self.chunks = output, output.with_name(f"{output.name}.chunks")
        file = output.with_suffix(".toml")
        file.write_text(plan)
        code = f"{beforehand}\nfrom rmtbase.cli import main; main()"
        command = [sys.executable, "-c", code, "baseline", file, "-o", output]
        self._log = output.with_suffix(".log")
        with self._log.open("wb") as said:
            self.process = subprocess.Popen(
                [*map(str, command), *map(str, options)], stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
            )

    def drawn(self) -> int:
        return len(list(self.chunks.glob("*.chunk")))

    def until(self, moment: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while self.process.poll() is None and not moment():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.002)

    def kill(self, moment: Callable[[], bool]) -> bool:
        """Kill it at a moment; whether it had not ended by then."""
        self.until(moment)
        self.process.send_signal(signal.SIGKILL)
        return self.process.wait() == -signal.SIGKILL

    def said(self) -> str:
        return self._log.read_text()

    def end(self) -> int:
        return self.process.wait(timeout=120)


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Start ``rmtbase baseline`` on a plan; what is still running when the test ends is killed."""
    running: list[Running] = []

    def start_one(*arguments: Any, **options: Any) -> Running:
        running.append(Running(*arguments, **options))
        return running[-1]

    yield start_one
    for one in running:
        if one.process.poll() is None:
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait()


def _bits(variable: xr.DataArray) -> object:
    values = variable.values
    return values.tolist() if values.dtype.kind in "OTU" else (values.dtype.str, values.shape, values.tobytes())


@pytest.fixture(scope="session")
def assert_same() -> Callable[[xr.Dataset, xr.Dataset], None]:
    """Two tables are the same, variable by variable, bit by bit, record and all."""

    def assert_same_table(found: xr.Dataset, expected: xr.Dataset) -> None:
        assert set(found.variables) == set(expected.variables)
        assert [name for name in expected.variables if _bits(found[name]) != _bits(expected[name])] == []
        assert found.attrs == expected.attrs

    return assert_same_table


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


_VERSION_3 = 0x20080522  # of the Linux kernel's capability sets, 64 bits in two words
_READS_AND_WRITES_ANYTHING = 0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


@contextmanager
def _as_owner_only() -> Iterator[None]:
    """Permissions hold for this thread even if it is root's: without the capabilities that let root pass them by."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = _Header(_VERSION_3, 0), (_Sets * 2)()
    assert libc.capget(ctypes.byref(header), sets) == 0
    before = sets[0].effective
    try:
        sets[0].effective = before & ~_READS_AND_WRITES_ANYTHING
        assert libc.capset(ctypes.byref(header), sets) == 0
        yield
    finally:
        sets[0].effective = before
        assert libc.capset(ctypes.byref(header), sets) == 0


@pytest.fixture
def file_size_limit() -> Callable[[int], object]:
    """A context in which no file can grow beyond a size: as on a disk that is full."""

    @contextmanager
    def limited(size: int) -> Iterator[None]:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    return limited


@pytest.fixture
def read_only() -> Callable[[Path], object]:
    """A context in which a file or folder cannot be written, by whomever the tests are run."""

    @contextmanager
    def unwritable(path: Path) -> Iterator[None]:
        mode = path.stat().st_mode
        path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            with _as_owner_only():
                yield
        finally:
            path.chmod(mode)

    return unwritable
