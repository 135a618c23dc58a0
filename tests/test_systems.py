"""What other systems lack or refuse, simulated here: nothing that is written, held or asked for depends on it."""

import ast
import contextlib
import ctypes
import errno
import os
import re
import struct
import subprocess
import sys
import types
from pathlib import Path

import pytest

from rmtbase import systems
from rmtbase.errors import OutputError
from rmtbase.linalg import available_cores
from rmtbase.montecarlo._machine import host_memory
from rmtbase.results import open_table
from rmtbase.results.figures import figures
from rmtbase.tables import locked_folder, write_bytes, write_table
from rmtbase.terminal.endings import UNREAD, ended_by

DATA = Path(__file__).parent / "data"
SOURCE = Path(systems.__file__).parent
UNIX_ONLY = ("fcntl", "termios", "tty", "pwd", "grp", "resource", "pty", "crypt", "syslog")
NO_SUCH_CALLS = (
    "fork", "register_at_fork", "sched_getaffinity", "sched_setaffinity", "getuid", "geteuid", "O_DIRECTORY",
)  # fmt: skip


def held_here(path) -> bool:
    """Whether this process has that file open."""
    with contextlib.suppress(OSError):
        wanted = Path(path).stat()
        for one in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.path.samestat(one.stat(), wanted):
                    return True
    return False


@pytest.fixture
def like_windows(tmp_path, monkeypatch):  # pytest asks who the user is to make the folder
    """No folder opens as a file; no open file is replaced or removed; calls of Unix alone are not there."""
    monkeypatch.setattr(systems, "sys", types.SimpleNamespace(platform="win32"))
    monkeypatch.setattr(systems, "_IN_USE_FOR", 0.05)
    for name in NO_SUCH_CALLS:
        monkeypatch.delattr(os, name, raising=False)
    real = {name: getattr(os, name) for name in ("open", "replace", "rename", "unlink")}

    def opened(path, flags, *more, **keywords):
        if not isinstance(path, int) and Path(path).is_dir():
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real["open"](path, flags, *more, **keywords)

    def unless_held(name):
        def call(*paths, **keywords):
            ours = [
                path for path in paths if not Path(path).name.startswith(".filelock-probe")
            ]  # filelock removes it open, on Unix only
            if any(Path(path).exists() and held_here(path) for path in ours):
                raise PermissionError(errno.EACCES, "Access is denied", str(paths[-1]))
            return real[name](*paths, **keywords)

        return call

    monkeypatch.setattr(os, "open", opened)
    for name in ("replace", "rename", "unlink"):
        monkeypatch.setattr(os, name, unless_held(name))


def test_table_is_written_over_the_one_that_was_opened(like_windows, tmp_path):
    stored = open_table(DATA / "elements.nc")
    path = write_table(stored, tmp_path / "table.nc")
    again = open_table(path)
    assert write_table(again, path) == path
    assert open_table(path).identical(stored)
    assert [one.name for one in tmp_path.iterdir()] == ["table.nc"]


def test_file_that_is_held_open_stays_and_the_error_says_so(like_windows, tmp_path):
    path = write_bytes(b"old", tmp_path / "kept")
    with path.open("rb"), pytest.raises(OutputError, match="it is open in a program; close it there"):
        write_bytes(b"new", path)
    assert path.read_bytes() == b"old"
    assert write_bytes(b"new", path).read_bytes() == b"new"
    assert [one.name for one in tmp_path.iterdir()] == ["kept"]


def test_file_that_is_held_for_a_moment_is_replaced_all_the_same(monkeypatch, tmp_path):
    monkeypatch.setattr(systems, "sys", types.SimpleNamespace(platform="win32"))
    refusals = iter([True, True, False])
    real = os.replace

    def replace(*paths):
        if next(refusals):
            raise PermissionError(errno.EACCES, "Access is denied")
        real(*paths)

    monkeypatch.setattr(os, "replace", replace)
    (tmp_path / "new").write_bytes(b"new")
    systems.replace_file(tmp_path / "new", tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == b"new"


def test_elsewhere_a_refused_replacement_is_not_asked_for_again(monkeypatch, tmp_path):
    calls = []

    def refuse(*paths):
        calls.append(paths)
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError, match="Permission denied"):
        systems.replace_file(tmp_path / "new", tmp_path / "there")
    assert len(calls) == 1


def test_locked_folder_goes_with_its_lock(like_windows, tmp_path):
    with locked_folder(tmp_path / "held", "chunks", lambda: True):
        assert (tmp_path / "held" / "lock").exists()
    assert not (tmp_path / "held").exists()
    with locked_folder(tmp_path / "kept", "chunks", lambda: False):
        write_bytes(b"", tmp_path / "kept" / "chunk")
    assert (tmp_path / "kept" / "chunk").exists()


def test_folder_is_not_synced_where_none_opens_as_a_file(like_windows, tmp_path):
    systems.sync_folder(tmp_path)
    with pytest.raises(FileNotFoundError):
        systems.sync_folder(tmp_path / "none")


def test_folder_whose_name_is_no_text_is_refused_where_it_has_no_other_name(monkeypatch, tmp_path):
    monkeypatch.setattr(systems, "_OPEN_FOLDERS", tmp_path / "none")
    with pytest.raises(OSError, match="not Unicode"), systems.utf8_path(tmp_path / "\udce9" / "table.nc"):
        pass


