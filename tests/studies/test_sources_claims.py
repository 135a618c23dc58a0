"""Each claim of the sources is decided by something that exists, and files of three recipes are what they say."""

import json
import math
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from studies.sources import weibull_tables
from studies.sources.__main__ import HERE, RECIPES
from studies.sources.claims import CLAIMS, ROWS, SOURCES, _Gathered, _row, claims, closing, erratum_tests, make, needed
from studies.sources.claims_checks import CHECKS
from studies.sources.claims_laws import LAWS
from studies.sources.course import DEMO_TRAINING, Checkpoint, cohort, members, training_of
from studies.sources.coverage import PLACES
from studies.sources.manifests import sets
from studies.sources.published import published_table
from studies.sources.recipe import Row, Run
from studies.sources.statements import identity
from studies.sources.training import COVERS as TRAINING
from studies.sources.training import _early, _of_last, courses, spectra_of
from studies.sources.verdicts import Finding, Kind, Standing, corrected, decided, needs
from studies.sources.weibull import COVERS as WEIBULL

ROOT = Path(__file__).resolve().parents[2]
RESULTS = HERE / "results" / "demo"
DECIDED_BY = ("erratum", "check", "printed", "row")
FINAL = Checkpoint(None, "final")
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = Run("demo", True, RESULTS / "claims", tmp_path_factory.mktemp("store"))
    yield run
    run.fetched.discard()


def written(recipe):
    return json.loads((RESULTS / recipe / "results.json").read_text(encoding="utf-8"))


def same(rows, recipe):
    """Whether rows are as they are written, to five digits; a number that is not known is null in JSON."""
    held = {(one["place"], one["quantity"], one["convention"]): one for one in written(recipe)["rows"]}
    for row in rows:
        one = held[row.place, row.quantity, row.convention]
        assert Standing(one["standing"]) is row.verdict.standing, row.quantity
        assert one["finding"] == (row.verdict.finding and row.verdict.finding.value), row.quantity
        if isinstance(row.observed, float) and math.isnan(row.observed):
            assert one["observed"] is None, row.quantity
        elif isinstance(row.observed, float):
            assert one["observed"] == pytest.approx(row.observed, rel=1e-4, abs=1e-6), row.quantity


