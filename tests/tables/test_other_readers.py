"""Other programs read the files: texts are of fixed width, for netCDF-C crashes on many of variable length."""

import subprocess
import sys

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase.results import open_table
from rmtbase.tables import KINDS, write_table

OPENS = 300
EVERY_KIND = pytest.mark.parametrize("a_table", KINDS, indirect=True)


def texts_of_variable_length(path):
    """Every variable and attribute of the file whose text HDF5 keeps in a heap."""
    found = []

    def look(name, one):
        if isinstance(one, h5py.Dataset) and h5py.check_string_dtype(one.dtype) and one.dtype.kind == "O":
            found.append(name)
        for key in one.attrs:
            kind = one.attrs.get_id(key).get_type()
            if isinstance(kind, h5py.h5t.TypeStringID) and kind.is_variable_str():
                found.append(f"{name}@{key}")

    with h5py.File(path) as file:
        look("/", file)
        file.visititems(look)
    return found


@EVERY_KIND
@pytest.mark.parametrize("engine", mostly_exhaustive(["netcdf4", "h5netcdf"], always=1))
def test_xarray_reads_what_rmtbase_reads_and_no_text_is_of_variable_length(engine, a_table, tmp_path):
    a_table.attrs["notes"] = '["Größe σ², 大きさ"]'
    path = write_table(a_table, tmp_path / "table.nc")
    assert texts_of_variable_length(path) == []
    opened = xr.open_datatree(path, engine=engine, group="/")
    with opened as plain:
        for node in opened.subtree:
            ours = a_table[node.path].to_dataset() if isinstance(a_table, xr.DataTree) else a_table
            theirs = node.to_dataset()
            assert set(theirs.variables) == set(ours.variables)
            for name, variable in ours.variables.items():
                np.testing.assert_array_equal(theirs[name].values, variable.values)
                assert theirs[name].attrs == variable.attrs
        assert plain.attrs["provenance"] == a_table.attrs["provenance"]


@pytest.mark.parametrize("text", ["", "σ²", "a" * 5000, "two\nlines", " padded "])
def test_any_text_comes_back(text, table, tmp_path):
    names = np.array([text, *map(str, range(table.sizes["case"] - 1))], dtype=object)
    table = table.assign(words=("case", names), word=((), text), none=(("nothing",), np.zeros(0, dtype=object)))
    table.attrs["title"] = table["mean"].attrs["comment"] = text
    opened = open_table(write_table(table, tmp_path / "table.nc"), "baseline")
    assert (opened["words"].values.tolist(), opened["word"].item()) == (names.tolist(), text)
    assert opened.attrs["title"] == opened["mean"].attrs["comment"] == text
    with netCDF4.Dataset(tmp_path / "table.nc") as plain:
        assert plain["words"][:].tolist() == names.tolist()


@pytest.mark.exhaustive
def test_hundreds_of_opens_without_closing_survive(tmp_path):
    path = write_table(rmtbase.score("demo", "analytic"), tmp_path / "scores.nc")
    code = f"""
import sys, netCDF4, xarray
def read(group):
    for variable in group.variables.values():
        variable[...]
    for inner in group.groups.values():
        read(inner)
for _ in range({OPENS}):
    xarray.open_datatree(sys.argv[1], engine='netcdf4')
for _ in range({OPENS}):
    read(netCDF4.Dataset(sys.argv[1]))
print('survived')
"""
    ended = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "survived\n"), ended.stderr[-2000:]