def test_cores_and_processes_are_told_without_the_calls_of_unix(like_windows):
    assert available_cores() == os.cpu_count()
    assert systems.is_alive(2**22)  # nobody can tell, so that nothing of a live writer is removed


def test_nobody_reading_is_no_error_on_windows_either(monkeypatch):
    unread, named = OSError(errno.EINVAL, "Invalid argument"), OSError(errno.EINVAL, "Invalid argument", "table.nc")
    assert not systems.is_broken_pipe(unread)
    monkeypatch.setattr(systems, "sys", types.SimpleNamespace(platform="win32"))
    assert systems.is_broken_pipe(unread)
    assert not systems.is_broken_pipe(named)
    monkeypatch.setattr(os, "dup2", lambda *descriptors: None)
    assert ended_by(unread) == UNREAD


def test_memory_of_macos_is_what_vm_stat_says(monkeypatch, tmp_path):
    monkeypatch.setattr(systems, "_MEMINFO", tmp_path / "none")
    said = (
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n"
        "Pages free:          100.\nPages active:     900.\n"
        'Pages inactive:       50.\nPages speculative:     7.\nPages purgeable:       3.\n"Translation faults": 12.\n'
    )
    monkeypatch.setattr(subprocess, "run", lambda *command, **how: types.SimpleNamespace(stdout=said))
    assert systems.available_memory() == 160 * 16384
    assert host_memory() <= 160 * 16384


def test_memory_of_windows_is_what_its_status_says(monkeypatch, tmp_path):
    monkeypatch.setattr(systems, "_MEMINFO", tmp_path / "none")

    def fill(status):
        assert struct.unpack_from("<I", status._obj.raw) == (64,)
        struct.pack_into("<II7Q", status._obj, 0, 64, 30, 8 << 30, 5 << 30, 0, 0, 0, 0, 0)
        return 1

    kernel = types.SimpleNamespace(GlobalMemoryStatusEx=fill)
    monkeypatch.setattr(ctypes, "windll", types.SimpleNamespace(kernel32=kernel), raising=False)
    assert systems.available_memory() == 5 << 30


def test_memory_that_no_system_tells_is_none(monkeypatch, tmp_path):
    monkeypatch.setattr(systems, "_MEMINFO", tmp_path / "none")
    monkeypatch.setattr(systems, "_VM_STAT", tmp_path / "none")
    monkeypatch.delattr(os, "sysconf")
    assert systems.available_memory() is None
    assert host_memory() <= 2**30


def test_no_module_imports_what_unix_alone_has():
    imports = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(UNIX_ONLY)})\b", flags=re.MULTILINE)
    assert imports.search("import fcntl")
    assert [path for path in SOURCE.rglob("*.py") if imports.search(path.read_text(encoding="utf-8"))] == []


def test_command_starts_and_writes_a_file_where_unix_has_nothing(tmp_path):
    code = f"""
import os, platformdirs, signal, sys, warnings
warnings.simplefilter("ignore")  # filelock's, that it has neither fcntl nor msvcrt
for name in {UNIX_ONLY}:
    sys.modules[name] = None
for name in {NO_SUCH_CALLS}:
    if hasattr(os, name): delattr(os, name)
os.process_cpu_count = os.cpu_count  # as os itself has it there, from Python 3.13 on
for name in ("setitimer", "SIGALRM", "ITIMER_REAL", "pthread_sigmask", "SIG_BLOCK", "SIGHUP", "SIGKILL", "SIGPIPE"):
    if hasattr(signal, name): delattr(signal, name)
from rmtbase.__main__ import main
sys.argv = ["rmtbase", "export", {os.fspath(DATA / "elements.nc")!r}, "-o", "table.csv"]
main()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (ended.returncode, ended.stderr) == (0, "rmtbase: wrote table.csv\n")
    assert b"\r" not in (tmp_path / "table.csv").read_bytes()


def test_names_of_files_are_those_of_every_system(tmp_path):
    names = [name for kind in ("elements",) for name in figures(open_table(DATA / f"{kind}.nc"))]
    assert names
    assert len({name.lower() for name in names}) == len(set(names))
    for name in names:
        assert not set(name) & set('<>:"/\\|?*') and name.strip(" .") == name and name.isprintable(), name


def test_no_text_is_read_or_written_in_the_system_s_own_encoding():
    texts = {"read_text", "write_text", "TextIOWrapper"}
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for call in ast.walk(ast.parse(text)) if re.search(r"_text|open\(|TextIO|text=", text) else ():
            if not isinstance(call, ast.Call):
                continue
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            keywords = {one.arg for one in call.keywords}
            modes = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            opens = name in ("open", "fdopen") and modes and set(modes[-1]) <= set("rwxa+t")
            if name in texts or opens or (name in ("run", "Popen") and "text" in keywords):
                assert "encoding" in keywords, f"{path}:{call.lineno}"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not say it")
def test_a_limit_on_the_address_space_is_a_limit_on_memory():
    code = "from rmtbase.systems import address_space_left as left, available_memory; print(left(), available_memory())"
    limited = f"ulimit -v 600000; exec {sys.executable} -c '{code}'"
    left, free = map(int, subprocess.run(["bash", "-c", limited], capture_output=True, check=True).stdout.split())
    assert 0 < left < 600_000 * 1024
    assert free <= left
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.startswith(b"None ")
