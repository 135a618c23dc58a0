"""Ctrl-C at any moment: status 130, one line, nothing left; the long version is ``python benchmarks/interrupts.py``."""

import os
import signal
import subprocess
import sys
import threading
import time
from textwrap import indent

import pytest
from interrupts_of_commands import BASELINE, COMMANDS, Moment, Run, Whole, interrupted

from exhaustive import mostly_exhaustive
from rmtbase.heads.read_sites import HeadWork, Takers, read_sites, require_circuits
from rmtbase.models import open_model
from rmtbase.montecarlo import read_plan, run_in_memory
from rmtbase.progress import SILENT
from rmtbase.tables import open_table

NOTHING_YET = Whole(seconds=60.0, files=frozenset(), table=None)


MOMENTS = [
    (Moment(0.2), "interrupted"),
    (Moment(0.3, signal.SIGTERM), "terminated"),
    (Moment(0.0), "interrupted"),
    (Moment(0.05, terminal=True), "interrupted"),
    (Moment(0.5, terminal=True), "interrupted"),
]


@pytest.mark.parametrize(("moment", "word"), mostly_exhaustive(MOMENTS, always=MOMENTS[:2]), ids=str)
def test_interrupt_in_the_first_moments_is_one_line_and_a_status(moment, word, tmp_path):
    run = interrupted(tmp_path, COMMANDS["demo"], moment, NOTHING_YET)
    assert run is not None and (run.wrong, run.lines) == ([], [f"rmtbase: {word}"])


@pytest.mark.exhaustive
def test_interrupted_baseline_says_what_is_kept_and_goes_on_to_the_same_bits(tmp_path):
    (tmp_path / "plan.toml").write_text(
        'ensemble = "low_rank_product"\ndraws = 1200\nchunk = 30\n[[case]]\nd_model = 8\nd_head = 2\n'
    )
    run = Run(tmp_path, BASELINE, terminal=True)
    while run.process.poll() is None and len(list(tmp_path.glob("table.nc.chunks/*.chunk"))) < 3:
        time.sleep(0.005)
    run.send(signal.SIGINT, group=True)
    run.send(signal.SIGINT, group=True)
    run.finish()
    assert (run.status, run.wrong) == (130, [])
    (line,) = run.lines
    assert line.startswith("rmtbase: interrupted; ")
    assert line.endswith("chunks are kept in table.nc.chunks, run again to go on")
    assert not list(tmp_path.rglob("*.part"))
    again = Run(tmp_path, BASELINE)
    again.finish()
    assert again.status == 0
    assert "resuming" in again.lines[0]
    assert open_table(tmp_path / "table.nc", "baseline").identical(run_in_memory(read_plan(tmp_path / "plan.toml")))


# What happens to an interrupt on its way: code that the command imports gets it, in a process of its own.

HOOKED = """
import os, signal, sys, time
def interrupt(number=signal.SIGINT):
    os.kill(os.getpid(), number)
    for _ in range(1000):
        pass
{before}
def there():
{body}
class Finder:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            there()
sys.meta_path.insert(0, Finder())
sys.argv = ["rmtbase", "constants"]
from rmtbase.__main__ import main
main()
"""


def hooked(body, module="rmtbase.constants", before=""):
    code = HOOKED.format(body=indent(body.strip("\n"), "    "), module=module, before=before)
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


SWALLOWED = {
    "by a finaliser, where Python gives it up": """
class Object:
    def __del__(self):
        interrupt()
Object()
time.sleep(60)
""",
    "by a library that makes another error of it": """
try:
    interrupt()
except BaseException:
    raise ImportError("no numbers")
""",
    "by a library that catches all errors and goes on": """
try:
    interrupt()
except BaseException:
    pass
time.sleep(60)
""",
    "by one that goes on while it handles another": """
try:
    raise ValueError
except ValueError:
    try:
        interrupt()
    except BaseException:
        pass
    time.sleep(60)
""",
    "by nobody, and repeated on its way": """
try:
    interrupt()
finally:
    interrupt()
""",
    "by nobody, and repeated until it is enough": """
try:
    interrupt()
finally:
    interrupt()
    interrupt()
    time.sleep(60)
""",
}
NEVER_STOPS = {
    "native code that Python cannot interrupt": """
import hashlib
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
hashlib.pbkdf2_hmac("sha256", b"", b"", 2**30)
""",
    "code that catches every interrupt": """
came = []
while True:
    try:
        os.kill(os.getpid(), signal.SIGINT) if not came else time.sleep(60)
    except BaseException:
        came.append(1)
""",
    "an undoing that waits for a thread which never ends": """
try:
    interrupt()
finally:
    threading.Event().wait()
""",
}
BEFORE_ANY_COMMAND = [
    (signal.SIGTERM, "rmtbase.cli._app", "terminated"),
    (signal.SIGHUP, "rmtbase.cli._app", "hung up"),
    (signal.SIGINT, "rmtbase.terminal.signals", "interrupted"),
    (signal.SIGTERM, "socket", "terminated"),
]


