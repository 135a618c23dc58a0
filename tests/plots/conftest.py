import pytest
from scored_model import D_HEAD, D_MODEL, write_checkpoint

import rmtbase
from rmtbase.nulls import Axes, Table
from rmtbase.results.trajectory._along_steps import StepName, joined, one_step


@pytest.fixture(scope="session")
def baseline():
    return rmtbase.baseline([D_MODEL, 24], [D_HEAD, 6], [1.0, (0.5, 0.02)], draws=2000)


@pytest.fixture(scope="session")
def scores(tmp_path_factory, baseline):
    """Scores of a model by whether it learned something."""
    folder = tmp_path_factory.mktemp("models")
    return {
        name: rmtbase.score(write_checkpoint(folder / name, name == "learned"), Table(baseline))
        for name in ("random", "learned")
    }


@pytest.fixture(scope="session")
def learned(scores):
    return scores["learned"]


@pytest.fixture(scope="session")
def analytic(tmp_path_factory):
    """The scores of the same models against the analytic null."""
    folder = tmp_path_factory.mktemp("models")
    return {
        name: rmtbase.score(write_checkpoint(folder / name, name == "learned"), "analytic")
        for name in ("random", "learned")
    }


@pytest.fixture(scope="session")
def resampled(tmp_path_factory):
    """Scores of the learned model against its heads, rotated at random."""
    folder = write_checkpoint(tmp_path_factory.mktemp("models") / "learned", learned=True)
    return rmtbase.score(folder, Axes(draws=499))


@pytest.fixture(scope="session")
def with_elements(tmp_path_factory):
    """Scores of both models with the elements of every head, against the analytic null."""
    folder = tmp_path_factory.mktemp("models")
    return {
        name: rmtbase.score(write_checkpoint(folder / name, name == "learned"), "analytic", elements="heads")
        for name in ("random", "learned")
    }


@pytest.fixture(scope="session")
def training(with_elements):
    """A trajectory that is random at steps 0 and 10, and has learned something at step 200."""
    at = {0: "random", 10: "random", 200: "learned"}
    return joined(
        [one_step({"gaussian": with_elements[name]}, StepName(step, f"step{step}", name)) for step, name in at.items()]
    )
