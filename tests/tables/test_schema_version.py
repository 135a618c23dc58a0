"""A file of every kind opens with its numbers; files of another schema version, or without a digest, are refused."""

import json
import re
import sys
import warnings
from pathlib import Path

import h5py
import pytest

from rmtbase.errors import TableError
from rmtbase.results import open_table
from rmtbase.tables import KINDS, SCHEMA_VERSION, open_atlas_case

DATA = Path(__file__).parents[1] / "data"
sys.path.insert(0, str(DATA))  # the numbers of its files are counted there

from table_files import numbers  # noqa: E402

FILES = sorted(DATA.glob("*.nc"))
NUMBERS = json.loads((DATA / "numbers.json").read_text(encoding="utf-8"))
"""Of each file, for each group: how many finite floats it holds, and their sum."""

OTHERS = ("0.9", "1.0", "1.5", "1.10", "2", "1.x", "")


def test_every_kind_has_a_file_with_its_numbers():
    assert {path.stem.partition("-")[0] for path in FILES} == set(KINDS)
    assert set(NUMBERS) == {path.name for path in FILES}
    assert SCHEMA_VERSION == "1"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_opens_with_its_numbers_and_without_a_word(path):
    kind = path.stem.partition("-")[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = open_table(path, kind)
    assert (table.attrs["kind"], table.attrs["schema_version"]) == (kind, SCHEMA_VERSION)
    assert numbers(table) == NUMBERS[path.name]


@pytest.mark.parametrize("kind", KINDS)
def test_file_of_another_schema_version_is_refused_by_name(kind, stored_file):
    path = stored_file(kind)
    for version in OTHERS:
        with h5py.File(path, "r+") as file:
            file.attrs["schema_version"] = version
        said = f"{path}: found schema version {version}, written by rmtbase"
        with pytest.raises(TableError, match=re.escape(said) + ".* expected schema version 1, the only one"):
            open_table(path, kind)


def test_version_is_told_before_anything_else_that_an_earlier_file_has_otherwise(stored_file):
    path = stored_file("atlas")
    with h5py.File(path, "r+") as file:
        file.attrs.update(schema_version="1.5", kind="another kind")
        file.create_dataset("names", data=["of", "variable", "length"], dtype=h5py.string_dtype())
    for opened in (lambda: open_table(path), lambda: open_atlas_case(path, 12, 4)):
        with pytest.raises(TableError, match=r"schema version 1\.5"):
            opened()
