"""Environment settings with which other libraries do not start, reported in one line."""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from rmtbase.errors import ParameterError
from rmtbase.shown import quoted, shown

_SETTINGS = {
    "jax": ("JAX_", "XLA_", "CUDA_", "TPU_", "LIBTPU_", "ROCR_", "HIP_"),
    "matplotlib": ("MPL", "MATPLOTLIB"),
    "torch": ("TORCH", "PYTORCH", "CUDA_"),
    "transformers": ("TRANSFORMERS_", "HF_"),
    "huggingface_hub": ("HF_", "HUGGINGFACE_"),
    "platformdirs": ("XDG_", "HOME"),
}
"""Package -> prefixes of the environment variables that it reads as it starts."""

_STARTS = ("xla_bridge.py", "config.py", "rcsetup.py")  # files that run at the start, in addition to code at import
_KNOWN = re.compile(r"(\s*--xla_force_host_platform_device_count=\d+)+\s*")
TRIED = "RMTBASE_XLA_FLAGS_TRIED"
"""Environment variable that holds the XLA_FLAGS with which JAX is known to start."""

_LONGEST = 300  # characters of a library's message


def require_settings() -> None:
    """Raise a ParameterError for a wrong setting that libraries read during their work without checking it.

    These are the date of a reproducible build, which Matplotlib reads, and the options of XLA.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch:
        try:
            datetime.datetime.fromtimestamp(int(epoch), datetime.UTC)
        except (ValueError, OverflowError, OSError):
            expected = "seconds since 1970 as an integer, or none in the environment"
            raise ParameterError("SOURCE_DATE_EPOCH", epoch, expected) from None
    require_settings_of_xla()


def require_settings_of_xla() -> None:
    """Raise a ParameterError if XLA does not know its options: it would end the process with pages of text.

    If XLA_FLAGS holds more than a number of devices, JAX is started on trial in a separate process, once for this
    process and its child processes.
    """
    given = os.environ.get("XLA_FLAGS", "")
    if not given.strip() or _KNOWN.fullmatch(given) or os.environ.get(TRIED) == given:
        return
    start = [sys.executable, "-c", "import jax; jax.devices()"]
    ended = subprocess.run(start, capture_output=True, encoding="utf-8", errors="replace", check=False)
    said = next((line for line in ended.stderr.splitlines() if "XLA_FLAGS" in line), "")
    if ended.returncode != 0 and said:
        reason = said.rpartition("] ")[2]
        raise ParameterError("XLA_FLAGS", given, f"options that this XLA knows ({shown(reason, _LONGEST)}), or none")
    os.environ[TRIED] = given


def settings_to_blame(error: BaseException) -> str:
    """Explain that a library did not start with the settings in the environment; "" for any other error."""
    for package, path, function in reversed(_frames(error.__traceback__)):
        if package not in _SETTINGS or not (function == "<module>" or Path(path).name in _STARTS):
            continue
        names = sorted(name for name in os.environ if name.startswith(_SETTINGS[package]))
        if names:
            given = ", ".join(f"{name}={quoted(os.environ[name])}" for name in names)
            said = shown(str(error).partition("\n")[0], _LONGEST) or type(error).__name__
            return f"{package} does not start ({said}) with {given} in the environment: correct or unset what is wrong"
    return ""


def _frames(traceback: TracebackType | None) -> list[tuple[str, str, str]]:
    """List the package, the file and the function of each call, the innermost last."""
    found = []
    while traceback is not None:
        frame = traceback.tb_frame
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        found.append((package, frame.f_code.co_filename, frame.f_code.co_name))
        traceback = traceback.tb_next
    return found
