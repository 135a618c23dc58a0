"""Check of a release: build it twice and compare, inspect the files, install the wheel by itself, and run it.

    python benchmarks/release.py
    python benchmarks/release.py --lowest
    python benchmarks/release.py --tests --python python3.14
    python benchmarks/release.py --tests tests/cli tests/tables --lowest

The script needs the programs ``build``, ``twine`` and ``uv`` in the environment, and a package index. It writes
``results/release.json``: sizes, times of the commands in an environment that holds only the wheel and its dependencies,
and for each Python and system whether all dependencies have wheels. With ``--lowest`` that environment has the lowest
versions that ``pyproject.toml`` allows. With ``--tests`` the wheel is installed by itself, and then with the extra
``test``, for the Python that is named; the results of the demo and of the tests, all or those named, are added to the
file.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = ROOT / "pyproject.toml"
RESULTS = ROOT / "benchmarks" / "results" / "release.json"
EPOCH = "1577836800"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SYSTEMS = {"linux": "x86_64-manylinux_2_28", "macos": "aarch64-apple-darwin", "windows": "x86_64-pc-windows-msvc"}
# Transformers asks for later versions of others than rmtbase does.
WITH_TORCH = ("rmtbase[", "bitsandbytes", "compressed-tensors", "peft")
COMMANDS = (
    ("--version",),
    ("doctor",),
    ("constants",),
    ("score", "demo"),
    ("score", "--help"),
    ("signal", "demo@step-200"),
    ("demo", "-o", "demo"),
    ("trajectory", "demo", "-o", "trajectory.nc"),
    ("plot", "trajectory.nc", "-o", "figures"),
)


def run(*command: str | Path, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run one command to its end, and capture its output."""
    how = {"capture_output": True} | how
    return subprocess.run([str(one) for one in command], encoding="utf-8", check=False, **how)


def must(*command: str | Path, **how: Any) -> str:
    """Run a command that must not fail, and return its output."""
    return succeeded(run(*command, **how))


def succeeded(ended: subprocess.CompletedProcess[str]) -> str:
    """Return the output of a command that must not have failed."""
    if ended.returncode:
        sys.exit(f"{' '.join(ended.args)}: {ended.stdout}{ended.stderr}")
    return ended.stdout


def build(folder: Path) -> list[Path]:
    """Build the sdist of the tree, and the wheel from the sdist."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": EPOCH}
    must(sys.executable, "-m", "build", "--outdir", folder, ROOT, env=environment)
    return sorted(folder.iterdir())


def machine() -> dict[str, Any]:
    """Describe the machine that gave the times, with its load: the commands share it with whatever else runs."""
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    return {"system": platform.system(), "python": platform.python_version(), "cores": os.cpu_count(), "load": load}


def contents(archive: Path) -> dict[str, Any]:
    """Describe an archive by its size, the number of its files, and the five largest."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as whole:
            files = {one.filename: one.file_size for one in whole.infolist()}
    else:
        with tarfile.open(archive) as whole:
            files = {one.name.partition("/")[2]: one.size for one in whole.getmembers() if one.isfile()}
    largest = sorted(files, key=files.__getitem__, reverse=True)[:5]
    return {"bytes": archive.stat().st_size, "files": len(files), "largest": {name: files[name] for name in largest}}


