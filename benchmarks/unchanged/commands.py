"""Every command: what it prints, its status, and all that it writes; and what it says of a wrong call."""

import io
import os
import re
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import written
from entries import Entries

_BEAT = re.compile(r"^rmtbase: at work for \d+ s\n", re.MULTILINE)
COMMANDS = ("demo", "baseline", "score", "depth", "law", "constants", "cite", "plot", "doctor")
PLAN = """
name = "plan"
title = "A plan"
ensemble = "residual_path"
draws = 40
seed = 1

[[case]]
d_model = 16
depth = [1, 3]
part = ["path", "update"]
"""
ELEMENTS = """
name = "elements"
ensemble = "initialized_matrix"
measure = "elements"
normalization = "none"
draws = 12
seed = 1

[[case]]
n_rows = 12
n_columns = 8
initializer = ["normal", "kaiming_uniform"]
"""
SQUARE = """
name = "square"
title = "Square factors in single precision, without the sample"
ensemble = "low_rank_product"
normalization = "none"
precision = "float32"
keep_sample = false
draws = 60

[[case]]
d_model = 24
d_head = 24
"""
FILES = {
    "plan.toml": PLAN,
    "elements.toml": ELEMENTS,
    "square.toml": SQUARE,
    "notes.txt": "no table\n",
    "wrong.toml": "draws = 'many'\n",
}
SMALL = "--d-model 32 --d-head 8"

GOOD = (
    "",
    "--version",
    "--help",
    *(f"{command} --help" for command in COMMANDS),
    f"baseline {SMALL} --draws 200 -o null.nc",
    "baseline --d-model 64 --d-model 32 --d-head 8 --d-head 4 --sigma 0.02 --sigma 1 --draws 60 --seed 5",
    "baseline --d-model 24 --d-head 24 --draws 60 --normalization none --json -o square.nc",
    "baseline --plan square.toml --json -o single.nc",
    f"baseline {SMALL} --draws 60 --sigma-q 0.02 --sigma-k 0.03 -o pair.nc",
    "baseline --model gpt2 --draws 4 -o gpt2.nc",
    "baseline --plan plan.toml",
    "baseline --plan plan.toml --json -o again.nc",
    "baseline --plan elements.toml",
    "score demo -o demo.nc --csv demo.csv --report demo.html",
    "score demo --json",
    "score demo --baseline analytic -o analytic.nc --csv analytic.csv --report analytic.html --json",
    "score demo --draws 60000 --seed 2 --matrices none",
    "score demo --null signs --draws 99 --report signs.html -o signs.nc --csv signs.csv",
    "score demo --null axes --draws 99 --report axes.html -o axes.nc --json",
    "score demo --matrices spectra -o spectra.nc --revision step-200",
    "export demo.nc -o exported.csv",
    "export null.nc -o null.csv",
    "demo --out demo",
    "law --d-model 768 --d-head 64",
    "law --d-model 768 --d-head 64 --json",
    "law --d-model 64 --d-head 64 --sigma 0.02 --normalization none",
    "law --d-model 20 --d-head 6 --self-normalized --json",
    "constants",
    "constants --digits 20 --d-model 768 --d-head 64",
    "constants --format json",
    "constants --format latex --digits 20",
    "constants --format bibtex",
    "constants product_upper_edge half_normal_anchor_shape --d-model 768 --d-head 64 --digits 20",
    "constants tracy_widom_1_mean --format json",
    "constants largest_eigenvalue_mean --d-model 768 --d-head 64 --sigma 0.02 --format latex-rows",
    "cite product_upper_edge",
    "cite product_upper_edge --format apa",
    "plot null.nc -o null",
    "plot plan.nc -o plan",
    "plot elements.nc -o elements",
    "plot demo.nc -o demo",
    "plot spectra.nc -o spectra",
    "plot axes.nc -o axes",
    "depth demo --max-depth 4 --draws 19 --component mlp_in -o depth.nc",
    "depth demo --max-depth 3 --draws 19 --component attention_query --part update --json",
    "plot depth.nc -o depth",
    "doctor",
    "doctor --json",
)

WRONG = (
    "scores demo",
    "--wat",
    "baseline",
    "baseline --d-model 32",
    "baseline --d-model 32 --d-head 33",
    f"baseline {SMALL} --draws 1",
    f"baseline {SMALL} --draws 1e3",
    f"baseline {SMALL} --sigma -1",
    f"baseline {SMALL} --seed -1",
    f"baseline {SMALL} --normalization unit",
    f"baseline {SMALL} --precision half",
    f"baseline {SMALL} -o missing/out.nc",
    f"baseline {SMALL} --draws 10000000000000",
    "baseline --d-model 32 --d-model 64 --d-head 8 --d-head 4 --d-head 2",
    "baseline --plan wrong.toml",
    f"baseline --plan plan.toml {SMALL}",
    "baseline --plan none.toml",
    f"baseline {SMALL} --processes 2",
    "score",
    "score nothing-there/at-all/model",
    "score demo --baseline notes.txt",
    "score demo --baseline demo.nc",
    "score demo --baseline none.nc",
    "score demo --null uniform",
    "score demo --null axes --baseline null.nc",
    "score demo --revision step-x",
    "score demo --matrices all",
    "score demo --draws 0",
    "score demo -o same.nc --csv same.nc",
    "law --d-model 8 --d-head 64",
    "law --d-model 64",
    "law --d-model 64 --d-head 8 --sigma 0",
    "constants no_such_constant",
    "constants --format yaml",
    "constants tracy_widom_1_mean --digits 400",
    "constants tracy_widom_1_mean --d-model 768",
    "plot notes.txt",
    "plot none.nc",
    "plot null.nc -o notes.txt",
    "depth demo --max-depth 0",
    "depth demo --draws 5",
    "depth demo --component attention_nothing",
    "depth demo --distance ks",
    "demo --out notes.txt",
)

