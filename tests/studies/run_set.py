"""Run the command of the sources with few steps of training, few simulations and empty figures: to be killed."""

import sys
from types import SimpleNamespace

import numpy as np
from pytest import MonkeyPatch

from studies.sources import __main__ as entry
from studies.sources import course, random_heads, sets, training, training_figures, writing
from studies.sources.recipe import Result

STEPS = (1, 1000, 5000, 143000)


def shorten(patch: MonkeyPatch) -> None:
    """Take five steps of training, simulate less, prove no model, and write nothing into the files of figures."""
    revisions = tuple(f"step{step}" for step in (0, *STEPS))
    for module, name, value in (
        (course, "PYTHIA_REVISIONS", revisions),
        (sets, "PYTHIA_REVISIONS", revisions),
        (course, "PYTHIA_STEPS", STEPS),
        (training, "PYTHIA_STEPS", STEPS),
        (writing, "write_figure", _write_nothing),
        (training_figures, "references", _references),
        (training_figures, "DEPTHS", (1,)),
        (random_heads, "HEADS", (32, 32)),
    ):
        patch.setattr(module, name, value)
    patch.setenv("RMTBASE_PROOF", "0")
    null = SimpleNamespace(make=lambda run: Result())  # of matrices that need no model
    patch.setattr(entry, "recipe", lambda name, of=entry.recipe: null if name == "null" else of(name))


def _references(rows, columns, draws):
    drawn = np.random.default_rng(0).standard_normal((2, draws, rows, columns))
    values = np.linalg.svd(drawn, compute_uv=False)
    return values / np.sqrt((values**2).mean(axis=-1, keepdims=True))


def _write_nothing(figure, folder):
    name = f"{figure.name}.png"
    (folder / name).touch()
    return name


if __name__ == "__main__":
    shorten(MonkeyPatch())
    sys.exit(entry.main(sys.argv[1:]))