@pytest.mark.parametrize(
    ("number", "module", "word"), mostly_exhaustive(BEFORE_ANY_COMMAND, always={signal.SIGTERM, signal.SIGHUP})
)
def test_a_signal_before_the_command_line_is_there_ends_with_its_own_status(number, module, word):
    ran = hooked(f"interrupt(signal.{number.name})", module)
    assert (ran.returncode, ran.stderr) == (128 + number, f"rmtbase: {word}\n")


@pytest.mark.parametrize("how", mostly_exhaustive(SWALLOWED, always={"by one that goes on while it handles another"}))
def test_no_interrupt_is_lost_or_told_twice(how):
    ran = hooked(SWALLOWED[how])
    assert (ran.returncode, ran.stderr) == (130, "rmtbase: interrupted\n")


@pytest.mark.parametrize("how", mostly_exhaustive(NEVER_STOPS, always={"code that catches every interrupt"}))
def test_every_command_ends_within_a_bounded_time(how):
    patience = "import threading\nimport rmtbase.terminal.signals as signals\nsignals._PATIENCE = 0.5\n"
    ran = hooked(NEVER_STOPS[how], before=patience)
    assert (ran.returncode, ran.stderr) == (130, "rmtbase: interrupted; what it was doing did not stop within 0.5 s\n")


INTERRUPTED = "rmtbase: interrupted"
ENDS = {
    "native code, at the third": (
        """
import threading
import hashlib
for after in (0.3, 0.35, 0.4):
    threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT)).start()
hashlib.pbkdf2_hmac("sha256", b"", b"", 2**30)
""",
        (130, f"{INTERRUPTED}\n", ""),
    ),
    "what it undoes is undone to its end": (
        """
try:
    interrupt()
finally:
    for part in range(10):
        time.sleep(0.05)
        print(part, flush=True)
""",
        (130, f"{INTERRUPTED}\n", "9"),
    ),
    "when the work is done": (
        "import atexit\natexit.register(interrupt)",
        (130, f"{INTERRUPTED}; too late to stop anything: the command had done its work\n", "upper_edge"),
    ),
    "ignored from the start": ("interrupt()", (0, "", "upper_edge")),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ENDS)
def test_an_interrupt_ends_as_it_should(how):
    code, (status, err, out) = ENDS[how]
    begin = time.monotonic()
    ignoring = "signal.signal(signal.SIGINT, signal.SIG_IGN)\nimport rmtbase.__main__\n"
    ran = hooked(code, before="" if status else ignoring)
    assert (ran.returncode, ran.stderr, out in ran.stdout) == (status, err, True)
    assert time.monotonic() - begin < 8.0  # of which most is the start; else ten seconds of patience


def test_interrupt_does_not_wait_for_what_other_threads_are_doing():
    """The null of a matrix is drawn by a thread that reads the model: its draws and their compilation take long."""
    begun, released = threading.Event(), threading.Event()

    class Slow:
        def add(self, *matrix):
            begun.set()
            released.wait(60)

    model, begin = open_model("demo"), time.monotonic()
    sites = read_sites(model, require_circuits(model, "qk"), Takers(Slow()), HeadWork(), SILENT)
    with pytest.raises(KeyboardInterrupt), sites:
        assert begun.wait(30)
        raise KeyboardInterrupt
    assert time.monotonic() - begin < 45
    released.set()


def constants(**streams):
    return subprocess.run([sys.executable, "-m", "rmtbase", "constants"], text=True, timeout=60, check=False, **streams)


def test_a_full_disk_behind_stdout_is_one_line_and_a_reader_that_stops_or_closed_streams_are_none():
    with open("/dev/full", "w") as full:  # noqa: PTH123  # a device
        ran = constants(stdout=full, stderr=subprocess.PIPE)
    said = "rmtbase: error: the output cannot be written: No space left on device\n"
    assert (ran.returncode, ran.stderr) == (2, said)
    command = ["sh", "-c", f"{sys.executable} -m rmtbase constants >&- 2>&-"]
    ran = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, b"", b"")
    read, write = os.pipe()
    os.close(read)
    ran = constants(stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (ran.returncode, ran.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.exhaustive
def test_workers_that_are_just_starting_do_not_see_the_interrupt_of_a_terminal(tmp_path):
    run = Run(tmp_path, COMMANDS["baseline --workers 2"])
    while run.process.poll() is None and sum("spawn_main" in line for line in run.processes().values()) < 2:
        time.sleep(0.01)
    run.send(signal.SIGINT, group=True)
    run.finish()
    assert (run.status, run.wrong, run.lines) == (130, [], ["rmtbase: interrupted"])
    assert list((tmp_path / "tmp").iterdir()) == []