NOW: dict[str, str | None] = {
    "baseline --plan square.toml --json -o single.nc": "baseline square.toml --json -o single.nc",
    f"baseline {SMALL} --draws 60 --sigma-q 0.02 --sigma-k 0.03 -o pair.nc": (
        f"baseline {SMALL} --draws 60 --sigma 0.02,0.03 -o pair.nc"
    ),
    "baseline --model gpt2 --draws 4 -o gpt2.nc": "baseline gpt2 --draws 4 -o gpt2.nc",
    "baseline --plan plan.toml": "baseline plan.toml",
    "baseline --plan plan.toml --json -o again.nc": "baseline plan.toml --json -o again.nc",
    "baseline --plan elements.toml": "baseline elements.toml",
    "score demo -o demo.nc --csv demo.csv --report demo.html": "score demo -o demo.nc -o demo.html",
    "score demo --baseline analytic -o analytic.nc --csv analytic.csv --report analytic.html --json": (
        "score demo --null analytic -o analytic.nc -o analytic.html --json"
    ),
    "score demo --null signs --draws 99 --report signs.html -o signs.nc --csv signs.csv": (
        "score demo --null signs --draws 99 -o signs.html -o signs.nc"
    ),
    "score demo --null axes --draws 99 --report axes.html -o axes.nc --json": (
        "score demo --null axes --draws 99 -o axes.html -o axes.nc --json"
    ),
    "score demo --matrices spectra -o spectra.nc --revision step-200": (
        "score demo@step-200 --matrices spectra -o spectra.nc"
    ),
    "demo --out demo": "demo -o demo",
    "constants --format json": "constants --json",
    "constants --format bibtex": None,
    "constants tracy_widom_1_mean --format json": "constants tracy_widom_1_mean --json",
    "cite product_upper_edge --format apa": None,
    f"baseline {SMALL} --precision half": None,
    "baseline --plan wrong.toml": "baseline wrong.toml",
    f"baseline --plan plan.toml {SMALL}": f"baseline plan.toml {SMALL}",
    "baseline --plan none.toml": "baseline none.toml",
    f"baseline {SMALL} --processes 2": None,
    "score demo --baseline notes.txt": "score demo --null notes.txt",
    "score demo --baseline demo.nc": "score demo --null demo.nc",
    "score demo --baseline none.nc": "score demo --null none.nc",
    "score demo --null axes --baseline null.nc": None,
    "score demo --revision step-x": "score demo@step-x",
    "score demo -o same.nc --csv same.nc": "score demo -o same.nc -o same.nc",
    "depth demo --distance ks": None,
    "demo --out notes.txt": "demo -o notes.txt",
}
"""Commands that are spelled otherwise since 9a2bad0, and None for those that are gone."""

PROCESSES = frozenset(
    {"", "--version", "--help", GOOD[3 + len(COMMANDS)], "score demo --json", "--wat", "plot none.nc"}
)
"""Those run as processes; the others, to spare the time that imports take, by ``rmtbase.cli.main`` in this one."""


def collect(entries: Entries) -> None:
    """Run all commands, one after the other in one folder, so that later ones read what earlier ones wrote."""
    with tempfile.TemporaryDirectory(prefix="commands-") as folder:
        root = Path(folder)
        for name, text in FILES.items():
            (root / name).write_text(text)
        seen = _files(root)
        now = {} if _is_of_before() else NOW
        for command in (*GOOD, *WRONG):
            if (spelled := now.get(command, command)) is None:
                continue
            status, out, err = (_process if command in PROCESSES else _here)(spelled.split(), root)
            label = f"rmtbase {command}"
            entries.add(f"{label} [status]", status)
            entries.add(f"{label} [stdout]", _told(out, root))
            entries.add(f"{label} [stderr]", _told(err, root))
            files = _files(root)
            entries.add(f"{label} [files]", "\n".join(sorted(name for name in files if files[name] != seen.get(name))))
            for name in (name for name in files if files[name] != seen.get(name)):
                entries.take(f"{label} > {name}", lambda name=name: written.contents(root / name))
            entries.add(f"{label} [gone]", "\n".join(sorted(set(seen) - set(files))))
            seen = files


def _is_of_before() -> bool:
    """Return whether this installation has the options of 9a2bad0."""
    from typer.main import get_command

    from rmtbase.cli import _app

    score: Any = get_command(_app.app)
    return any(one.name == "report" for one in score.commands["score"].params)


def _process(arguments: list[str], folder: Path) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "rmtbase", *arguments]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return ran.returncode, ran.stdout, ran.stderr


def _here(arguments: list[str], folder: Path) -> tuple[int, str, str]:
    from rmtbase.cli import main

    out, err, status = io.StringIO(), io.StringIO(), 0
    os.chdir(folder)
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as left:
            status = int(left.code or 0)
    return status, out.getvalue(), err.getvalue()


def _files(root: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in root.rglob("*")
        if path.is_file()
    }


def _told(text: str, root: Path) -> str:
    """Replace the folders and the interpreter in what was printed, and remove signs of life."""
    places = {str(root): "FOLDER", os.environ["RMTBASE_CACHE"]: "CACHE", sys.executable: "PYTHON", sys.prefix: "PREFIX"}
    for place, word in places.items():
        text = text.replace(place, word)
    return _BEAT.sub("", text)
