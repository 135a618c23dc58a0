"""A table and a null to give to commands."""

import pytest

import rmtbase
from rmtbase.models import Difference, Model
from rmtbase.montecarlo import _cache, _compute
from rmtbase.results import figures
from rmtbase.results.comparison import measure
from rmtbase.tables import write_table

SHAPE = ("--d-model", 32, "--d-head", 8)


@pytest.fixture(autouse=True)
def folder_of_its_own(tmp_path_factory, monkeypatch):
    """Where a test's commands run: one that should fail and does not writes nothing into the repository."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))


@pytest.fixture
def shape():
    return SHAPE


@pytest.fixture(scope="session")
def null_file(tmp_path_factory):
    table = rmtbase.baseline(32, 8, draws=200)
    return write_table(table, tmp_path_factory.mktemp("null") / "null.nc")


@pytest.fixture
def no_work(monkeypatch):
    """Work that fails the test: reading a matrix, proving, drawing, comparing."""

    def work(*arguments, **keywords):
        pytest.fail("work before everything was judged")

    for model in (Model, Difference):
        for name in {"matrix", "stored_matrix", "blocks", "prove"} & set(vars(model)):
            monkeypatch.setattr(model, name, work)
    for owner, names in (
        (_cache.CachedTable, ["make"]),
        (_compute, ["compute_chunk"]),
        (figures, ["draw_figures"]),
        (measure, ["fitted_matrices", "common_origin", "compare_two", "grouped_tables"]),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, work)