def test_every_claim_is_decided_by_one_thing_or_by_a_command_and_every_erratum_answers_one():
    found = claims()
    assert len({one["id"] for one in found}) == len(found) > 60
    for one in found:
        assert sum(name in one for name in DECIDED_BY) <= 1 or ("row" in one and "erratum" in one), one["id"]
        assert any(name in one for name in DECIDED_BY), one["id"]
        assert ("models" in one) == ("command" in one), one["id"]
        assert one["place"].startswith(SOURCES), one["id"]
        assert all(one[name] for name in ("words", "quantity", "null")), one["id"]
    assert {one["check"] for one in found if "check" in one} == {*CHECKS, *LAWS}
    assert {one["row"][0] for one in found if "row" in one} <= ROWS.keys() & RECIPES.keys()
    answered = {one["erratum"] for one in claims() if "erratum" in one}
    page = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    assert answered == set(map(int, re.findall(r"^#{2,3} (\d+)\.", page, flags=re.MULTILINE)))
    for number in answered:
        ((file, names),) = erratum_tests(number).items()
        code = (ROOT / "tests" / "errata" / file).read_text(encoding="utf-8")
        own = [one["test"] for one in claims() if one.get("erratum") == number and "test" in one]
        for name in (*names, *own):
            assert f"def {name}(" in code, (number, name)
        assert "def test_" in code
    page = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    for one in claims():
        if "erratum" in one:
            (section,) = re.findall(rf"^#{{2,3}} {one['erratum']}\..*?(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
            missing = set(NUMBER.findall(one["null"])) - set(NUMBER.findall(section))
            assert not missing, (one["id"], missing)


def test_the_command_of_a_claim_runs_claims_of_all_models_that_the_claim_is_about():
    closed = set()
    for claim in claims():
        if "command" not in claim:
            continue
        words = shlex.split(claim["command"])
        assert words[:4] == ["python", "-m", "studies.sources", "claims"]
        assert words[4::2] == ["--model"] * len(words[5::2])
        models = tuple(words[5::2])
        if models[0].startswith("set:"):
            (models,) = {run.models for run in sets()[models[0].removeprefix("set:")] if run.recipe == "claims"}
        run = Run(models[0], True, Path(), Path(), models)
        own = closing(claim, run)
        assert own is not None and {*own.models} == {*needed(claim)}, claim["id"]
        assert closing(claim, replace(run, models=models[1:] or ("demo",))) is None
        closed.add(claim["id"])
    assert len(closed) > 30


def test_a_claim_about_checkpoints_stays_open_for_other_models_and_has_the_verdict_of_the_recipes_row(tmp_path):
    claim = {"models": ["gpt2"], "command": "x", "place": "post 2, figure 8", "words": "near", "quantity": "NPR",
             "null": "0.86", "row": ["post2", "post 2, figure 8", "NPR"], "convention": "λ"}  # fmt: skip
    for said in (decided(identity(True)), decided(identity(False)), needs("x", identity(True)), corrected("errata, 4")):
        row = Row("post 2, figure 8", "NPR", "near", 0.8, None, said, "λ")
        gathered = _Gathered()
        gathered._rows = {("post2", (model,)): [row] for model in ("demo", "openai-community/gpt2")}
        other = _row(claim, Run("demo", True, tmp_path, tmp_path), gathered).verdict
        assert (other.standing, other.finding, other.detail) == (Standing.OPEN, said.finding, "`x`")
        own = _row(claim, Run("openai-community/gpt2", True, tmp_path, tmp_path), gathered).verdict
        if said.standing is Standing.CORRECTED:
            assert own == said
        else:
            assert (own.standing, own.finding) == (Standing.DECIDED, said.finding)
        of_hub = _row(claim, Run("EleutherAI/pythia-70m", True, tmp_path, tmp_path), gathered).verdict
        assert (of_hub.standing, of_hub.finding) == (Standing.OPEN, None)  # nothing is fetched for show


def test_recipes_and_claims_say_the_same_of_one_model_at_one_place():
    rows = {recipe: written(recipe)["rows"] for recipe in ROWS}
    compared, made = 0, {(row["place"], row["quantity"]) for recipe in rows.values() for row in recipe}
    for claim, own in zip(claims(), written("claims")["rows"], strict=True):
        if "row" in claim:
            recipe, place, quantity = claim["row"]
            words = (place, quantity.format(model="demo"))
            (row, *_) = [
                row
                for row in rows[recipe]
                if (row["place"], row["quantity"]) == words
                and row["convention"] == claim.get("convention", row["convention"])
            ]
            assert (own["finding"], own["observed"]) == (row["finding"], row["observed"]), claim["id"]
            compared += 1
        else:  # no recipe has that row
            assert (claim["place"], claim["quantity"]) not in made, claim["id"]
    assert compared > 20
    for convention in ("λ", "s"):  # both recipes compare the NPR of heads with its null
        both = [row for recipe in ("first", "post2") for row in rows[recipe] if row["place"] == "post 2, figure 8"]
        assert len({row["finding"] for row in both if row["convention"] == convention and row["finding"]}) == 1


@pytest.mark.exhaustive
def test_the_claims_page_is_what_the_checks_find(run):
    same(make(run).rows, "claims")
    assert len(written("claims")["rows"]) == len(json.loads(CLAIMS.read_text(encoding="utf-8")))


def test_the_rows_of_the_weibull_paper_and_of_the_follow_up_are_those_of_the_demo(run):
    found = members(run)
    same(weibull_tables.rows(found, cohort(found)), "weibull")
    settings = json.loads((ROOT / "studies/demo_model/training.json").read_text(encoding="utf-8"))
    named = (DEMO_TRAINING.peak_rate, DEMO_TRAINING.weight_decay, DEMO_TRAINING.steps)
    assert named == (settings["peak"], settings["weight_decay"], settings["steps"])
    same([*_of_last(run, spectra_of(run, FINAL)), *_early(run, courses(run)[0])], "training")
    assert {*WEIBULL, *TRAINING} == {place for place in PLACES if place.startswith(("Weibull", "follow-up"))}
    for recipe in ("weibull", "training"):
        for figure in written(recipe)["figures"]:
            path = RESULTS / recipe / figure["file"]
            assert path.stat().st_size < (400_000 if path.suffix == ".gif" else 150_000)


def test_a_run_of_a_printed_model_has_its_own_row_and_the_settings_that_it_was_trained_with(tmp_path):
    table = published_table("weibull-table-3")
    printed = {label: table.number(label, "growth") for label in table.labels}
    for label, budget in zip(printed, (14.3, 8.6, 4.3, 3.6, 1.7), strict=True):
        run = Run(weibull_tables.HUB[label], True, tmp_path, tmp_path)
        assert training_of(run).budget == pytest.approx(budget, abs=0.05)  # errata, 25
        assert weibull_tables.own_row(run, table) == label
        said = [weibull_tables._verdict(run, table, growth, "growth") for growth in (printed[label], 0.5)]
        assert [one.finding for one in said] == [Finding.AGREES, Finding.DISAGREES]
        assert {one.standing for one in said} == {Standing.DECIDED}
    for row in written("weibull")["rows"]:
        if row["kind"] == Kind.PRINTED.value:
            assert Standing(row["standing"]) is not Standing.DECIDED, row["quantity"]  # the demo is none of them
