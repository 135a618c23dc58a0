"""Keep the findings of each model type in a file, so that a run that was stopped continues where it stopped."""

import ctypes
import gc
import json
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any


class _Slow(BaseException):
    """A type takes too long, in processor time: what else the machine does changes nothing."""


def _too_long(*_: Any) -> None:
    raise _Slow


def kept(types: Iterable[str], work: Path, limit: int, find: Callable[[str], Any], too_slow: Any) -> dict[str, Any]:
    """Read what earlier work found of each type, or find it now and keep it, in at most ``limit`` seconds per type."""
    held = json.loads(work.read_text()) if work.is_file() else {}
    signal.signal(signal.SIGPROF, _too_long)
    for model_type in types:
        if model_type in held:
            continue
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            held[model_type] = find(model_type)
        except _Slow:
            held[model_type] = too_slow
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            _give_memory_back()
        _replace(work, json.dumps(held))
    return held


def _replace(work: Path, text: str) -> None:
    """Write a file whole or not at all: what was found before is there whenever the script is stopped."""
    work.parent.mkdir(parents=True, exist_ok=True)
    beside = work.with_name(f"{work.name}.new")
    beside.write_text(text)
    beside.replace(work)


def _give_memory_back() -> None:
    """Free modules that hold themselves, and what the C library keeps of what was freed: gigabytes after a while."""
    gc.collect()
    with suppress(AttributeError):  # other C libraries have no such function
        ctypes.CDLL(None).malloc_trim(0)
