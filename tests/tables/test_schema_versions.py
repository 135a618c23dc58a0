"""Files of every kind and schema version that was ever written open with their numbers; later ones are refused."""

import json
import shutil
import sys
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest

import rmtbase
from rmtbase.errors import TableError
from rmtbase.report import render
from rmtbase.scoring import summarize_scores
from rmtbase.tables import KINDS, SCHEMA_VERSION, TableWarning, null_method, open_baseline, open_scores, open_table
from telling import Told

DATA = Path(__file__).parents[1] / "data"
sys.path.insert(0, str(DATA))  # the numbers of its files are counted there

from table_files import numbers  # noqa: E402

FILES = sorted(DATA.glob("*-schema-*.nc"))
NUMBERS = json.loads((DATA / "numbers.json").read_text(encoding="utf-8"))
"""Of each file, for each group: how many finite floats it holds, and their sum."""

FIRST = {
    "baseline": "1.0",
    "scores": "1.0",
    **dict.fromkeys(("spectra", "elements", "effective_depth", "atlas"), "1.1"),
    **dict.fromkeys(("trajectory", "comparison", "signal", "changes", "composition"), "1.5"),
}
"""The schema version in which each kind was written first."""

LATER = ("1.6", "1.10", "2.0", "99")


def schema(path: Path) -> tuple[str, str]:
    """Kind and version, as a file of ``tests/data`` is named."""
    kind, _, version = path.stem.partition("-schema-")
    return kind, version


def test_every_kind_has_a_file_of_every_version_since_its_first():
    assert set(FIRST) == set(KINDS)
    major, newest = map(int, SCHEMA_VERSION.split("."))
    assert major == 1
    wanted = {(kind, f"1.{minor}") for kind, first in FIRST.items() for minor in range(int(first[2:]), newest + 1)}
    assert {schema(path) for path in FILES} == wanted
    assert set(NUMBERS) == {path.name for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_opens_with_its_numbers_and_with_a_note_where_damage_cannot_be_told(path):
    kind, version = schema(path)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        table = open_table(path, kind)
    assert (table.attrs["kind"], table.attrs["schema_version"]) == (kind, version)
    assert numbers(table) == NUMBERS[path.name]
    expected = [f"has no digest (schema {version})"] if version in ("1.0", "1.1") else []
    assert [note.category for note in notes] == [TableWarning] * len(expected)
    assert all(said in str(note.message) for said, note in zip(expected, notes, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_file_of_a_later_schema_is_refused_by_name(kind, tmp_path):
    path = Path(shutil.copy(DATA / f"{kind}-schema-{SCHEMA_VERSION}.nc", tmp_path / "later.nc"))
    for version in LATER:
        with h5py.File(path, "r+") as file:
            file.attrs["schema_version"] = version
        with pytest.raises(TableError) as caught:
            open_table(path, kind)
        said = str(caught.value)
        assert str(path) in said
        assert f"schema version {version}, later than this version of rmtbase reads" in said
        assert f"schema {SCHEMA_VERSION} or earlier; update rmtbase" in said


def test_file_of_a_kind_that_came_later_is_refused_for_its_version(tmp_path):
    path = Path(shutil.copy(DATA / f"baseline-schema-{SCHEMA_VERSION}.nc", tmp_path / "later.nc"))
    with h5py.File(path, "r+") as file:
        file.attrs.update(schema_version="2.0", kind="a kind of tomorrow")
    with pytest.raises(TableError, match=r"schema version 2\.0, later than"):
        open_table(path)


def test_baseline_of_schema_1_0_is_read():
    with pytest.warns(TableWarning, match="no digest"):
        table = open_baseline(DATA / "baseline-schema-1.0.nc")
    assert table.attrs["schema_version"] == "1.0"
    assert table["d_model"].values.tolist() == [12, 12]
    assert table["sigma_k"].values.tolist() == [1.0, 0.25]
    np.testing.assert_allclose(table["mean"].sel(statistic="trace"), [33.82746863, 0.5285542], rtol=1e-7)


def test_baseline_of_schema_1_0_serves_as_null():
    notes = Told()
    w_q, w_k = np.random.default_rng(0).standard_normal((2, 2, 3, 12))
    with pytest.warns(TableWarning, match="no digest"):
        scores = rmtbase.score_heads(w_q, w_k, baseline=DATA / "baseline-schema-1.0.nc", progress=notes)
    assert np.isfinite(scores["heads"]["z_score"]).all()
    assert notes[0].startswith("null of (12, 3): 6 draws from ")


def test_scores_of_schema_1_0_are_read():
    with pytest.warns(TableWarning, match="no digest"):
        tree = open_scores(DATA / "scores-schema-1.0.nc")
    assert tree.attrs["schema_version"] == "1.0"
    assert tree["heads"]["p_value"].sel(statistic="trace").shape == (2, 4)
    assert tree["heads"]["z_score"].values[0, 0, 0] == pytest.approx(-0.27162619, rel=1e-6)
    assert summarize_scores(tree).n_heads == 8
    assert null_method(tree.attrs) == "simulated"
    assert "never below 2 / (100 + 1)" in render(tree)
