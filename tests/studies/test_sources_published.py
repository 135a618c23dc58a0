"""Published tables as data, and what their numbers are from first principles."""

import importlib
import math

import numpy as np
import pytest
from scipy import optimize, stats
from scipy.special import erf, erfinv

from rmtbase.errors import ParameterError
from rmtbase.results.comparison import Training, initial_sigmas
from rmtbase.results.comparison._published import published_models
from studies.sources.first_principles import checks, our_name
from studies.sources.post1 import table_1
from studies.sources.published import Interval, printed_interval, published_table, published_tables
from studies.sources.weibull_tables import printed

TABLES = published_tables()
ANCHOR_SCALE = 0.887487039832266288  # of half-normal weights, from MATH's own quadrature


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("0.0131", 0.01305, 0.01315),
        ("-29.9", -29.95, -29.85),
        ("1.0e-3", 0.00095, 0.00105),
        ("+43", 42.5, 43.5),
        ("8.000", 7.9995, 8.0005),
    ],
)
def test_a_printed_number_is_all_that_rounds_to_it(text, low, high):
    assert printed_interval(text) == pytest.approx((low, high), rel=1e-14)


@pytest.mark.parametrize("text", ["Saturated", "70M", "", "nan", "Infinity"])
def test_a_text_is_no_number(text):
    assert printed_interval(text) is None


def test_all_seven_tables_of_the_sources_are_there_and_what_is_not_is_refused():
    names = [table.name for table in TABLES]
    assert names == [*(f"weibull-table-{number}" for number in range(1, 7)), "weibull-text", "post-1-table-1"]
    assert [len(table.rows) for table in TABLES] == [3, 8, 5, 12, 5, 8, 30, 14]
    for table in TABLES:
        assert table.citation and table.place and table.title
        assert len(set(table.labels)) == len(table.labels)
    assert all("2605.18898" in table.link for table in TABLES if table.name.startswith("weibull"))
    for label in published_table("weibull-table-6").labels:
        name = our_name(label).partition(":")[0].partition(";")[0]
        room, _, function = name.rpartition(".")
        assert callable(getattr(importlib.import_module(room), function)), name
    assert our_name("F9_unheard_of") == ""
    with pytest.raises(ParameterError, match=r"weibull-table-9.*expected one of weibull-table-1"):
        published_table("weibull-table-9")
    table = published_table("weibull-table-3")
    with pytest.raises(ParameterError, match=r"Pythia-12B.*expected one of Pythia-70m"):
        table.number("Pythia-12B", "budget")
    with pytest.raises(ParameterError, match=r"column = 'state'.*holds a number"):
        table.interval("Pythia-70m", "state")
    assert Interval(1.0, 3.0).middle == 2.0


def test_every_digit_of_the_paper_is_on_the_page_of_the_recipe():
    for page in printed():
        table = published_table(page.name)
        words = {column: held.words for column, held in table.columns.items()}
        numbers = {
            (label, words[column], text)
            for label, row in zip(table.labels, table.rows, strict=True)
            for column, text in list(row.items())[1:]
            if column != "place" and printed_interval(text) is not None
        }
        shown = {row[:3] for row in page.rows}
        assert numbers <= shown
        assert {text for *_, text in shown - numbers} <= {"27 / 48"}
        agreeing = sum(row[4] == "yes" for row in page.rows)
        assert agreeing == sum(check.agrees for check in checks(table))
    assert len(table_1().rows) == len(published_table("post-1-table-1").rows)


def test_budgets_and_models_of_a_comparison_are_the_published_ones():
    scales, growth, tails = (published_table(f"weibull-table-{number}") for number in (4, 3, 2))
    models = published_models()
    assert models["published_model"].values.tolist() == list(scales.labels)
    for table, names in (
        (scales, {"mean_scale": "mean_scale"}),
        (growth, {"budget": "budget"}),
        (tails, {"max_to_q99": "max_to_q99_median"}),
    ):
        for label in scales.labels:
            for name, column in names.items():
                found = models[name].sel(published_model=label).item()
                expected = table.number(label, column) if label in table.labels else math.nan
                np.testing.assert_equal(found, expected)
    roots = [math.sqrt(scales.number(one, "peak_rate") / scales.number(one, "weight_decay")) for one in scales.labels]
    np.testing.assert_allclose(models["root"], roots, rtol=1e-15)
    growth, rates = published_table("weibull-table-3"), published_table("weibull-table-4")
    for label, row in zip(growth.labels, growth.rows, strict=True):
        training = Training(rates.number(label, "peak_rate"), rates.number(label, "weight_decay"), 143_000)
        assert growth.interval(label, "budget").low <= training.budget <= growth.interval(label, "budget").high
        assert training.state.startswith(row["state"].lower().rstrip("."))  # "Near-sat." is printed


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_published_numbers_are_those_of_first_principles_but_for_four(table):
    wrong = {(check.row, check.column) for check in checks(table) if not check.agrees and not check.expected.untrained}
    known = {
        "weibull-table-5": {(size, "measured") for size in ("Pythia-70m", "Pythia-160m", "Pythia-1B")},  # errata, 22
        "weibull-text": {("noise of the lowest tenth over the least", "value")},  # errata, 28
    }
    assert wrong == known.get(table.name, set())


def test_numbers_of_trained_weights_differ_from_those_of_untrained_ones():
    untrained = [check for table in TABLES for check in checks(table) if check.expected.untrained]
    assert len(untrained) == 3 + 5 + 7
    assert not any(check.agrees for check in untrained)


