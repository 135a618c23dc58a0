"""The list of items of the sources: places that are there, commands that parse, and the page made of it.

Several models in one run of the Weibull recipe: each has its rows and lines, and the numbers are of all of them.
"""

import argparse
import json
import shlex

import numpy as np
import pytest
import typer
from matplotlib.figure import Figure
from tiny_gpt2 import N_LAYERS, write_tiny_gpt2

from rmtbase.cli._app import app
from rmtbase.results.comparison import shape_band
from studies.sources import weibull, weibull_tables
from studies.sources.__main__ import HERE, main
from studies.sources.claims import claims
from studies.sources.course import cohort, members
from studies.sources.coverage import ITEMS, PLACES, items_page
from studies.sources.recipe import Run
from studies.sources.verdicts import Standing

HELD = json.loads(ITEMS.read_text(encoding="utf-8"))
SECTIONS = {
    "draft": ("Introduction", "Singular Values of Random Matrices of Low Rank", "Data Samples", "Results"),
    "post 1": ("Models and Data", "What Comes Next"),
    "post 2": ("What Comes Next",),
    "Weibull paper": ("6", "A.4", "B.2", "B.3"),
    "follow-up": ("comments", "Similarity with non-deduplicated models"),
}
"""Of the sources, those that neither a place of coverage nor a claim names."""


class ParsedError(Exception):
    """Raised in place of a run."""


def known_places():
    found = {*PLACES, *(f"{source}, {name}" for source, names in SECTIONS.items() for name in names)}
    for one in claims():
        source, _, parts = one["place"].partition(", ")
        found |= {one["place"], *(f"{source}, {part}" for part in parts.split("; "))}
    return found


def test_items_have_a_known_place_a_state_and_a_reason():
    known = known_places()
    for one in HELD["items"]:
        assert one["place"] in known, one["place"]
        assert one["state"] in ("done", "partly", "not") or one["state"].startswith("needs "), one
        assert one["what"] and one["why"].endswith("."), one
        assert one["command"] in HELD["commands"] or one["state"] == "not" or one["why"].startswith("Superseded"), one
    assert {*PLACES} <= {one["place"] for one in HELD["items"]}
    assert len({(one["place"], one["what"]) for one in HELD["items"]}) == len(HELD["items"])
    assert {*HELD["commands"]} == {one["command"] for one in HELD["items"]} - {""}


@pytest.mark.parametrize("command", HELD["commands"].values(), ids=HELD["commands"])
def test_each_command_parses(command, monkeypatch):
    program, *words = shlex.split(command)
    if program == "rmtbase":
        group = typer.main.get_command(app)
        context = group.make_context(program, words)
        name, found, arguments = group.resolve_command(context, words)
        found.make_context(name, arguments, parent=context)
        return
    assert words[:2] == ["-m", "studies.sources"]
    parse = argparse.ArgumentParser.parse_args

    def only(self, *arguments):
        raise ParsedError(parse(self, *arguments))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", only)
    with pytest.raises(ParsedError):
        main(words[2:])


def test_the_page_is_made_of_the_list():
    assert (HERE / "ITEMS.md").read_text(encoding="utf-8") == items_page()


