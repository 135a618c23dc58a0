"""The sources made again: every place once, what is said to be done is there, and its numbers are those of today."""

import json
import os
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rmtbase import laws
from rmtbase.errors import ParameterError, TableError
from rmtbase.models import open_model
from studies.sources import __main__ as entry
from studies.sources import course, cross, first, null, writing
from studies.sources.__main__ import HERE, RECIPES, folder_of, main
from studies.sources.coverage import PLACES, STATUSES, covered, is_closed, page, shown
from studies.sources.manifests import FILE, Needs, checkpoints, checkpoints_of, listing, packaged, sets
from studies.sources.published import published_table
from studies.sources.recipe import Fetched, Result, Row, Run, label
from studies.sources.statements import exponent, identity
from studies.sources.verdicts import Finding, Standing, corrected, decided
from studies.sources.writing import index
from studies.sources.writing import page as recipe_page

DEMO = HERE / "results" / "demo"
THERE = [name for name in RECIPES if (HERE / f"{name}.py").is_file()]
AGREES = decided(identity(True))
LARGEST = 150_000  # bytes of a picture; animations are larger


def results(recipe):
    return json.loads((DEMO / recipe / "results.json").read_text(encoding="utf-8"))


def numbered(kind, source):
    return {int(place.rpartition(" ")[2]) for place in PLACES if place.startswith(f"{source}, {kind}")}


def test_the_places_are_those_of_the_sources_each_covered_once_by_a_known_word_and_named():
    assert numbered("figure", "post 1") == {*range(1, 21)}
    assert numbered("figure", "post 2") == {*range(1, 17)}
    assert numbered("figure", "Weibull paper") == {*range(1, 15)}
    assert numbered("table", "Weibull paper") == {*range(1, 7)}
    assert "post 1, table 1" in PLACES
    found = [one.place for one in covered(RECIPES)]
    assert len(found) == len(set(found))
    assert set(found) <= set(PLACES)
    assert all(isinstance(one.status, Needs) or one.status.startswith(STATUSES) for one in covered(RECIPES))
    if [*RECIPES] == THERE:
        assert found == [*PLACES]
    for place in PLACES:
        source, _, rest = place.partition(", ")
        (short,) = [name for name, title in entry.SOURCES.items() if title == source]
        if rest != "text":
            assert entry._NAME.fullmatch(f"{short}-{rest.replace(' ', '-').removeprefix('figure-')}"), place


@pytest.fixture
def small_recipe(monkeypatch):
    """A recipe that shows two places, in the place of each."""
    rows = tuple(Row(place, "one", 1.0, 1.0, None, AGREES) for place in ("post 1, figure 3", "post 1, table 1"))
    monkeypatch.setattr(entry, "recipe", lambda name: SimpleNamespace(make=lambda run: Result(rows=rows), COVERS={}))


@pytest.mark.parametrize("name, place", [("post1-3", "post 1, figure 3"), ("post1-table-1", "post 1, table 1")])
def test_one_figure_or_table_is_made_by_its_name_alone(small_recipe, tmp_path, name, place, capsys):
    assert main(["figure", name, "--quick", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / name)]
    held = json.loads((tmp_path / name / "results.json").read_text(encoding="utf-8"))
    assert [row["place"] for row in held["rows"]] == [place]
    assert held["command"] == f"python -m studies.sources figure {name} --model demo --quick"
    assert {one.name for one in tmp_path.iterdir()} == {name}


@pytest.mark.parametrize("name", ["post1-21", "post1-0x3", "post3-1", "weibull-table-7", "post1-5"])
def test_a_figure_that_is_not_there_is_refused_with_the_names_that_are(small_recipe, tmp_path, name, capsys):
    assert main(["figure", name, "--out", str(tmp_path)]) == 2
    assert repr(name) in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("arguments", [["figure"], ["post1", "post1-3"], ["figure", "post1-3", "--model", "set:post1"]])
