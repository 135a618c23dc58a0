"""Plans of published tables can be run and hold the shapes that they say; the metadata of deposits invents nothing."""

import importlib.util
import json
import tomllib
from pathlib import Path

import make_metadata
import numpy as np
import pytest
import yaml
from make_metadata import ROOT, constants_metadata, every_file, parted

import rmtbase
from rmtbase import constants, nulls
from rmtbase.models import head_shape, known_models
from rmtbase.montecarlo import Inline, read_plan
from rmtbase.tables import open_table

SIMS = Path(__file__).parents[2] / "sims"
PLANS = sorted(SIMS.glob("*.toml"))


@pytest.fixture(scope="module")
def make_atlas():
    spec = importlib.util.spec_from_file_location("make_atlas", SIMS / "make_atlas.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def atlas_draws():
    plan = read_plan(SIMS / "atlas.toml")
    return {case.ensemble.dims[:2]: case.draws for case in plan.cases}


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_plan_is_sound_named_after_its_file_and_described(path):
    plan = read_plan(path)
    assert plan.name == path.stem
    assert plan.title
    assert plan.description
    assert f"[`{path.name}`]({path.name})" in (SIMS / "README.md").read_text(encoding="utf-8")


def test_the_atlas_holds_every_known_model_with_draws_enough(atlas_draws):
    models = [*known_models(), head_shape("demo")]
    assert {(model.d_model, model.d_head) for model in models} <= set(atlas_draws)
    for model in known_models():
        heads = min(model.n_layers * model.n_heads, 1024 if model.d_head <= 128 else 200)
        assert atlas_draws[model.d_model, model.d_head] >= 50 * heads, model
    for (_, d_head), draws in atlas_draws.items():
        assert draws >= (51_200 if d_head <= 128 else 10_240)


def test_the_heads_of_the_sources_are_all_there():
    plan = read_plan(SIMS / "heads-of-the-sources.toml")
    held = {case.ensemble.dims[:2] for case in plan.cases}
    sizes = ("70m", "160m", "410m", "1b", "1.4b", "2.8b", "6.9b", "12b")
    named = [
        *("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "llama-3.1-8b", "mistral-7b-v0.3", "llama-3-8b"),
        *(f"pythia-{size}" for size in sizes),
        *("olmo-1-7b", "olmo-2-7b", "mistral-7b-v0.1", "qwen2.5-7b", "qwen2.5-14b", "qwen3-8b"),
    ]
    assert {(shape.d_model, shape.d_head) for shape in map(head_shape, named)} <= held


PLAN = """
ensemble = "low_rank_product"
normalization = "none"
draws = 40
keep_sample = false

[[case]]
d_model = [12, 10]
d_head = 2

[[case]]
d_model = 8
d_head = 2
draws = 60
"""


def test_an_atlas_is_made_shape_by_shape_and_goes_on_where_it_stood(make_atlas, tmp_path, monkeypatch, capsys):
    plan, work, output = tmp_path / "plan.toml", tmp_path / "work", tmp_path / "made" / "atlas.nc"
    plan.write_text(PLAN)
    arguments = ["make_atlas.py", "--plan", str(plan), "--work", str(work), "--output", str(output)]
    monkeypatch.setattr("sys.argv", arguments)
    run_plan, runs = make_atlas.run_plan, []

    def stopped_at_the_third(one, *rest, **options):
        runs.append(one.name)
        if len(runs) == 3:
            raise KeyboardInterrupt
        return run_plan(one, *rest, **options)

    monkeypatch.setattr(make_atlas, "run_plan", stopped_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        make_atlas.main()
    assert not output.exists()
    make_atlas.main()
    assert runs == ["12x2", "10x2", "8x2", "8x2"]
    atlas = open_table(output, "atlas")
    np.testing.assert_array_equal(atlas["d_model"], [8, 10, 12])
    np.testing.assert_array_equal(atlas["draws"], [60, 40, 40])
    assert output.with_name("datacite.json").is_file()
    assert sorted(path.name for path in work.iterdir()) == ["atlas-10x2.nc", "atlas-12x2.nc", "atlas-8x2.nc"]
    first = output.read_bytes()
    make_atlas.main()
    assert len(runs) == 4
    assert output.read_bytes() == first
    assert "3 shapes" in capsys.readouterr().out


def test_a_shape_of_another_plan_is_made_again(make_atlas, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    (_, _, one) = make_atlas.single_shapes(read_plan(plan))
    make_atlas.compact_null(one, tmp_path, Inline())
    piece = tmp_path / "atlas-8x2.nc"
    assert make_atlas.finished(piece, one) is not None
    plan.write_text(PLAN.replace("draws = 60", "draws = 70"))
    (_, _, other) = make_atlas.single_shapes(read_plan(plan))
    assert make_atlas.finished(piece, other) is None
    piece.write_bytes(b"not a file of ours")
    assert make_atlas.finished(piece, one) is None


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