SINGLE, SERIES = ("one", "two"), "series"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two checkpoints and a folder of three, of different draws."""
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate((*SINGLE, *(f"{SERIES}/step-{step}" for step in (0, 10, 1000)))):
        (folder / name).parent.mkdir(exist_ok=True)
        write_tiny_gpt2(folder / name, seed)
    models = tuple(str(folder / name) for name in (*SINGLE, SERIES))
    return Run(models[0], True, folder / "out", folder / "store", models)


@pytest.fixture(scope="module")
def found(run):
    return members(run)


@pytest.fixture(scope="module")
def compared(found):
    return cohort(found)


@pytest.fixture(scope="module")
def rows(found, compared):
    return [*weibull_tables.rows(found, compared)]


def of(rows, place, words):
    return [row for row in rows if row.place == f"Weibull paper, {place}" and words in row.quantity]


def test_every_model_has_its_rows_and_numbers_of_all_are_of_those_that_ran(rows, found):
    for name in (*SINGLE, SERIES):
        assert len(of(rows, "table 1", f"{name}: median")) == 3
        assert len(of(rows, "table 2", f"{name}: ")) == 5
        assert len(of(rows, "table 4", f"{name}: mean λ")) == 1
        for place, most in (("table 3", 4), ("table 5", 1)):
            assert len(of(rows, place, f"{name}: ")) == (most if name == SERIES else 0)
    assert len([row for row in rows if row.quantity.startswith("the row of ")]) == 12  # none of the twelve ran
    medians = [float(np.median(one.last.shape[..., 0])) for one in found]
    (counted,) = of(rows, "table 1", "models with median k̂, middle 80 %")
    inside = sum(1.186 <= one <= 1.204 for one in medians)
    assert counted.published == "10 of 12 medians" and counted.observed == f"{inside} of 3 medians"
    (variation,) = of(rows, "table 1", "coefficient of variation of 3 median k̂")
    band = shape_band([one.last.shape[..., 0] for one in found], [one.last.number for one in found])
    assert variation.observed == pytest.approx(100 * band.variation)
    assert variation.null.mean == pytest.approx(100 * band.null_variation)
    for row in (counted, variation):
        assert row.verdict.standing is Standing.NEEDS
        assert row.verdict.detail == "the twelve models of table 4, of which 3 models here are none"


def test_only_a_run_of_all_twelve_models_decides_what_is_printed_of_twelve(found, tmp_path):
    twelve = [
        found[0]._replace(label=label, run=Run(name, True, tmp_path, tmp_path))
        for label, name in weibull_tables.HUB.items()
    ]
    for some, words in ((twelve, "of all twelve models"), (twelve[:7], "of which 7 models here are 7")):
        (counted,) = of(weibull_tables._ablation_of_models(some), "table 1", "models with median k̂, middle 80 %")
        assert words in counted.verdict.detail
        assert (counted.verdict.standing is Standing.DECIDED) == (some is twelve)
        needed = [row.quantity for row in weibull_tables._needs(some)]
        assert needed == [
            f"the row of {label}" for label in weibull_tables.HUB if label not in {one.label for one in some}
        ]


def test_r_is_of_the_pythia_sizes_that_ran(found, compared, tmp_path):
    labels = [label for label in weibull_tables.HUB if label.startswith("Pythia")]
    sizes = [
        found[k % 3]._replace(label=label, run=Run(weibull_tables.HUB[label], True, tmp_path, tmp_path), along=None)
        for k, label in enumerate(labels)
    ]
    for some, words in ((sizes, "of all five Pythia sizes"), (sizes[:3], "of which 3 models here are 3")):
        printed, configured = of(weibull_tables._correlations(some, compared), "table 4", "Pearson r")
        assert f"{len(some)} Pythia sizes, η and λ_wd as printed" in printed.quantity
        scales = [weibull_tables.mean_scale(one.scores) for one in some]
        table = weibull_tables.published_table("weibull-table-4")
        roots = [table.number(one.label, "root") for one in some]
        assert printed.observed == pytest.approx(np.corrcoef(roots, scales)[0, 1])
        assert words in printed.verdict.detail and words in configured.verdict.detail


@pytest.mark.exhaustive
def test_figures_have_a_line_or_a_mark_for_each_model_and_name_those_without_training(found, compared):
    figures = {one.name: one for one in weibull._figures(found, compared)}
    axes = {name: one.figure.axes for name, one in figures.items() if isinstance(one.figure, Figure)}
    above, below = axes["weibull-figure-04"]
    assert {*SINGLE, SERIES} <= {*below.get_legend_handles_labels()[1]}
    assert {*above.get_legend_handles_labels()[1]}.isdisjoint(SINGLE)
    assert SERIES in above.get_legend_handles_labels()[1]
    (ablated,) = axes["weibull-figure-05"]
    assert [one.get_text() for one in ablated.get_xticklabels()] == [*SINGLE, SERIES]
    for number in ("04", "08", "10", "11", "14"):
        assert "ithout one, two, of which one checkpoint is known" in figures[f"weibull-figure-{number}"].caption
    titles = [ax.get_title() for ax in axes["weibull-figure-08"] if ax.get_title()]
    assert [title.rpartition(" ")[2] for title in titles] == ["0", "10", "1000"]
    assert found[0].last.number.shape[0] == N_LAYERS
