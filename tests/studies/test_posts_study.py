"""The recipes of the two posts: what lies in the tree is what the demo's scores give, and each place has its figure."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import rmtbase
from rmtbase.models import open_model
from studies.sources import post1, post1_rows, post2, post2_rows, random_heads
from studies.sources.post1_rows import fitted_by_histogram, histogram_width
from studies.sources.post2_rows import exponents
from studies.sources.recipe import Result, Run
from studies.sources.statements import beside_random, by_place, exponent, of_elements, rank_correlation
from studies.sources.verdicts import Finding, Standing
from studies.sources.writing import as_json

RESULTS = Path(post1.__file__).parent / "results" / "demo"
POSTS = {"post1": post1, "post2": post2}
ROWS = {"post1": post1_rows.rows, "post2": post2_rows.rows}
MOST_BYTES = 150_000


@pytest.fixture(scope="module")
def demo():
    return rmtbase.score(open_model("demo", proof=False), elements="heads", matrices="none")


def results(name):
    return json.loads((RESULTS / name / "results.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


def rows_of(name, tree, store, model="demo"):
    run = Run(model, True, Path(), store)
    return as_json(name, Result(rows=by_place(ROWS[name](run, beside_random(run, tree)))), run, "", {})["rows"]


@pytest.fixture
def few(monkeypatch):
    """Few random heads: for what does not depend on their number."""
    monkeypatch.setattr(random_heads, "HEADS", (32, 32))


def is_same(found, kept):
    if isinstance(kept, dict):
        return found.keys() == kept.keys() and all(is_same(found[name], kept[name]) for name in kept)
    if isinstance(kept, int | float):
        return found == pytest.approx(kept, rel=1e-4, abs=1e-6)
    return found == kept


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", POSTS)
def test_the_rows_in_the_tree_are_those_of_the_demos_scores(name, demo, store):
    found, kept = rows_of(name, demo, store), results(name)["rows"]
    assert len(found) == len(kept) > 20
    for one, other in zip(found, kept, strict=True):
        assert is_same(one, other), (one, other)


@pytest.mark.parametrize("name", POSTS)
def test_every_place_has_a_figure_or_a_table_that_is_small(name):
    held = results(name)
    assert {one["place"] for one in held["figures"] + held["tables"]} == set(POSTS[name].COVERS)
    for one in held["figures"]:
        assert 1_000 < (RESULTS / name / one["file"]).stat().st_size <= MOST_BYTES


@pytest.mark.parametrize("name", POSTS)
def test_of_its_own_model_a_statement_is_decided(name, demo, store, few):
    of_gpt2, of_demo = (rows_of(name, demo, store, model) for model in ("gpt2", "demo"))
    needs = [k for k, row in enumerate(of_demo) if Standing(row["standing"]) is Standing.NEEDS]
    decided = [k for k in needs if Standing(of_gpt2[k]["standing"]) is Standing.DECIDED]
    assert len(decided) > 10
    for k in needs:
        assert Finding(of_demo[k]["finding"]) is Finding(of_gpt2[k]["finding"])


def test_table_1_is_that_of_the_known_models_and_a_spectral_statement_has_a_row_on_either_convention():
    assert [row[-1] for row in post1.table_1().rows] == ["agrees"] * 14
    rows = results("post2")["rows"]
    count = {one: sum(row["convention"] == one for row in rows) for one in ("λ", "s")}
    assert count["λ"] == count["s"] == len(rows) / 2


def test_the_sum_of_eigenvalues_is_quadratic_in_the_width_and_heads_are_the_same_whatever_is_asked(demo, store, few):
    of_eigenvalues, of_values = (dict((name, fit) for name, fit, _ in exponents(demo, one)) for one in ("λ", "s"))
    assert of_eigenvalues["Σλ"].value == of_values["Σs²"].value == pytest.approx(2.0, abs=1e-9)
    assert of_eigenvalues["λ₁"].value == pytest.approx(2 * of_values["s₁"].value)
    rows = [
        row
        for row in rows_of("post2", demo, store)
        if row["quantity"] in ("exponent of σ in Σλ", "exponent of σ in Σs²")
    ]
    assert len(rows) == 2 and all(row["note"].startswith("an identity: ") for row in rows)
    of = [of_elements(demo, name, "W_QK").layer for name in ("sigma", "core_sigma", "entropy")]
    of.append(fitted_by_histogram(demo, "W_QK").layer)
    assert all(np.array_equal(of[0], one) for one in of[1:])


def test_exponents_widths_and_rank_correlations_are_found():
    x = np.geomspace(1.0, 10.0, 400)
    noise = 0.1 * np.random.default_rng(5).standard_normal(x.size)
    fit = exponent(x, 3.0 * x**1.5 * np.exp(noise))
    assert abs(fit.value - 1.5) < 4 * fit.error  # fails by chance once in 15 000 seeds
    assert fit.error == pytest.approx(0.1 / np.sqrt(np.sum(np.log(x / np.exp(np.log(x).mean())) ** 2)), rel=0.1)
    assert np.isnan(rank_correlation(np.arange(2), np.arange(2.0)))
    assert np.isnan(rank_correlation(np.arange(5), np.ones(5)))
    x, y = np.random.default_rng(3).integers(0, 6, (2, 4, 9))
    expected = [stats.spearmanr(one, other).statistic for one, other in zip(x, y, strict=True)]
    assert rank_correlation(x, y) == pytest.approx(expected)
    edges = np.linspace(-8.0, 8.0, 161)
    centre, widths = 0.5 * (edges[1:] + edges[:-1]), {}
    for name, law in {"normal": stats.norm(), "laplace": stats.laplace(scale=0.5**0.5)}.items():
        widths[name] = histogram_width(np.diff(law.cdf(edges)) / np.diff(edges), centre)
    assert widths["normal"] == pytest.approx(1.0, abs=1e-3)
    assert widths["laplace"] == pytest.approx(0.72, abs=0.015)