def expected(name, row, column):
    found = {(check.row, check.column): check.expected.interval for check in checks(published_table(name))}
    return found[row, column]


def test_the_five_ratios_are_those_of_the_closed_form():
    table = published_table("weibull-table-5")
    for label in table.labels:
        layers, width = (int(table.number(label, column)) for column in ("layers", "width"))
        recipe = "B" if label.endswith("6.9B") else "A"
        closed = math.sqrt(2 * layers) if recipe == "B" else layers / math.sqrt(10)
        sigmas = initial_sigmas(recipe, layers, width)
        assert sigmas.ratio == pytest.approx(closed, rel=1e-14)
        out = 0.02 / math.sqrt(2 * layers) if recipe == "B" else 2 / (layers * math.sqrt(width))
        assert sigmas.writes == pytest.approx(out, rel=1e-14)
        assert expected(table.name, label, "predicted") == pytest.approx((closed, closed), rel=1e-14)
        start = expected("weibull-table-3", label, "scale_start").middle
        assert start == pytest.approx(ANCHOR_SCALE * out, rel=1e-14)


def test_the_sampling_error_of_the_measured_ratio_is_that_of_drawn_matrices():
    rng, width = np.random.default_rng(5), 24  # one block: λ of 3 d², d², 4 d² and 4 d² weights

    def scale(draws, n):
        x = np.sort(np.log(np.abs(rng.standard_normal((draws, n)))), axis=1)
        p = (np.arange(n) + 0.5) / n
        kept = (p >= 0.1) & (p <= 0.9)
        x, y = x[:, kept], np.log(-np.log1p(-p[kept]))
        centred = x - x.mean(axis=1, keepdims=True)
        slope = (centred @ (y - y.mean())) / (centred**2).sum(axis=1)
        return np.exp(x.mean(axis=1) - y.mean() / slope)

    draws = 600
    three, one, four, other = (scale(draws, k * width**2) for k in (3, 1, 4, 4))
    found = (three / one + four / other).std() / 2
    low, high = expected("weibull-table-5", "Pythia-70m", "measured")
    in_table = (high - low) / (2 * 1.96) / (6 / math.sqrt(10)) * math.sqrt(6 * 512**2)
    assert found * width == pytest.approx(in_table, rel=0.12)  # four errors of the sd of 600 draws


def test_the_anchor_and_the_largest_weight_of_untrained_blocks_by_their_own_quantiles():
    p = 0.1 + 0.8 * (np.arange(200_000) + 0.5) / 200_000
    line = stats.linregress(np.log(math.sqrt(2) * erfinv(p)), np.log(-np.log1p(-p)))
    assert expected("weibull-text", "k of half-normal weights", "value").middle == pytest.approx(line.slope, rel=1e-8)
    scale = math.exp(-line.intercept / line.slope)
    assert expected("weibull-text", "λ/σ of half-normal weights", "value").middle == pytest.approx(scale, rel=1e-8)
    width, n = 512, 9 * 512**2
    sigmas = initial_sigmas("A", 6, width)
    shares = ((sigmas.reads, 4 / 9), (sigmas.writes, 5 / 9))

    def log_cdf(x):
        return np.log1p(-sum(share * 2 * stats.norm.sf(x / sigma) for sigma, share in shares))

    largest = optimize.brentq(lambda x: n * log_cdf(x) - math.log(0.5), 0.01, 1.0)
    quantile = optimize.brentq(lambda x: log_cdf(x) - math.log(0.99), 0.01, 1.0)
    found = expected("weibull-table-2", "Pythia-70m", "max_to_q99_median").middle
    assert found == pytest.approx(largest / quantile, rel=1e-9)
    sigmas = 2 / math.sqrt(5 * 2 * 512), 2 / (6 * math.sqrt(512))
    sigmas = math.sqrt(2 / (5 * 512)), sigmas[1]

    def cdf(x):
        return (4 * erf(x / (sigmas[0] * math.sqrt(2))) + 5 * erf(x / (sigmas[1] * math.sqrt(2)))) / 9

    p = 0.1 + 0.8 * (np.arange(4000) + 0.5) / 4000
    x = np.log([optimize.brentq(lambda x, q=q: cdf(x) - q, 1e-6, 1.0, xtol=1e-14) for q in p])
    line = stats.linregress(x, np.log(-np.log1p(-p)))
    shape, scale = line.slope, math.exp(-line.intercept / line.slope)
    for row, found in (
        ("k of Pythia-70m, pooled, at the start", shape),
        ("λ of Pythia-70m, pooled, at the start", scale),
    ):
        assert expected("weibull-text", row, "value").middle == pytest.approx(found, rel=1e-6)
    assert (round(shape, 3), round(scale, 4)) == (1.153, 0.0174)


@pytest.mark.parametrize(
    ("step", "published", "ratio", "shape"), [("5000", -29.9, "9.8", "1.183"), ("143000", -44.7, "14.3", "1.167")]
)
def test_the_published_tail_probabilities_follow_from_the_printed_ratio_and_shape(step, published, ratio, shape):
    low, high = expected("weibull-text", f"log10 of tail probability, step {step}", "value")
    assert low < published < high
    k, r = float(shape), (published / -2) ** (1 / float(shape))  # the ratio that gives the printed digits
    assert f"{r:.{len(ratio.partition('.')[2])}f}" == ratio
    # Body and tail of a Weibull law: at its own 99 % quantile the tail probability is 1 %, r times beyond −2 r^k.
    body = stats.weibull_min(k, scale=0.02)
    assert body.logsf(r * body.ppf(0.99)) / math.log(10) == pytest.approx(published, rel=1e-9)