def test_figure_takes_a_name_and_models(arguments, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert "figure NAME" in capsys.readouterr().err


def test_what_is_done_or_drawn_of_the_demo_has_a_file_and_the_table_of_coverage_is_that_of_today():
    found = covered(RECIPES)
    files = shown(DEMO.parent, found)
    for one in found:
        assert all((DEMO.parent / each.file).is_file() for each in files[one.place]), one.place
        if one.status == "done" or isinstance(one.status, Needs):
            assert any(each.file.startswith("demo/") for each in files[one.place]), one.place
    written = (DEMO.parent / "COVERAGE.md").read_text(encoding="utf-8")
    assert written == page(RECIPES, DEMO.parent)
    rows = dict(re.findall(r"^\| (.*?) \| .*? \| .*? \| (.*?) \| .*? \|$", written, flags=re.MULTILINE))
    assert [place for place in rows if place in PLACES] == [*PLACES]
    ids = {one.known.hub_id for one in checkpoints()}
    for commands in list(rows.values())[1:]:
        for command in re.findall(r"`python -m studies\.sources (.*?)`", commands):
            recipe, *rest = command.split()
            assert recipe in RECIPES
            models = rest[1].split(",") if rest else []
            assert {*models} <= ids | {f"set:{name}" for name in sets()} and rest[:1] in ([], ["--model"])
    assert (DEMO / "README.md").read_text(encoding="utf-8") == index(DEMO, RECIPES)


def _weights(models):
    return {f"{model}@main": {"commit": "0" * 40} for model in models}


def test_a_place_is_closed_only_by_weights_of_the_hub_of_all_its_models_by_a_run_that_is_not_quick():
    two = Needs("cross", ("openai-community/gpt2", "EleutherAI/pythia-70m"))
    held = {"recipe": "cross", "quick": False, "model": ["GPT2", "x/y", "pythia-70m"], "weights": _weights(two.models)}
    assert is_closed(two, held)
    assert not is_closed(two, held | {"quick": True})
    assert not is_closed(two, held | {"recipe": "post1"})
    assert not is_closed(two, held | {"model": ["gpt2"]})
    assert not is_closed(two, held | {"weights": _weights(two.models[:1])})  # the other is a folder of its name
    assert not is_closed(two, held | {"model": ["gpt2", "pythia-70m@step1"]})
    one = two._replace(models=two.models[1:])
    assert not is_closed(one, held)  # its figures are of the first model
    assert is_closed(one, held | {"model": ["EleutherAI/Pythia-70m", "gpt2"]})
    runs = sets()["all"]
    held = [
        {"recipe": one.recipe, "quick": False, "model": one.models, "weights": _weights(one.models)} for one in runs
    ]
    needs = [one.status for one in covered(RECIPES) if isinstance(one.status, Needs)]
    assert len(needs) == 57
    for one in needs:
        assert any(is_closed(one, each) for each in held), one
        if one.by.startswith("set:"):
            of_set = [each for each in sets()[one.by.removeprefix("set:")] if each.recipe == one.recipe]
            assert any({*one.models} <= {*each.models} for each in of_set)


@pytest.mark.parametrize("recipe", THERE)
def test_a_page_is_made_of_its_results_and_its_pictures_are_small(recipe):
    held = results(recipe)
    assert (DEMO / recipe / "README.md").read_text(encoding="utf-8") == recipe_page(held)
    pictures = {path.name for path in (DEMO / recipe).iterdir() if path.suffix in (".png", ".gif")}
    assert pictures == {figure["file"] for figure in held["figures"]}
    assert all(path.stat().st_size < LARGEST for path in (DEMO / recipe).glob("*.png"))
    for row in held["rows"]:
        assert Standing(row["standing"]) is not Standing.DECIDED or Finding(row["finding"])


def test_estimates_of_what_is_fetched_are_of_the_published_numbers_of_parameters():
    units = {"M": 1e6, "B": 1e9}
    printed = {row["model"]: row["parameters"] for row in published_table("post-1-table-1").rows}
    posts = {one.known.name: one for one in checkpoints() if one.source == "posts"}
    assert len(posts) == len(printed) == 14
    for one, text in zip(sorted(posts.values(), key=_size), sorted(map(_number(units), printed.values())), strict=True):
        assert one.parameters == pytest.approx(text, rel=0.06)
        assert one.bytes_each >= 2 * one.parameters
    assert len([one for one in checkpoints() if one.source == "Weibull paper"]) == 12


def _size(one):
    return one.parameters


def _number(units):
    return lambda text: float(text[:-1]) * units[text[-1]]


def test_checkpoints_and_models_of_packages_are_listed_with_what_was_looked_up(capsys):
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert said.strip() == listing()
    assert all(one.known.hub_id in said for one in checkpoints())
    (llama,) = checkpoints_of(["meta-llama/Llama-3.1-8B@main"])
    assert llama.gated == "yes" and "accept it on the model's page" in llama.licence
    manifest = json.loads(FILE.read_text(encoding="utf-8"))
    for one in manifest["models"].values():
        assert {"date", "licence", "gated", "sizes", "storage"} == set(one["checked"])
        assert all(one["checked"].values())
    assert {entry["model"] for entry in manifest["entries"]} == set(manifest["models"])
    page = (DEMO.parents[1] / "README.md").read_text(encoding="utf-8")
    here = {path.parent.parent.name for path in DEMO.parent.glob("*/*/results.json")}
    assert {one.model for one in packaged()} | {"demo"} <= here
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    for one in packaged():
        assert f"`{one.requirement}`" in page and f"{one.model}: {one.requirement}" in said
        assert one.bytes > 10**7 and all(one.checked.values())


def test_a_verdict_is_a_value_and_what_cannot_be_computed_cannot_be_told():
    with pytest.raises(ParameterError, match="a Verdict"):
        Row("post 1, figure 1", "σ", 1.0, 1.0, None, "agrees")
    with pytest.raises(ParameterError, match="λ, s"):
        Row("post 1, figure 1", "σ", 1.0, 1.0, None, AGREES, "eigenvalues")
    for observed in (float("nan"), "nan, 1"):
        row = writing._row(Row("post 1, figure 1", "σ", 1.0, observed, None, AGREES, note="nulls nan and 1"))
        assert row["observed"] is None and row["verdict"] == "cannot tell" and row["note"] == "nulls – and 1"
        row = writing._row(Row("post 1, figure 1", "σ", 1.0, observed, None, corrected("errata, 4")))
        assert (row["standing"], row["finding"]) == ("open", None)


def test_numbers_of_the_nulls_and_of_the_first_page_are_those_of_today():
    rows = {(row["place"], row["quantity"], row["convention"]): row for row in results("null")["rows"]}
    for h in null.RANKS:
        row = rows["post 1, figure 3", f"upper edge of W_QK/√d, h = {h}, σ = 1", "λ"]
        assert row["null"]["mean"] == pytest.approx(laws.low_rank_product(d_model=1000, d_head=h).support[1], rel=1e-5)
        assert row["published"] == pytest.approx(null.published_edges(1000, h)[1] ** 2, rel=1e-5)
    for h in null.ELEMENT_RANKS:
        found = rows["post 1, figure 4", f"D_KL from a normal law, h = {h}", ""]["null"]["mean"]
        assert found == pytest.approx(laws.product_element(1000, h).kl_to_normal(), rel=1e-5)
    model = open_model("demo")
    values = np.concatenate([first.thin_of(model, site) for site in range(len(model.sites))])
    ratios = {"λ": values**2, "s": values}
    held = {(row["quantity"], row["convention"]): row["observed"] for row in results("first")["rows"]}
    for convention, x in ratios.items():
        participation = x.sum(axis=1) ** 2 / (x**2).sum(axis=1) / x.shape[1]
        assert held["NPR of demo, median head", convention] == pytest.approx(np.median(participation), rel=1e-5)
    largest = [row for (name, convention), row in held.items() if "largest κ" in name and convention == "s"]
    assert largest == [pytest.approx((values[:, 0] / values[:, -1]).max(), rel=1e-5)]


def test_dense_spectra_count_rounding_as_values_and_millions_are_told_from_it():
    spectra = first.random_spectra(128, 16)
    thin, dense = (spectra.condition(method) for method in first.METHODS[:2])
    assert thin[0] == 16 and thin[1] < 5
    assert dense[0] > 80 and dense[1] > 1e6
    assert spectra.floor < 1e-6
    thin = np.geomspace(1.0, 1.0 / 3738.0, 16)
    dense = np.concatenate([thin, np.full(112, 1e-9)])
    random = first.random_spectra(128, 16)
    own = first.Spectra("one, largest κ", 128, thin, dense)
    verdicts = {
        (row.quantity, row.convention): row
        for row in first.rows_of_condition(Run("demo", True, Path(), Path()), [random, own])
    }
    real = verdicts["κ of one, largest κ, thin float64", "λ"]
    assert real.verdict.finding is Finding.AGREES and real.observed == pytest.approx(3738.0**2) and "real" in real.note
    assert verdicts["κ of one, largest κ, thin float64", "s"].verdict == corrected("errata, 5")
    assert "1.4e+07 of λ by thin factors: millions are real here of λ." in first.rounding("one", [random, own])
    assert "no κ here reaches a million" in first.rounding("one", [random, random])
    square = first.Spectra("square", 16, np.ones(16), np.ones(16))
    assert np.isnan(square.floor)
    assert first.null_of("condition_number", square) is not None
    assert first.null_of("condition_number", square._replace(thin=np.ones(2))) is None
    assert np.isnan(exponent(np.ones(1), np.ones(1)).value)


def test_a_folder_whose_names_tell_no_steps_is_one_model(tmp_path):
    (tmp_path / "one.gguf").write_bytes(b"GGUF")
    assert not course._is_series(str(tmp_path))
    for step in (1, 2):
        (tmp_path / "series" / f"step-{step}").mkdir(parents=True)
        (tmp_path / "series" / f"step-{step}" / "config.json").write_text("{}")
    assert course._is_series(str(tmp_path / "series"))


def test_kept_arrays_are_made_once(tmp_path):
    made = []

    def measure(model, times):
        made.append(model.name)
        return {"n": np.array(times * model.n_layers)}

    run = Run("demo", True, tmp_path / "out", tmp_path / "store")
    for _ in range(2):
        assert run.arrays("layers", measure, times=3)["n"] == 12
    run.arrays("layers", measure, revision="step-0", times=3)
    run.arrays("layers", measure, times=4)
    assert len(made) == 3


def test_a_run_knows_a_model_by_all_of_its_names_and_texts_name_no_place(tmp_path, capsys):
    for name in ("gpt2", "openai-community/gpt2", "openai-community/GPT2@main"):
        assert Run(name, True, Path("out"), Path("store")).is_of("gpt2")
    assert not Run("demo", True, Path("out"), Path("store")).is_of("gpt2")
    folder = tmp_path / "all-MiniLM-L6-v2"
    folder.mkdir()
    run = Run(str(folder), True, Path("out"), Path("store"))
    assert run.label == label(f"{tmp_path}/./all-MiniLM-L6-v2/") == "all-MiniLM-L6-v2"
    assert label(f"{folder}@main") == "all-MiniLM-L6-v2@main"
    assert label("openai-community/gpt2@main") == "openai-community/gpt2@main"
    assert folder_of([str(folder)]) == "all-MiniLM-L6-v2"
    folder = tmp_path / "a|b `c` <script> $x$\n"
    folder.mkdir()
    assert label(str(folder)) == "a_b _c_ _script_ _x__"
    (tmp_path / "demo").mkdir()
    assert folder_of([str(tmp_path / "demo")]) == "folder-demo"
    assert folder_of(["/"]) == "folder-"
    folders = [folder_of(one.models) for one in sets()["all"] if one.models]
    assert len({*folders}) == len({one.models for one in sets()["all"]} - {()})
    assert folder_of(("gpt2", "distilgpt2")) == "gpt2+distilgpt2" != folder_of(("distilgpt2", "gpt2"))
    long = [f"some-organisation/some-model-{number}" for number in range(9)]
    assert len(folder_of(long)) <= 80 and folder_of(long) != folder_of(long[:-1])
    for one in ("a", "b"):
        (tmp_path / one / "same").mkdir(parents=True)
    with pytest.raises(SystemExit, match="2"):
        main(["cross", "--model", f"{tmp_path}/a/same, {tmp_path}/b/same"])
    assert "two are called same" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["all-MiniLM-L6-v2", "AntiBERTy", "SmolLM2-135M-Instruct"])
