"""Small tables and scores files to write, open and damage."""

import pytest
import xarray as xr

import rmtbase
from rmtbase.tables import write_table


@pytest.fixture(scope="session")
def small_table() -> xr.Dataset:
    """Two shapes at two σ, few draws; not to be changed in place."""
    return rmtbase.baseline([16, 12], [4, 3], [1.0, (0.5, 0.25)], draws=30)


@pytest.fixture
def table(small_table) -> xr.Dataset:
    """The small table, to be changed at will."""
    return small_table.copy(deep=True)


@pytest.fixture
def table_file(table, tmp_path):
    """The small table in a file."""
    return write_table(table, tmp_path / "table.nc")


@pytest.fixture
def scores(model_folder) -> xr.DataTree:
    """The scores of the small model."""
    return rmtbase.score(model_folder, draws=400, matrices="spectra")
