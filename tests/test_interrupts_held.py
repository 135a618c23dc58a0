"""Blocks that signals do not cut."""

import os
import signal
import socket
import threading

import pytest

from rmtbase.interrupts import interrupts_held


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_block_is_raised_at_its_end(number):
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
