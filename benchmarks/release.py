"""What a release is made of: built twice, compared, looked into, and installed alone; and where it installs.

    python benchmarks/release.py

wants the programs ``build``, ``twine`` and ``uv`` in the environment, and a package index. It writes
``results/release.json``: sizes, times of the commands in an environment that holds the wheel and its
dependencies alone, and for each Python and system whether wheels of all dependencies are there. With ``--lowest`` that
environment has the least versions that ``pyproject.toml`` allows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "release.json"
EPOCH = "1577836800"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SYSTEMS = {"linux": "x86_64-manylinux_2_28", "macos": "aarch64-apple-darwin", "windows": "x86_64-pc-windows-msvc"}
COMMANDS = (
    ("--version",),
    ("doctor",),
    ("constants",),
    ("score", "demo"),
    ("score", "--help"),
    ("signal", "demo", "--revision", "step-200"),
    ("demo", "--out", "demo"),
    ("trajectory", "demo", "-o", "trajectory.nc"),
    ("plot", "trajectory.nc", "-o", "figures"),
)


def run(*command: str | Path, **how: Any) -> subprocess.CompletedProcess[str]:
    """One command to its end, with what it said."""
    return subprocess.run([str(one) for one in command], capture_output=True, encoding="utf-8", check=False, **how)


def must(*command: str | Path, **how: Any) -> str:
    """What a command says that must not fail."""
    ended = run(*command, **how)
    if ended.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {ended.stdout}{ended.stderr}")
    return ended.stdout


def build(folder: Path) -> list[Path]:
    """The sdist of the tree, and the wheel that is built of the sdist."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": EPOCH}
    must(sys.executable, "-m", "build", "--outdir", folder, ROOT, env=environment)
    return sorted(folder.iterdir())


def machine() -> dict[str, Any]:
    """What the times are of. The commands share it with whatever else runs."""
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    return {"system": platform.system(), "python": platform.python_version(), "cores": os.cpu_count(), "load": load}


def contents(archive: Path) -> dict[str, Any]:
    """Its size, number of files, and its largest."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as whole:
            files = {one.filename: one.file_size for one in whole.infolist()}
    else:
        with tarfile.open(archive) as whole:
            files = {one.name.partition("/")[2]: one.size for one in whole.getmembers() if one.isfile()}
    largest = sorted(files, key=files.__getitem__, reverse=True)[:5]
    return {
        "bytes": archive.stat().st_size,
        "files": len(files),
        "largest": {name: files[name] for name in largest},
    }


def built(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The wheel, and what was found of it and of the sdist."""
    first, second = build(folder / "first"), build(folder / "second")
    environment = os.environ | {"SOURCE_DATE_EPOCH": EPOCH}
    must(sys.executable, "-m", "build", "--wheel", "--outdir", folder / "tree", ROOT, env=environment)
    wheel = next(one for one in first if one.suffix == ".whl")
    checked = run(sys.executable, "-m", "twine", "check", "--strict", *first)
    return wheel, {
        "twine check --strict": "failed" if checked.returncode else "passed",
        "two builds are equal to the byte": [one.read_bytes() for one in first] == [one.read_bytes() for one in second],
        "the tree's wheel is that of the sdist": (folder / "tree" / wheel.name).read_bytes() == wheel.read_bytes(),
        **{one.name: contents(one) for one in first},
    }


def alone(wheel: Path, folder: Path, lowest: bool) -> dict[str, Any]:
    """What the commands take in an environment with the wheel and its dependencies alone."""
    python = folder / "alone" / ("Scripts" if os.name == "nt" else "bin") / "python"
    must("uv", "venv", folder / "alone", "--python", sys.executable)
    least = ("--resolution", "lowest-direct", "--only-binary", ":all:", "-r", ROOT / "pyproject.toml") if lowest else ()
    must("uv", "pip", "install", "--python", python, *(least or (wheel,)))
    if lowest:
        must("uv", "pip", "install", "--python", python, "--no-deps", wheel)
    installed = dict(
        line.split("==") for line in must("uv", "pip", "freeze", "--python", python).split() if "==" in line
    )
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["RMTBASE_CACHE"] = str(folder / "cache")
    times = {}
    for command in COMMANDS:
        begin = time.perf_counter()
        must(python.with_name("rmtbase"), *command, cwd=folder, env=environment)
        times[f"rmtbase {' '.join(command)}"] = round(time.perf_counter() - begin, 1)
    return {"torch": "torch" in installed, "seconds": times, "installed": installed}


def installable() -> dict[str, dict[str, str]]:
    """For each system and Python whether all dependencies have wheels, alone and with those of the tests."""
    found: dict[str, dict[str, str]] = {}
    environment = os.environ | {"MACOSX_DEPLOYMENT_TARGET": "14.0"}
    for system, triple in SYSTEMS.items():
        for python in PYTHONS:
            for what, extra in (("core", ()), ("tests", ("--extra", "test"))):
                wanted = ("--python-version", python, "--python-platform", triple, "--only-binary", ":all:", *extra)
                ended = run("uv", "pip", "compile", "-q", *wanted, ROOT / "pyproject.toml", env=environment)
                cause = " ".join(ended.stderr.partition("cause:")[2].split("hint:")[0].split())
                found.setdefault(f"{system} {python}", {})[what] = cause[:300] if ended.returncode else "wheels of all"
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lowest", action="store_true", help="the least versions of the dependencies instead")
    lowest = parser.parse_args().lowest
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    with tempfile.TemporaryDirectory() as place:
        the_wheel, of_builds = built(Path(place))
        results |= {"machine": machine(), "built": of_builds}
        results["alone, least versions" if lowest else "alone"] = alone(the_wheel, Path(place), lowest)
    if not lowest:
        results["installable"] = installable()
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8", newline="\n")