def built(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Build the wheel, and record what was found of it and of the sdist."""
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


class Installed:
    """An environment with a wheel and its dependencies: the newest versions, or the least that are allowed."""

    def __init__(self, wheel: Path, folder: Path, python: str, lowest: bool) -> None:
        self._folder = folder
        self._python = folder / "alone" / ("Scripts" if os.name == "nt" else "bin") / "python"
        must("uv", "venv", folder / "alone", "--python", python)
        if lowest:
            self._install("--resolution", "lowest-direct", "--only-binary", ":all:", "-r", PYPROJECT)
            self._install("--no-deps", wheel)
        else:
            self._install(wheel)

    def _install(self, *what: str | Path) -> None:
        must("uv", "pip", "install", "--python", self._python, *what)

    def add_tests(self, wheel: Path) -> None:
        """Install everything that the tests need."""
        self._install(f"{wheel}[test]")

    def add_tests_without_torch(self) -> None:
        """Install what the tests need except packages that need torch, without changing installed packages."""
        extras = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
        wanted = [
            one for extra in ("test", "dask", "parquet") for one in extras[extra] if not one.startswith(WITH_TORCH)
        ]
        constraints = self._folder / "constraints.txt"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in self.packages().items()))
        self._install("--only-binary", ":all:", "--constraint", constraints, *wanted)

    def run(self, program: str, *arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
        """Run one of the environment's programs to its end, with the wheel's modules rather than the tree's."""
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment |= {"RMTBASE_CACHE": str(self._folder / "cache"), "VIRTUAL_ENV": str(self._folder / "alone")}
        environment["PATH"] = os.pathsep.join((str(self._python.parent), environment["PATH"]))
        return run(self._python.with_name(program), *arguments, **{"cwd": self._folder, "env": environment} | how)

    def packages(self) -> dict[str, str]:
        """Package -> its version."""
        lines = must("uv", "pip", "freeze", "--python", self._python).split()
        return dict(line.split("==") for line in lines if "==" in line)

    def system(self) -> dict[str, str]:
        """Describe the Python and its system."""
        ask = "import platform as p; print(p.python_version(), p.system(), p.machine(), *p.libc_ver())"
        python, system, processor, *libc = succeeded(self.run("python", "-c", ask)).split()
        return {"python": python, "system": system, "processor": processor, "libc": " ".join(libc)}


def alone(wheel: Path, folder: Path, python: str, lowest: bool) -> dict[str, Any]:
    """Time the commands in an environment that holds only the wheel and its dependencies."""
    installed = Installed(wheel, folder, python, lowest)
    times = {}
    for command in COMMANDS:
        begin = time.perf_counter()
        succeeded(installed.run("rmtbase", *command))
        times[f"rmtbase {' '.join(command)}"] = round(time.perf_counter() - begin, 1)
    packages = installed.packages()
    return {"torch": "torch" in packages, "seconds": times, "installed": packages}


def tested(wheel: Path, folder: Path, python: str, lowest: bool, part: list[str]) -> dict[str, Any]:
    """Run the demo with only the wheel, and then the tests with what they need."""
    installed = Installed(wheel, folder, python, lowest)
    succeeded(installed.run("rmtbase", "demo", "-o", "demo"))
    installed.add_tests_without_torch() if lowest else installed.add_tests(wheel)
    report = folder / "tests.xml"
    # Of the least versions some are older than what they ask for, which warns of them.
    warnings = ("-o", "filterwarnings=default") if lowest else ()
    begin = time.perf_counter()
    every = ("-m", "exhaustive or not exhaustive")
    options = ("-q", "-p", "no:cacheprovider", *every, f"--junitxml={report}", *warnings)
    installed.run("python", "-m", "pytest", *options, *part, cwd=ROOT, capture_output=False)
    seconds = round(time.perf_counter() - begin)
    if not report.exists():
        sys.exit("pytest wrote no report")
    counts, failed = outcomes(report)
    return {
        **installed.system(),
        "versions": "least" if lowest else "newest",
        "rmtbase demo": "ended well",
        **counts,
        "those that failed": failed,
        "seconds": seconds,
        "installed": installed.packages(),
    }


def outcomes(report: Path) -> tuple[dict[str, int], list[str]]:
    """Count the tests that passed, failed and were skipped in pytest's report, and name those that failed."""
    counts = Counter({"passed": 0, "failed": 0, "skipped": 0})
    failed = []
    for case in ElementTree.parse(report).iter("testcase"):
        said = {one.tag for one in case}
        outcome = "failed" if said & {"failure", "error"} else "skipped" if "skipped" in said else "passed"
        counts[outcome] += 1
        if outcome == "failed":
            failed.append(f"{case.get('classname')}::{case.get('name')}")
    return dict(counts), sorted(failed)


def installable() -> dict[str, dict[str, str]]:
    """Test for each system and Python whether all dependencies have wheels, without and with those of the tests."""
    found: dict[str, dict[str, str]] = {}
    environment = os.environ | {"MACOSX_DEPLOYMENT_TARGET": "14.0"}
    for system, triple in SYSTEMS.items():
        for python in PYTHONS:
            for what, extra in (("core", ()), ("tests", ("--extra", "test"))):
                wanted = ("--python-version", python, "--python-platform", triple, "--only-binary", ":all:", *extra)
                ended = run("uv", "pip", "compile", "-q", *wanted, PYPROJECT, env=environment)
                cause = " ".join(ended.stderr.partition("cause:")[2].split("hint:")[0].split())
                found.setdefault(f"{system} {python}", {})[what] = cause[:300] if ended.returncode else "wheels of all"
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lowest", action="store_true", help="the least versions of the dependencies instead")
    parser.add_argument("--python", default=sys.executable, help="the one to install for; this one unless told")
    parser.add_argument("--tests", nargs="*", metavar="PART", help="run the demo and the tests, all or those of a part")
    given = parser.parse_args()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if given.tests is None:
            the_wheel, of_builds = built(folder)
            results |= {"machine": machine(), "built": of_builds}
            which = "alone, least versions" if given.lowest else "alone"
            results[which] = alone(the_wheel, folder, given.python, given.lowest)
            if not given.lowest:
                results["installable"] = installable()
        else:
            the_wheel = next(one for one in build(folder / "built") if one.suffix == ".whl")
            found = tested(the_wheel, folder, given.python, given.lowest, given.tests)
            runs = results.setdefault("tested", {}).setdefault(f"{found['python']}, {found['versions']} versions", {})
            if not given.tests:
                runs.clear()
            runs[" ".join(given.tests) or "all"] = found
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8", newline="\n")
