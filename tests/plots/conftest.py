import pytest
from scored_model import D_HEAD, D_MODEL, write_checkpoint

import rmtbase
from rmtbase.nulls import Axes, Table
from rmtbase.results.trajectory._along_steps import StepName, joined, one_step


@pytest.fixture(scope="session")
def baseline():
    return rmtbase.baseline([D_MODEL, 24], [D_HEAD, 6], [1.0, (0.5, 0.02)], draws=2000)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Checkpoints of a model by whether it learned something."""
    folder = tmp_path_factory.mktemp("models")
    return {name: write_checkpoint(folder / name, name == "learned") for name in ("random", "learned")}


@pytest.fixture(scope="session")
def scores(folders, baseline):
    return {name: rmtbase.score(folder, Table(baseline)) for name, folder in folders.items()}


@pytest.fixture(scope="session")
def learned(scores):
    return scores["learned"]


@pytest.fixture(scope="session")
def with_elements(folders):
    """Scores of both models with the elements of every head, against the analytic null."""
    return {name: rmtbase.score(folder, "analytic", elements="heads") for name, folder in folders.items()}


@pytest.fixture(scope="session")
def analytic(with_elements):
    """The same without the elements of heads."""
    made = {}
    for name, tree in with_elements.items():
        made[name] = tree.copy()
        del made[name]["heads"]["elements"]
    return made


@pytest.fixture(scope="session")
def resampled(folders):
    """Scores of the learned model against its heads, rotated at random."""
    return rmtbase.score(folders["learned"], Axes(draws=499))


@pytest.fixture(scope="session")
def training(with_elements):
    """A trajectory that is random at steps 0 and 10, and has learned something at step 200."""
    at = {0: "random", 10: "random", 200: "learned"}
    return joined(
        [one_step({"gaussian": with_elements[name]}, StepName(step, f"step{step}", name)) for step, name in at.items()]
    )
