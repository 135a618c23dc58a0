"""Size and structure of the package in any checkout, and the packages that a value passes through.

Of each package of ``src/rmtbase``, with each kind of result as a package of its own:

* lines and files of Python;
* public names: those in ``__all__`` of the package and of the packages in it;
* open names: functions, classes and constants without an underscore, in modules without one, that no ``__all__`` lists;
* the share of lines that import statements take;
* the options of all commands, each counted once for each command that has it, and those of the application.

Three runs are traced with ``sys.setprofile``, each in a fresh process with an empty cache:

* ``baseline``: ``rmtbase baseline --d-model 64 --d-head 16 --draws 100``, from the command line to the file;
* ``score``: ``rmtbase score demo --matrices none`` without the proof, from a tensor to its p-value;
* ``watch``: the second look of a :class:`rmtbase.watch.Watcher`, from a training step to the file of the trajectory.

A package change is a call of a function of one package by a function of another, in the main thread. Calls through
other libraries count; calls during an import do not. ``package changes`` takes ``results`` as one package, ``with kinds
apart`` each kind of result by itself, ``between folders`` leaves out the modules beside the packages (checks of
parameters, errors, text); ``of all threads`` includes other threads, whose number varies a little.
``files`` are those with a function that was called.

    python benchmarks/structure.py [NAME=CHECKOUT ...] [--output FILE]

A checkout is a folder or a commit of this repository; without arguments it is ``after=`` this one. Results of other
names in the file are kept.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).resolve()
RUNS = {
    "baseline": "baseline --d-model 64 --d-head 16 --draws 100 -o baseline.nc",
    "score": "score demo --matrices none -o score.nc",
    "watch": None,
}


def package_of(path: Path) -> str:
    """Return the package of a file in ``src/rmtbase``: ``rmtbase`` for the modules beside the packages."""
    parts = path.parts[:-1]
    return ".".join(parts[: 2 if parts[0] == "results" else 1]) if parts else "rmtbase"


def measured(checkout: Path) -> dict[str, Any]:
    """Measure all numbers of a checkout."""
    source = checkout / "src" / "rmtbase"
    packages: dict[str, Counter[str]] = {}
    listed = inside(checkout, "names")
    for path in sorted(source.rglob("*.py")):
        place = path.relative_to(source)
        held = packages.setdefault(package_of(place), Counter())
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        imports = (one for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom))
        held["lines"] += len(text.splitlines())
        held["files"] += 1
        held["import lines"] += sum((one.end_lineno or 0) - one.lineno + 1 for one in imports)
        if path.name == "__init__.py":
            held["public names"] += len(listed.get(".".join(("rmtbase", *place.parts[:-1])), ()))
        elif not any(part.startswith("_") for part in place.parts):
            held["open names"] += len(defined(tree) - {name for names in listed.values() for name in names})
    total: Counter[str] = Counter()
    for held in packages.values():
        total.update(held)
    options = inside(checkout, "options")
    return {
        "total": {**total, "public names below rmtbase": total["public names"] - packages["rmtbase"]["public names"]},
        "share of import lines": round(total["import lines"] / total["lines"], 4),
        "options of the application": len(options.pop("rmtbase")),
        "options": {"total": sum(map(len, options.values())), **{name: len(held) for name, held in options.items()}},
        "packages": {name: dict(held) for name, held in packages.items()},
        "traces": {run: inside(checkout, run) for run in RUNS},
    }


def defined(tree: ast.Module) -> set[str]:
    """Find the names without an underscore that a module defines."""
    found = set()
    for one in tree.body:
        if isinstance(one, ast.FunctionDef | ast.ClassDef):
            found.add(one.name)
        elif isinstance(one, ast.Assign | ast.AnnAssign):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            found |= {each.id for each in targets if isinstance(each, ast.Name)}
    return {name for name in found if not name.startswith("_")}


def inside(checkout: Path, what: str) -> Any:
    """Answer one question in a fresh process that imports the checkout's package."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "PYTHONPATH": str(checkout / "src"),
            "RMTBASE_CACHE": f"{folder}/cache",
            "RMTBASE_PROOF": "0",
            "JAX_PLATFORMS": "cpu",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        command = [sys.executable, str(HERE), "--inside", what, "--output", f"{folder}/found.json"]
        subprocess.run(command, cwd=folder, env=os.environ | settings, check=True, stdout=subprocess.DEVNULL)
        return json.loads(Path(folder, "found.json").read_text())


def answer(what: str) -> Any:
    """Answer one question about the package that this process imports."""
    if what == "names":
        return public_names()
    if what == "options":
        return options_of_commands()
    return trace(what)


def public_names() -> dict[str, list[str]]:
    """Collect ``__all__`` of each package that has one."""
    from importlib import import_module

    import rmtbase

    source = Path(rmtbase.__file__).parent
    packages = [".".join(("rmtbase", *one.parent.relative_to(source).parts)) for one in source.rglob("__init__.py")]
    found = {name: getattr(import_module(name), "__all__", None) for name in sorted(packages)}
    return {name: sorted(names) for name, names in found.items() if names is not None}


def options_of_commands() -> dict[str, list[str]]:
    """List the options of the application and of each command, without arguments and ``--help``."""
    from typer.main import get_command

    from rmtbase.cli import _app

    application: Any = get_command(_app.app)
    return {
        name: [one.name for one in command.params if one.param_type_name == "option" and one.name != "help"]
        for name, command in {"rmtbase": application, **application.commands}.items()
    }