def test_pages_of_published_models_are_made_of_their_results_and_name_no_place(folder):
    whole = HERE / "results" / folder
    assert (whole / "README.md").read_text(encoding="utf-8") == index(whole, RECIPES)
    for path in whole.glob("*/results.json"):
        held = json.loads(path.read_text(encoding="utf-8"))
        assert held["model"] == [folder]
        assert (path.parent / "README.md").read_text(encoding="utf-8") == recipe_page(held)
        assert {one["file"] for one in held["figures"]} == {one.name for one in path.parent.glob("*.png")}


def test_of_a_folder_of_checkpoints_the_last_is_meant_or_the_one_that_is_named(tmp_path):
    for step in (8, 64):
        (tmp_path / f"step{step}").mkdir()
        (tmp_path / f"step{step}" / "config.json").write_text("{}")
    run = Run(str(tmp_path), True, Path("out"), Path("store"))
    assert run._checkpoint(None, None) == (str(tmp_path / "step64"), None)
    assert run._checkpoint(None, "step8") == (str(tmp_path / "step8"), None)


def test_kept_arrays_are_made_once_and_what_is_damaged_is_named(tmp_path, capsys):
    run = Run("demo", True, tmp_path / "out", tmp_path / "store")
    run.arrays("n", lambda model: {"n": np.zeros(9)})
    (kept,) = (tmp_path / "store").iterdir()
    kept.write_bytes(kept.read_bytes()[:50])
    with pytest.raises(TableError, match=r"damaged.*delete it"):
        run.arrays("n", lambda model: {"n": np.zeros(9)})
    (tmp_path / "out/demo/null").mkdir(parents=True)
    (tmp_path / "out/demo/null/results.json").write_text('{"recipe": ')
    assert main(["pages", "--out", str(tmp_path / "out")]) == 2
    assert "null/results.json: found no JSON" in capsys.readouterr().err
    for arguments, said in (
        (["pages", "--out", str(tmp_path)], "run one first"),
        (["null", "--model", ","], "nothing"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(arguments)
        assert said in capsys.readouterr().err


def test_all_goes_on_where_one_recipe_refuses_or_cannot_be_written(tmp_path, monkeypatch, capsys):
    def make(run):
        if run.out.name == "null":
            raise ParameterError("rank", 2, "eight")
        return Result()

    monkeypatch.setattr(entry, "recipe", lambda name: SimpleNamespace(make=make))
    monkeypatch.setattr(entry, "write_pages", lambda results: None)
    assert main(["all", "--out", str(tmp_path)]) == 2
    assert (tmp_path / "demo/claims/results.json").is_file() and not (tmp_path / "demo/null").exists()
    assert "null: rank = 2" in capsys.readouterr().err
    (tmp_path / "out").write_text("")
    monkeypatch.setattr(entry, "recipe", lambda name: SimpleNamespace(make=lambda run: Result()))
    assert main(["null", "--out", str(tmp_path / "out")]) == 2
    assert "null: " in capsys.readouterr().err


def test_a_folder_of_results_has_what_its_run_made_and_a_kill_loses_nothing(tmp_path, monkeypatch):
    folder = tmp_path / "demo/null"
    folder.mkdir(parents=True)
    (folder / "stale.png").touch()
    run = Run("demo", True, folder, tmp_path / "store")
    writing.write("null", Result(), run, "")
    assert {path.name for path in folder.iterdir()} == {"results.json", "README.md"}
    rename = Path.rename
    for killed in (1, 2):
        calls = []

        def dies(path, target, killed=killed, calls=calls):
            calls.append(target)
            if len(calls) == killed:
                raise KeyboardInterrupt
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", dies)
        with pytest.raises(KeyboardInterrupt):
            writing.write("null", Result(summary=("new",)), run, "")
        monkeypatch.setattr(Path, "rename", rename)
        writing.restore(folder)
        assert "summary" not in json.loads((folder / "results.json").read_text(encoding="utf-8"))
    writing.write("null", Result(summary=("new",)), run, "")
    assert [path.name for path in folder.parent.iterdir()] == ["null"]


def test_a_corner_plot_of_many_models_is_of_those_that_its_caption_names(monkeypatch):
    monkeypatch.setattr(cross, "moment_corner", list)
    models = [SimpleNamespace(label=f"model {number}") for number in range(7)]
    drawn, caption = cross._corners(models)
    names = [one.label for one in drawn]
    assert drawn == models[:5] and caption.endswith(f"Of {', '.join(names)}, 5 of 7 models.")
    both = [SimpleNamespace(label=name) for name in (cross.LLAMA, cross.MISTRAL)]
    drawn, caption = cross._corners([models[0], *both])
    assert drawn == both and "2 of 3 models" in caption and "colours are those of the post" in caption
    assert cross._corners(models[:2])[1].endswith("Of model 0, model 1.")


def test_only_eleutherais_pythia_models_have_its_revisions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert course.is_pythia("EleutherAI/pythia-70m") and course.is_pythia("pythia-1.4b-deduped")
    for other in ("my-finetuned-pythia-70m", "someone/pythia-70m", "pythia-70m@step1000"):
        assert not course.is_pythia(other)
        assert course.checkpoints_shown(Run(other, True, tmp_path, tmp_path)) == (course.Checkpoint(),)
    (tmp_path / "pythia-70m").mkdir()
    assert not course.is_pythia("pythia-70m")


def test_what_a_killed_run_has_fetched_is_deleted_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead, alive = (tmp_path / f"rmtbase-fetched-{number}-x" for number in (2**31 - 1, os.getpid()))
    dead.mkdir()
    alive.mkdir()
    fetched = Fetched()
    fetched.place("one", None)
    assert not dead.exists() and alive.exists()
    fetched.discard()
