"""The gallery: a file of every kind that has figures, made here by the command shown, and its standard figures."""

from __future__ import annotations

import contextlib
import io
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from matplotlib import pyplot as plt

from _generate import FOLDER, write_page
from rmtbase.cli._app import run
from rmtbase.results import open_table, register_all
from rmtbase.results.figures import figure_names, figures
from rmtbase.tables import KINDS

register_all()

_IMAGES = FOLDER / "gallery"
_DOTS_PER_INCH = 80
_PATHS = """name = "paths"
title = "Products of residual blocks"
ensemble = "residual_path"
draws = 100
seed = 0

[[case]]
d_model = 64
depth = [1, 4, 16]
sigma = [0.3]
part = ["path"]
"""
_ELEMENTS = """name = "elements"
title = "Elements of W_QK"
ensemble = "low_rank_product"
measure = "elements"
draws = 50
seed = 0

[[case]]
d_model = 128
d_head = [4, 64]
"""
_PLANS = {"paths.toml": _PATHS, "elements.toml": _ELEMENTS}
_FILES = {
    "baseline": "rmtbase baseline --d-model 768 --d-head 64 --draws 1000 -o baseline.nc",
    "scores": "rmtbase score demo -o scores.nc",
    "trajectory": "rmtbase trajectory demo -o trajectory.nc",
    "signal": "rmtbase signal demo@step-200 --circuits qk,ov -o signal.nc",
    "composition": "rmtbase composition demo -o composition.nc",
    "changes": "rmtbase diff demo@step-200 demo@final -o changes.nc",
    "effective_depth": "rmtbase depth demo --component attention_output --max-depth 4 -o effective_depth.nc",
    "comparison": "rmtbase compare scores.nc earlier.nc -o comparison.nc",
    "spectra": "rmtbase baseline paths.toml -o spectra.nc",
    "elements": "rmtbase baseline elements.toml -o elements.nc",
}
_BEFORE = {"comparison": "rmtbase score demo@step-1000 -o earlier.nc"}
_NONE = {"atlas"}  # kinds without figures

_INTRODUCTION = """# Gallery

A file of every kind, made by the command that is shown, and the figures that `rmtbase plot FILE -o figures` draws of it
unasked. `--only NAME` draws one, `--theme dark` or `print` and `--style` set the colours, and
`rmtbase.results.figures.figures` gives them to a notebook. Choose a figure to see it in its own size."""


def write_gallery() -> None:
    """Draw what is not there yet, and write the page; without its folder everything is drawn again."""
    assert {*_FILES} == {*KINDS} - _NONE, "a kind of file has no place in the gallery"
    if _IMAGES.exists():
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, text in _PLANS.items():
            Path(name).write_text(text, encoding="utf-8")
        drawn = Path("images")
        drawn.mkdir()
        parts = [_INTRODUCTION, *(part for kind in _FILES for part in _kind(kind, drawn))]
        write_page("gallery.md", "\n\n".join(parts) + "\n")
        shutil.move(drawn, _IMAGES)


def _kind(kind: str, drawn: Path) -> Iterator[str]:
    commands = [_BEFORE[kind], _FILES[kind]] if kind in _BEFORE else [_FILES[kind]]
    for command in commands:
        _run(command)
    yield f"## {kind}"
    if kind in _BEFORE or "toml" in commands[0]:
        yield from (f"```toml\n# {name}\n{text}```" for name, text in _PLANS.items() if name in commands[0])
    yield "```\n" + "\n".join(commands) + "\n```"
    table = open_table(f"{kind}.nc")
    for name, figure in figures(table).items():
        file = f"{kind}-{name}.png"
        figure.savefig(drawn / file, dpi=_DOTS_PER_INCH)
        plt.close(figure)
        yield f"`{name}`\n\n[![{kind}: {name}](gallery/{file})](gallery/{file})"
    more = [name for name, standard in figure_names(table).items() if not standard]
    if more:
        yield f"On request, by `--only`: {', '.join(f'`{name}`' for name in more)}."


def _run(command: str) -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = run(["--quiet", *shlex.split(command)[1:]])
    if status:
        raise RuntimeError(f"{command}: status {status}: {said.getvalue()}")