class Trace:
    """Calls between packages in this process."""

    def __init__(self) -> None:
        import rmtbase

        self._source = Path(rmtbase.__file__).parent
        self._packages: dict[str, str | None] = {}
        self._counts: Counter[str] = Counter()
        self._between: Counter[str] = Counter()
        self._files: set[str] = set()
        self._importing = 0

    def __enter__(self) -> Trace:
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Count a call of a function of the package."""
        package = self._package(frame) if event in ("call", "return") else None
        if package is None:
            return
        if frame.f_code.co_name == "<module>":
            self._importing += 1 if event == "call" else -1
            return
        if event == "return" or self._importing:
            return
        self._files.add(frame.f_code.co_filename)
        caller = frame.f_back
        while caller is not None and self._package(caller) is None:
            caller = caller.f_back
        by = None if caller is None else self._package(caller)
        apart = by not in (None, package)
        is_change = by is not None and by.partition(".")[0] != package.partition(".")[0]
        self._counts["of all threads"] += is_change
        if threading.current_thread() is threading.main_thread():
            between = is_change and "rmtbase" not in (by, package)
            counts = {"package changes": is_change, "between folders": between, "with kinds apart": apart}
            self._counts.update({"calls": 1, **counts})
            if apart:
                self._between[f"{by} > {package}"] += 1

    def _package(self, frame: FrameType) -> str | None:
        name = frame.f_code.co_filename
        if name not in self._packages:
            path = Path(name)
            within = path.is_relative_to(self._source)
            self._packages[name] = package_of(path.relative_to(self._source)) if within else None
        return self._packages[name]

    def record(self) -> dict[str, Any]:
        """Return the counts."""
        return {
            **self._counts,
            "packages": len({self._packages[name] for name in self._files}),
            "files": len(self._files),
            "most frequent": dict(self._between.most_common(8)),
        }


def trace(run: str) -> dict[str, Any]:
    """Count the package changes of one run."""
    if (command := RUNS[run]) is not None:
        from rmtbase.cli import main

        with Trace() as counted:
            try:
                main(command.split())
            except SystemExit as left:
                if left.code:
                    raise
        return counted.record()

    from rmtbase.watch import Watcher

    watcher = Watcher("watch.nc", planned_looks=10, family="llama", config=LLAMA)
    watcher.look(state_dict(0), 0)
    with Trace() as counted:
        watcher.look(state_dict(1), 1)
    return counted.record()


LLAMA = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}


def state_dict(seed: int) -> dict[str, Any]:
    """Draw the attention of one layer of width 128, with heads of a size that the atlas has."""
    import numpy as np

    rng = np.random.default_rng(seed)
    shapes = {"q": (64, 128), "k": (32, 128), "v": (32, 128), "o": (128, 64)}
    return {
        f"model.layers.0.self_attn.{name}_proj.weight": 0.02 * rng.standard_normal(shape, dtype=np.float32)
        for name, shape in shapes.items()
    }


def checked_out(place: str, folder: Path) -> Path:
    """Return a checkout: the folder that was given, or a commit of this repository."""
    if Path(place).is_dir():
        return Path(place).resolve()
    archive = subprocess.run(["git", "archive", place, "src"], cwd=HERE.parents[1], stdout=subprocess.PIPE, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def shown(results: dict[str, Any]) -> str:
    """Format a table with one column for each checkout."""
    rows: dict[str, list[str]] = {}
    for result in results.values():
        for name in ("lines", "files", "public names", "open names"):
            rows.setdefault(name, []).append(str(result["total"].get(name, 0)))
        rows.setdefault("import lines", []).append(f"{result['share of import lines']:.1%}")
        rows.setdefault("options of commands", []).append(str(result["options"]["total"]))
        rows.setdefault("options of the application", []).append(str(result["options of the application"]))
        for run, counted in result["traces"].items():
            rows.setdefault(f"{run}: package changes", []).append(str(counted["package changes"]))
            rows.setdefault(f"{run}: between folders", []).append(str(counted["between folders"]))
            rows.setdefault(f"{run}: with kinds apart", []).append(str(counted["with kinds apart"]))
            rows.setdefault(f"{run}: packages, files", []).append(f"{counted['packages']}, {counted['files']}")
    lines = [f"{'':28}" + "".join(f"{name:>12}" for name in results)]
    lines += [f"{name:28}" + "".join(f"{one:>12}" for one in values) for name, values in rows.items()]
    lines += ["", "lines, files, public names, open names, import lines of each package"]
    for name, result in results.items():
        lines += ["", name]
        for package, held in sorted(result["packages"].items()):
            counts = [held.get(one, 0) for one in ("lines", "files", "public names", "open names")]
            share = held["import lines"] / held["lines"]
            lines.append(f"  {package:22}" + "".join(f"{one:>8}" for one in counts) + f"{share:>8.1%}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", default=[f"after={HERE.parents[1]}"], metavar="NAME=CHECKOUT")
    parser.add_argument("--output", type=Path, default=HERE.parent / "results" / "structure.json", help="file to write")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        options.output.write_text(json.dumps(answer(options.inside)))
        return
    result: dict[str, Any] = {"benchmark": "structure", "runs": RUNS, "checkouts": {}}
    if options.output.is_file():
        result["checkouts"] = json.loads(options.output.read_text())["checkouts"]
    for given in options.checkouts:
        name, _, place = given.rpartition("=")
        with tempfile.TemporaryDirectory() as folder:
            result["checkouts"][name or place] = measured(checked_out(place, Path(folder)))
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{shown(result['checkouts'])}\n\nwrote {options.output}")


if __name__ == "__main__":
    main()
