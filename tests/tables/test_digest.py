"""Every file that is written carries a digest of all its content, and what does not fit it is never read."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

from exhaustive import mostly_exhaustive
from rmtbase.errors import ParameterError, RmtbaseError, TableError
from rmtbase.results import open_table
from rmtbase.tables import KINDS, open_atlas_case, with_checksums, write_table

FLIPS = 10
EVERY_KIND = pytest.mark.parametrize("a_table", KINDS, indirect=True)


@EVERY_KIND
def test_what_was_written_comes_back_without_a_word(a_table, tmp_path):
    assert open_table(write_table(a_table, tmp_path / "table.nc"), a_table.attrs["kind"]).identical(a_table)


@pytest.mark.parametrize("a_table", mostly_exhaustive(KINDS, always={"baseline", "scores", "atlas"}), indirect=True)
def test_flipped_byte_is_seen_or_changes_nothing(a_table, tmp_path):
    whole = write_table(a_table, tmp_path / "table.nc").read_bytes()
    rng = np.random.default_rng(list(KINDS).index(a_table.attrs["kind"]))
    seen = 0
    for place in rng.integers(len(whole), size=FLIPS):
        damaged = bytearray(whole)
        damaged[place] ^= rng.integers(1, 256)
        (tmp_path / "damaged.nc").write_bytes(damaged)
        try:
            found = open_table(tmp_path / "damaged.nc", a_table.attrs["kind"])
        except RmtbaseError:
            seen += 1
            continue
        assert found.identical(a_table), f"byte {place}"
    assert seen > 0  # much of so small a file is room that HDF5 keeps free


@pytest.mark.parametrize(
    ("kind", "group", "name"),
    [
        ("baseline", "/", "mean"),
        ("spectra", "/", "eigenvalue_quantile"),
        ("elements", "/", "bin_edge"),
        ("scores", "/heads", "observed"),
        ("effective_depth", "/", "singular_value"),
        ("composition", "/", "effective_rank_written"),
        ("atlas", "/", "distance_center"),
    ],
)
def test_changed_number_is_named(kind, group, name, stored_tables, tmp_path):
    path = write_table(stored_tables[kind], tmp_path / "table.nc")
    with netCDF4.Dataset(path, "a") as file:
        variable = (file if group == "/" else file[group])[name]
        variable[..., 0] = variable[..., 0] * (1.0 + 1e-15)
    said = rf"variable '{group.rstrip('/')}/{name}' that does not fit its digest.*write_table"
    with pytest.raises(TableError, match=said):
        open_table(path, kind)


@pytest.fixture
def scores_file(stored_tables, tmp_path):
    return write_table(stored_tables["scores"], tmp_path / "scores.nc")


CHANGES = {
    "an attribute": (lambda file: file.setncattr("title", "another"), "attributes that do not fit the digest"),
    "of a group": (lambda file: file["/heads"].setncattr("title", "another"), "attributes that do not fit the digest"),
    "a variable": (lambda file: file["/heads"].createVariable("more", "f8", ("layer",)), "variables that do not fit"),
    "no digest": (lambda file: file.delncattr("sha256"), "digest"),
    "no digests of variables": (lambda file: file.delncattr("sha256_of_variables"), "digest"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_of_what_is_no_number_is_seen(name, scores_file):
    change, words = CHANGES[name]
    with netCDF4.Dataset(scores_file, "a") as file:
        change(file)
    with pytest.raises(TableError, match=words):
        open_table(scores_file, "scores")


@pytest.mark.parametrize("kind", ["baseline", "atlas"])
def test_copy_stored_otherwise_has_the_same_digest(kind, stored_tables, tmp_path):
    path = write_table(stored_tables[kind], tmp_path / "table.nc")
    with xr.load_dataset(path) as table:
        encoding = {
            name: {"dtype": variable.dtype.newbyteorder(">"), "zlib": False, "fletcher32": False, "contiguous": True}
            for name, variable in table.drop_encoding().variables.items()
            if variable.dtype.kind in "fi"
        }
        texts = (name for name, variable in table.variables.items() if variable.dtype.kind not in "fi")
        encoding |= {name: {"dtype": "S1", "zlib": True, "char_dim_name": f"{name}_letter"} for name in texts}
        table.drop_encoding().to_netcdf(tmp_path / "copy.nc", encoding=encoding, engine="netcdf4")
    copy = open_table(tmp_path / "copy.nc", kind)
    assert copy.identical(stored_tables[kind])
    assert copy["mean"].dtype.isnative


def test_texts_stored_as_another_kind_of_attribute_have_the_same_digest(scores_file, stored_tables):
    with netCDF4.Dataset(scores_file, "a") as file:
        file.setncattr_string("model", file.getncattr("model"))
    assert open_table(scores_file, "scores").attrs["model"] == stored_tables["scores"].attrs["model"]


def test_table_saved_by_other_software_is_refused_until_it_is_written_on_purpose(table_file, tmp_path):
    opened = open_table(table_file, "baseline")
    assert not [name for name in opened.attrs if name.startswith("sha256")]
    part = opened.isel(case=[0])
    fixed = {name: {"dtype": "S1"} for name, variable in part.variables.items() if variable.dtype.kind in "OU"}
    part.to_netcdf(tmp_path / "part.nc", engine="netcdf4", encoding=fixed)
    with pytest.raises(TableError, match=r"part\.nc: found no digest.*write_table"):
        open_table(tmp_path / "part.nc", "baseline")
    part.to_netcdf(tmp_path / "part.nc", engine="netcdf4")
    with pytest.raises(TableError, match=r"texts of variable length; expected texts of a fixed width.*write_table"):
        open_table(tmp_path / "part.nc", "baseline")
    with xr.load_dataset(tmp_path / "part.nc") as again:
        assert open_table(write_table(again, tmp_path / "part.nc"), "baseline").identical(part)
    with xr.load_dataset(table_file) as changed:
        changed.assign_attrs(title="my own").to_netcdf(tmp_path / "changed.nc", engine="netcdf4")
    with pytest.raises(TableError, match=r"do not fit the digest.*write it with rmtbase\.tables\.write_table"):
        open_table(tmp_path / "changed.nc", "baseline")


def test_writing_twice_gives_the_same_bytes_with_checksums_and_leaves_the_table_as_it_is(table, table_file, tmp_path):
    with netCDF4.Dataset(table_file) as file:
        numbers = [one for one in file.variables.values() if one.ndim and one.dtype != "S1"]
        assert numbers and all(one.filters()["fletcher32"] for one in numbers)
    with xr.load_dataset(table_file) as read:  # with its encoding, and another file's digest
        before, encoding = read.copy(deep=True), dict(read["sample"].encoding)
        write_table(read, tmp_path / "again.nc")
        assert read.identical(before) and read["sample"].encoding == encoding
    first, second = (write_table(table, tmp_path / f"{number}.nc").read_bytes() for number in (1, 2))
    assert first == second


@pytest.mark.parametrize("attribute", [[1, 2], ["a", "b"], np.zeros((2, 2))])
def test_what_could_not_be_read_again_is_not_written(attribute, table, tmp_path):
    with pytest.raises(ParameterError, match=r"'odd'.*one text or number"):
        write_table(table.assign_attrs(odd=attribute), tmp_path / "table.nc")
    with pytest.raises(ParameterError, match="numbers or text"):
        write_table(table.assign(odd=("case", [True] * table.sizes["case"])), tmp_path / "table.nc")
    assert not list(tmp_path.iterdir())


def test_table_of_constants_can_be_read_again(tmp_path, stored_tables):
    # So much of it is the same that compressed it would look like a file made to fill the memory.
    table = stored_tables["spectra"].drop_dims("draw").assign(zeros=(("case", "many"), np.zeros((1, 9_500_000))))
    opened = open_table(write_table(table, tmp_path / "table.nc"))
    assert not opened["zeros"].any()


@pytest.mark.parametrize("damage", ["title", "d_model", "quantile", "checksum"])
def test_case_of_a_damaged_atlas_is_not_read(damage, stored_tables, tmp_path):
    atlas = with_checksums(stored_tables["atlas"])
    path = write_table(atlas, tmp_path / "atlas.nc")
    with netCDF4.Dataset(path, "a") as file:
        if damage == "title":
            file.setncattr("title", "another")
        else:
            file[damage][..., 0] = file[damage][..., 0] + 1
    with pytest.raises(TableError):
        open_atlas_case(path, 12, 4)
