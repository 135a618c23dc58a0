"""A table and a null to give to commands."""

import pytest

import rmtbase
from rmtbase.tables import write_table

SHAPE = ("--d-model", 32, "--d-head", 8)


@pytest.fixture(autouse=True)
def folder_of_its_own(tmp_path_factory, monkeypatch):
    """Where a test's commands run: one that should fail and does not writes nothing into the repository."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))


@pytest.fixture
def shape():
    """The options of the small shape."""
    return SHAPE


@pytest.fixture(scope="session")
def null_file(tmp_path_factory):
    """The small shape's baseline table in a file."""
    table = rmtbase.baseline(32, 8, draws=200)
    return write_table(table, tmp_path_factory.mktemp("null") / "null.nc")
