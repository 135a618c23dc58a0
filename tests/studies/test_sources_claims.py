"""Each claim of the sources is decided by something that exists, and files of three recipes are what they say."""

import json
import re
import shlex
from pathlib import Path

import pytest

from rmtbase.cli._app import app
from studies.sources import weibull_tables
from studies.sources.__main__ import HERE, RECIPES
from studies.sources.claims import CLAIMS, SOURCES, Found, claims, erratum_tests, make, verdict
from studies.sources.claims_checks import CHECKS
from studies.sources.course import DEMO_TRAINING, Checkpoint, cohort, members, training_of
from studies.sources.coverage import PLACES
from studies.sources.published import published_table
from studies.sources.recipe import Null, Run
from studies.sources.training import COVERS as TRAINING
from studies.sources.training import _early, _of_last, courses, spectra_of
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
    """Whether rows are as they are written, to five digits."""
    held = {(one["place"], one["quantity"], one["convention"]): one for one in written(recipe)["rows"]}
    for row in rows:
        one = held[row.place, row.quantity, row.convention]
        assert one["verdict"] == row.verdict, row.quantity
        if isinstance(row.observed, float):
            assert one["observed"] == pytest.approx(row.observed, rel=1e-4, abs=1e-6), row.quantity


def test_every_claim_is_decided_by_one_thing_or_by_a_command():
    found = claims()
    assert len({one["id"] for one in found}) == len(found) > 60
    for one in found:
        assert sum(name in one for name in DECIDED_BY) <= 1, one["id"]
        assert any(name in one for name in (*DECIDED_BY, "command")), one["id"]
        assert ("models" in one) == ("command" in one), one["id"]
        assert one["place"].startswith(SOURCES), one["id"]
        assert all(one[name] for name in ("words", "quantity", "null")), one["id"]
    assert {one["check"] for one in found if "check" in one} == set(CHECKS)


def test_every_erratum_answers_a_claim_and_names_tests_that_are_there():
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


def test_numbers_beside_a_corrected_claim_are_those_of_its_erratum():
    page = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    for one in claims():
        if "erratum" in one:
            (section,) = re.findall(rf"^#{{2,3}} {one['erratum']}\..*?(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
            missing = set(NUMBER.findall(one["null"])) - set(NUMBER.findall(section))
            assert not missing, (one["id"], missing)


def test_commands_are_of_recipes_and_of_the_house():
    commands = {command.callback.__name__ for command in app.registered_commands if command.callback is not None}
    for one in claims():
        words = shlex.split(one.get("command", "rmtbase score"))
        if words[0] == "python":
            assert words[:3] == ["python", "-m", "studies.sources"]
            assert words[3] in RECIPES
        else:
            assert words[0] == "rmtbase"
            assert words[1] in commands


def test_a_claim_about_checkpoints_stays_open_for_other_models(run):
    claim = {"models": ["gpt2"], "command": "rmtbase score gpt2"}
    assert verdict(claim, Found(1.0, None, True), run) == "open: `rmtbase score gpt2`"
    own = Run("gpt2", True, run.out, run.store)
    assert verdict(claim, Found(1.0, None, True), own).startswith("agrees")
    assert verdict(claim, Found(1.0, None, False), own) == "differs"
    assert verdict({"erratum": 7}, Found(), own) == "corrected: errata, 7"
    (millions,) = (one for one in claims() if "largest" in one)
    medium = Run(millions["models"][0], True, run.out, run.store)
    said = [verdict(millions, Found(holds=one), medium).partition(":")[0] for one in (True, False, None)]
    assert said == ["agrees", "corrected", "open"]  # where thin factors have it in the millions it is in the weights


@pytest.mark.exhaustive
def test_the_claims_page_is_what_the_checks_find(run):
    same(make(run).rows, "claims")
    assert len(written("claims")["rows"]) == len(json.loads(CLAIMS.read_text(encoding="utf-8")))


def test_the_weibull_paper_s_rows_are_those_of_the_demo(run):
    found = members(run)
    same(weibull_tables.rows(found, cohort(found)), "weibull")
    settings = json.loads((ROOT / "studies/demo_model/training.json").read_text(encoding="utf-8"))
    named = (DEMO_TRAINING.peak_rate, DEMO_TRAINING.weight_decay, DEMO_TRAINING.steps)
    assert named == (settings["peak"], settings["weight_decay"], settings["steps"])


def test_the_follow_up_s_rows_are_those_of_the_demo_and_its_two_seeds(run):
    same([*_of_last(run, spectra_of(run, FINAL)), *_early(run, courses(run)[0])], "training")


def test_a_run_of_a_printed_model_has_its_own_row_and_the_settings_that_it_was_trained_with(tmp_path):
    table = published_table("weibull-table-3")
    printed = {label: table.number(label, "growth") for label in table.labels}
    for label, budget in zip(printed, (14.3, 8.6, 4.3, 3.6, 1.7), strict=True):
        run = Run(weibull_tables.HUB[label], True, tmp_path, tmp_path)
        assert training_of(run).budget == pytest.approx(budget, abs=0.05)  # errata, 25
        assert weibull_tables.own_row(run, table) == label
        null = Null(0.0, None, -1.0, 1.0)
        assert weibull_tables._verdict(run, table, printed[label], null, "growth") == "agrees"
        assert weibull_tables._verdict(run, table, 0.5, null, "growth") == "differs: as untrained weights are"
    for row in written("weibull")["rows"]:
        assert not row["verdict"].startswith(("agrees", "differs")), row["quantity"]  # the demo is none of them


def test_recipes_cover_their_sources_and_wrote_a_file_for_every_figure():
    assert {*WEIBULL, *TRAINING} == {place for place in PLACES if place.startswith(("Weibull", "follow-up"))}
    for recipe in ("weibull", "training"):
        for figure in written(recipe)["figures"]:
            path = RESULTS / recipe / figure["file"]
            assert path.stat().st_size < (400_000 if path.suffix == ".gif" else 150_000)
