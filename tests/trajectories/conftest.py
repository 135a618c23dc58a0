"""A small training run, of a shape that the atlas has: folders of checkpoints whose weights move away."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import rmtbase
from rmtbase.results.trajectory import _checkpoint_scores
from telling import Told

STEPS = (0, 10, 20, 40)


@pytest.fixture(scope="session")
def write_step(make_weights) -> Callable[[Path, int], Path]:
    """Write the checkpoint of a step: noise, and from step 20 on one direction that all heads share."""

    def write(folder: Path, step: int, n_heads: int = 4) -> Path:
        rng = np.random.default_rng(6)
        queries, keys = 0.05 * rng.standard_normal((2, n_heads, 16, 128)), 0.05 * rng.standard_normal((2, 2, 16, 128))
        shared = rng.standard_normal(128) * max(0, step - 10) / 40
        moved = 0.05 * np.random.default_rng(step).standard_normal(128) * (step > 0)
        return make_weights(queries + shared + 0.1 * moved, keys + shared).save(folder / f"step-{step}")

    return write


@pytest.fixture(scope="session")
def whole_run(write_step, tmp_path_factory) -> Path:
    """The folder of such a run, not to be changed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    for step in STEPS:
        write_step(folder, step)
    return folder


@pytest.fixture(scope="session")
def made(whole_run, tmp_path_factory) -> tuple[xr.DataTree, Path, Told]:
    """Its trajectory, not to be changed, the file of it, and what was told meanwhile."""
    path, told = tmp_path_factory.mktemp("made") / "traj.nc", Told()
    return rmtbase.trajectory(whole_run, output=path, progress=told, circuits=("qk", "query")), path, told


@pytest.fixture(scope="session")
def tree(made) -> xr.DataTree:
    return made[0]


@pytest.fixture
def run_folder(whole_run, tmp_path) -> Path:
    """A copy of the run, to be changed at will."""
    return Path(shutil.copytree(whole_run, tmp_path / "run"))


@pytest.fixture
def scored(monkeypatch):
    """The revisions that are scored, as they are."""
    seen, score = [], _checkpoint_scores.score
    monkeypatch.setattr(
        _checkpoint_scores,
        "score",
        lambda model, *args, **more: seen.append(model.revision) or score(model, *args, **more),
    )
    return seen


@pytest.fixture
def killed_as_it_writes(monkeypatch):
    """Score checkpoints in a run that is stopped before the file of the trajectory is written."""

    def run(*arguments, **options):
        def stop(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) as stopped:
            patch.setattr("rmtbase.results.trajectory.measure.joined", stop)
            rmtbase.trajectory(*arguments, **options)
        return stopped.value

    return run
