"""Environment settings with which other libraries do not start, reported in one line."""

import datetime
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from rmtbase.errors import ParameterError
from rmtbase.shown import quoted, shown

_DEVICES = ("XLA_", "CUDA_", "TPU_", "LIBTPU_", "ROCR_", "HIP_")
_PLATFORMS = ("JAX_PLATFORM", "JAX_NUM_CPU_DEVICES", "JAX_CPU_", "JAX_CUDA_", "JAX_ROCM_", *_DEVICES)
_SETTINGS = {
    "jax": ("JAX_", *_DEVICES),
    "matplotlib": ("MPL", "MATPLOTLIB"),
    "torch": ("TORCH", "PYTORCH", "CUDA_"),
    "transformers": ("TRANSFORMERS_", "HF_"),
    "huggingface_hub": ("HF_", "HUGGINGFACE_"),
    "platformdirs": ("XDG_", "HOME"),
}  #: Package -> prefixes of the environment variables that it reads as it starts

_STARTS = ("xla_bridge.py", "config.py", "rcsetup.py")  # files that run at the start, in addition to code at import
_COUNT = re.compile(r"\s*--xla_force_host_platform_device_count=(\d+)\s*")
_MOST_DEVICES = 1024  # with 4096 JAX does not compute, and millions take hours to start
_XLA_MESSAGE = re.compile(r"[EFW]\d{4} [\d:.]+ +\d+ \S+\] (.+)")  # of its log: kind, date, time, thread, place, text
TRIED = "RMTBASE_XLA_FLAGS_TRIED"  #: Environment variable that holds the XLA_FLAGS with which JAX is known to start
_LONGEST = 300  # characters of a library's message
_GIVEN: dict[str, str] = {}  # settings at the start of the command; JAX adds to the environment


def require_settings() -> None:
    """Raise a ParameterError for a wrong setting that libraries read during their work without checking it."""
    _GIVEN.clear()
    _GIVEN.update(os.environ)
    if sys.flags.optimize > 1:
        expected = "0 or 1 (-O): without docstrings commands have no help and transformers does not start"
        raise ParameterError("PYTHONOPTIMIZE", sys.flags.optimize, expected)
    page_date()
    devices = os.environ.get("JAX_NUM_CPU_DEVICES", "")
    if devices.isdecimal():
        _require_devices("JAX_NUM_CPU_DEVICES", devices, devices)
    # XLA would end the process with pages of text if it did not know its options. So if XLA_FLAGS holds more than a
    # number of devices, JAX is started on trial in a separate process, once for this process and its child processes.
    flags = os.environ.get("XLA_FLAGS", "")
    if not flags.strip() or os.environ.get(TRIED) == flags:
        return
    if count := _COUNT.fullmatch(flags):
        _require_devices("XLA_FLAGS", flags, count[1])
        return
    status, messages = _compile_with(flags)
    if messages:
        usual = _compile_with("")[1]
        messages = [message for message in messages if message not in usual]
    if status < 0 or messages:
        reason = shown((messages or ["it ends the process without a reason"])[0], _LONGEST)
        raise ParameterError("XLA_FLAGS", flags, f"options that this XLA knows and can follow ({reason}), or none")
    os.environ[TRIED] = flags


def page_date() -> datetime.date:
    """Return today's date in UTC, or the date of a reproducible build, SOURCE_DATE_EPOCH of the environment."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not epoch:
        return datetime.datetime.now(datetime.UTC).date()
    try:
        return datetime.datetime.fromtimestamp(int(epoch), datetime.UTC).date()
    except (ValueError, OverflowError, OSError):
        expected = "seconds since 1970 as an integer, or none in the environment"
        raise ParameterError("SOURCE_DATE_EPOCH", epoch, expected) from None


def _compile_with(flags: str) -> tuple[int, list[str]]:
    command = [sys.executable, "-c", "import jax; jax.jit(lambda x: x + 1)(1.0)"]
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    options: dict[str, Any] = {"capture_output": True, "encoding": "utf-8", "errors": "replace", "check": False}
    ended = subprocess.run(command, env=environment, **options)
    return ended.returncode, [match[1] for match in _XLA_MESSAGE.finditer(ended.stderr)]


def _require_devices(name: str, text: str, count: str) -> None:
    if len(count) > len(str(_MOST_DEVICES)) or not 1 <= int(count) <= _MOST_DEVICES:
        raise ParameterError(name, text, f"from 1 to {_MOST_DEVICES} devices, or none in the environment")


def settings_to_blame(error: BaseException) -> str:
    """Explain that a library did not start with the settings in the environment; "" for any other error."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):  # the innermost first
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        file = Path(frame.f_code.co_filename).name
        if package not in _SETTINGS or not (frame.f_code.co_name == "<module>" or file in _STARTS):
            continue
        devices = file == "xla_bridge.py"
        prefixes = _PLATFORMS if devices else _SETTINGS[package]
        settings = {name: value for name, value in sorted(_GIVEN.items()) if name.startswith(prefixes)}
        if settings:
            variables = ", ".join(f"{name}={quoted(value)}" for name, value in settings.items())
            silent = "it finds no such device" if devices else type(error).__name__
            reason = shown(str(error).partition("\n")[0], _LONGEST) or silent
            advice = "correct or unset what is wrong"
            return f"{package} does not start ({reason}) with {variables} in the environment: {advice}"
    return ""
