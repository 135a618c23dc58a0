"""Blocks that signals do not cut."""

import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from rmtbase.interrupts import interrupts_held


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no alarm")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM])
def test_a_signal_in_the_block_is_raised_at_its_end(number):
    """Also those of a closed terminal and of the alarm that an earlier interrupt set."""
    before = signal.signal(number, lambda found, frame: seen.append(found))
    seen: list[int] = []
    try:
        with interrupts_held():
            os.kill(os.getpid(), number)
            assert seen == []
        assert seen == [number]
    finally:
        signal.signal(number, before)


def test_ctrl_c_in_the_block_interrupts_after_it():
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("to the end of the block")
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_thread_enters_without_touching_handlers():
    found = []

    def enter():
        with interrupts_held():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]


def test_every_signal_that_came_reaches_its_handler_and_none_is_raised_again():
    """A signal raised again would be counted twice by what ends a command at the third one."""
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda found, frame: seen.append(found))
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    wakeup = signal.set_wakeup_fd(sender.fileno())
    try:
        with interrupts_held():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        assert seen == [signal.SIGINT] * 2
        assert len(receiver.recv(64)) == 2
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGINT, before)
        receiver.close()
        sender.close()


def test_an_interrupt_while_handlers_are_put_back_leaves_none_that_swallows_the_next():
    """The handler of SIGINT raises as soon as it is back, before that of SIGTERM is."""
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda found, frame: seen.append(found))
    put_back, raised = signal.signal, False

    def interrupted(number, handler):
        nonlocal raised
        done = put_back(number, handler)
        if handler is signal.default_int_handler and not raised:
            raised = True
            raise KeyboardInterrupt
        return done

    try:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt), interrupts_held():
            patch.setattr(signal, "signal", interrupted)
        assert raised
        os.kill(os.getpid(), signal.SIGTERM)
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("package", ["ensembles", "linalg"])
def test_jax_is_imported_with_interrupts_held(package):
    """Its C++ code ends the process if Python raises in it: no handler of ours or of Python is in place meanwhile."""
    use = "import rmtbase.ensembles" if package == "ensembles" else "linalg.reproducible_jax().__enter__()"
    code = f"""
import signal, sys
from rmtbase import linalg
class Finder:
    def find_spec(self, name, path, target=None):
        if name in ("jax", "jaxlib", "jax.numpy"):
            print(name, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
sys.meta_path.insert(0, Finder())
{use}
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.splitlines() == ["jax False", "jaxlib False", "jax.numpy False"]


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")
def test_a_closed_terminal_does_not_end_the_process_that_tracks_semaphores():
    """A second tracker would not know what the first one tracked, and print a traceback for each."""
    code = """
import os, signal, time
from multiprocessing import resource_tracker
from rmtbase.interrupts import undisturbed
with undisturbed():
    assert signal.SIGHUP not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
resource_tracker.register("/rmtbase-nothing", "semaphore")
signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.killpg(0, signal.SIGHUP)
time.sleep(0.5)
assert os.waitpid(resource_tracker._resource_tracker._pid, os.WNOHANG) == (0, 0)
resource_tracker.unregister("/rmtbase-nothing", "semaphore")
"""
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, start_new_session=True)
    assert (ran.returncode, ran.stderr) == (0, "")
