"""The metadata of deposits says what its sources say, and invents no DOI."""

import json
import tomllib

import make_metadata
import pytest
import yaml
from make_metadata import ROOT, constants_metadata, every_file, parted

import rmtbase
from rmtbase import constants, nulls
from rmtbase.tables import open_table

FILES = sorted(every_file(), key=str)


def test_no_file_has_parted_from_its_source_and_one_that_parts_is_named(tmp_path, monkeypatch):
    assert parted() == []
    path = tmp_path / "one.json"
    path.write_text("old", encoding="utf-8")
    monkeypatch.setattr(make_metadata, "ROOT", tmp_path)
    monkeypatch.setattr(make_metadata, "every_file", lambda: {path: "new", tmp_path / "lost.json": "x"})
    assert make_metadata.parted() == ["one.json", "lost.json"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_doi_of_our_own_is_invented(path):
    record = json.loads(path.read_text(encoding="utf-8"))
    assert not {"doi", "identifiers", "id", "prefix", "suffix", "conceptdoi"} & set(record)


def test_software_has_one_version_name_and_licence_in_all_files():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    zenodo = json.loads((ROOT / ".zenodo.json").read_text(encoding="utf-8"))
    assert citation["version"] == project["version"] == zenodo["version"]
    assert citation["license"] == project["license"] == zenodo["license"]
    assert [one["name"] for one in citation["authors"]] == [one["name"] for one in zenodo["creators"]]
    assert [one["name"] for one in citation["authors"]] == [one["name"] for one in project["authors"]]
    assert (citation["title"], citation["keywords"]) == (zenodo["title"], zenodo["keywords"])
    assert " ".join(citation["abstract"].split()) == zenodo["description"]
    assert rmtbase.__version__.startswith(project["version"])


def test_constants_and_atlas_are_counted_dated_digested_and_described():
    v1 = constants.sets()["v1"]
    record = json.loads((ROOT / "src/rmtbase/constants/v1.datacite.json").read_text(encoding="utf-8"))
    (description,) = record["descriptions"]
    assert f"{len(v1.constants())} constants" in description["description"]
    assert f"and {len(v1.functions())} functions" in description["description"]
    assert f"{sum(one.enclosure is not None for one in v1.constants())} of them" in description["description"]
    assert v1.sha256 in description["description"]
    assert record["dates"] == [{"date": v1.date, "dateType": "Issued"}]
    assert constants_metadata(v1)["version"] == record["version"] == "v1"
    record = json.loads(nulls.atlas_path().with_name("datacite.json").read_text(encoding="utf-8"))
    assert record["version"] == open_table(nulls.atlas_path(), "atlas").attrs["version"]
