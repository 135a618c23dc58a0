"""Small tables and scores files to write, open and damage."""

import shutil
from pathlib import Path

import pytest
import xarray as xr

import rmtbase
from rmtbase.nulls import Gaussian
from rmtbase.results import open_table
from rmtbase.tables import KINDS, write_table

DATA = Path(__file__).parents[1] / "data"
STORED = {kind: DATA / f"{kind}.nc" for kind in KINDS}
"""A file of each kind."""


@pytest.fixture(scope="session")
def small_table() -> xr.Dataset:
    """Two shapes at two σ, few draws; not to be changed in place."""
    return rmtbase.baseline([16, 12], [4, 3], [1.0, (0.5, 0.25)], draws=30)


@pytest.fixture
def table(small_table) -> xr.Dataset:
    return small_table.copy(deep=True)


@pytest.fixture
def table_file(table, tmp_path):
    return write_table(table, tmp_path / "table.nc")


@pytest.fixture
def scores(model_folder) -> xr.DataTree:
    return rmtbase.score(model_folder, Gaussian(draws=400), matrices="spectra", elements="heads")


@pytest.fixture(scope="session")
def stored_tables() -> dict[str, xr.Dataset | xr.DataTree]:
    """A table of each kind, not to be changed in place."""
    return {kind: open_table(path, kind) for kind, path in STORED.items()}


@pytest.fixture
def a_table(request, stored_tables):
    return stored_tables[request.param].copy(deep=True)


@pytest.fixture
def stored_file(tmp_path):
    return lambda kind: Path(shutil.copy(STORED[kind], tmp_path / f"{kind}.nc"))
