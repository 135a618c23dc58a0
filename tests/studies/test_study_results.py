"""Studies: what each claims is what its numbers say, and its page and its files have the same numbers."""

import json
import re

import numpy as np
import pytest
from scipy import stats
from study_files import STUDIES, held, study_module

import rmtbase
from rmtbase.results.trajectory import summarize_trajectory
from studies.calibration import quantile_errors
from studies.causes import mixture
from studies.causes.planted import CAUSES
from studies.causes.study import NAMED, PAGES, RESULTS, SHAPES, confusion, named_causes, sizes

HEAVY, SIGNAL, LEARNED, ERRORS = (
    held(study, *name)
    for study, *name in (("heavy_tails",), ("signal",), ("what_was_learned",), ("calibration", "quantile_errors.json"))
)
CAUSES_FOUND, MIXTURES = (json.loads(path.read_text(encoding="utf-8")) for path in (RESULTS, mixture.RESULTS))
planted, filters = study_module("signal", "planted"), study_module("what_was_learned", "filters")


def _called(truth, verdict):
    rows = [row for row in HEAVY["cases"] if row["truth"] == truth]
    known = sum(row["trials"] - row["refused"] for row in rows)
    return sum(row["verdicts"].get(verdict, 0) for row in rows) / known, known


def test_matrices_are_called_what_they_are_as_often_as_the_level_says():
    share, known = _called("noise", "noise")
    assert known >= 300
    assert 1.0 - share <= HEAVY["level"] + 2 * np.sqrt(HEAVY["level"] * (1 - HEAVY["level"]) / known)
    for verdict in ("spikes", "power law", "effective depth"):
        assert _called("noise", verdict)[0] <= HEAVY["level"]
    for truth in ("spikes", "power law", "effective depth"):
        for verdict in {"spikes", "power law", "effective depth"} - {truth}:
            share, known = _called(truth, verdict)
            # A true candidate is ruled out at the level, and another one stands then as well or not.
            assert share <= HEAVY["level"] + 2 * np.sqrt(HEAVY["level"] * (1 - HEAVY["level"]) / known)
    for row in HEAVY["cases"]:
        assert sum(row["verdicts"].values()) == row["trials"] - row["refused"]


CUTS = ("true_rank", "hard_threshold", "hard_threshold_unknown", "energy_90")


def test_too_many_are_found_as_often_as_the_level_says():
    error = np.sqrt(0.05 * 0.95 / SIGNAL["trials"])
    cases = SIGNAL["number_and_strength"] + SIGNAL["along"]
    assert len(cases) == 84
    # 5 % and two standard errors; of 84 cases one or two could lie beyond by chance, were all of them at 5 %.
    assert max(row["too_many"] for row in cases) <= 0.05 + 2 * error


def test_noise_of_any_chain_has_a_direction_as_often_as_the_level_says():
    untrained = [row for row in SIGNAL["other_entries"] if not row["planted"]]
    normal = [row["too_many_in_w_qk"] for row in untrained if row["entries"] == "normal"]
    assert len(normal) == 4
    for share in [*normal, *(row["any"] for row in SIGNAL["other_chains"])]:
        assert share <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / SIGNAL["trials"])
    for row in SIGNAL["other_chains"]:
        assert row["any_at_1_percent"] <= 0.01 + 2 * np.sqrt(0.01 * 0.99 / SIGNAL["trials"])
    rows = [
        row
        for row in SIGNAL["other_entries"]
        if not row["planted"] and row["entries"] in ("uniform", "normal truncated at 2", "logistic")
    ]
    products = [row["too_many_in_w_qk_with_kurtosis"] for row in rows]
    matrices = [
        row["too_many_in_w_q_with_kurtosis"] for row in rows if row["dims"][1] == 64 or row["entries"] == "uniform"
    ]
    assert (len(products), len(matrices)) == (12, 8)
    assert max(products + matrices) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / SIGNAL["trials"])


def test_heads_that_share_keys_have_the_level_and_more_power_as_one():
    for row in SIGNAL["key_groups"]:
        assert row["too_many_in_the_group"] <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / SIGNAL["trials"])
        if row["multiple"] == 1.0:
            assert row["found_in_the_group"] > 1.5 * row["found_in_any_head"]
            assert row["limits_hold"] > 0.93


def test_the_number_is_right_at_twice_the_threshold_and_limits_hold():
    rows = [row for row in SIGNAL["number_and_strength"] if row["planted"] and min(row["planted"]) >= 2.0]
    assert {len(row["planted"]) for row in rows} == {1, 2, 4, 8}
    assert min(row["exact"] for row in rows) >= 0.9
    for row in SIGNAL["number_and_strength"]:
        if row["planted"]:
            assert row["covered"] >= 0.95 - 2 * np.sqrt(0.05 * 0.95 / min(row["intervals"], SIGNAL["trials"]))


def test_a_factor_shows_what_the_product_hides_and_the_shrunken_signal_is_nearly_the_oracles():
    found = {row["multiple"]: row for row in SIGNAL["one_factor"]}
    assert found[1.0]["found_in_w_q"] >= 0.45 > found[1.0]["found_in_w_qk"]
    assert found[1.2]["found_in_w_q"] >= 0.90 > found[1.2]["found_in_w_qk"]
    for row in SIGNAL["shrinkage"]:
        assert row["shrunken"] <= 1.05 * row["oracle"]
        assert row["shrunken"] < min(row[name] for name in CUTS)


def test_a_planted_head_has_the_moments_of_its_full_matrices():
    dims, strengths, rng = (30, 6, 20), [9.0, 5.0], np.random.default_rng(0)
    small = []
    for _ in range(2000):
        noise, signal, _ = planted.head(rng, dims, strengths)
        small.append(np.sort(np.linalg.svd(noise + signal, compute_uv=False) ** 2))
    full = []
    for _ in range(2000):
        a = np.linalg.qr(rng.standard_normal((6, 2)))[0]
        w_q = rng.standard_normal((6, 30))
        w_q[:, :2] += a * strengths
        full.append(np.sort(np.linalg.svd(w_q.T @ rng.standard_normal((6, 20)), compute_uv=False)[:6] ** 2))
    difference = np.log(small).mean(axis=0) - np.log(full).mean(axis=0)
    error = np.sqrt((np.log(small).var(axis=0) + np.log(full).var(axis=0)) / 2000)
    assert (np.abs(difference) < 4.5 * error).all()  # six comparisons: by chance in 4e-5


def test_a_filtered_head_has_the_product_that_its_variant_says():
    """Two planted directions: the shrunken product is their estimate, truncated and rest add up to the whole."""
    rng = np.random.default_rng(3)
    w_q, w_k = rng.standard_normal((2, 32, 128))
    w_q[:2] += np.array([[60.0], [40.0]]) * np.eye(128)[:2]
    products = {}
    for variant in filters.VARIANTS:
        q, k, part = filters.filtered(w_q, w_k, variant)
        products[variant] = q.T @ k
    assert part.values.size == 2
    assert products["whole"] == pytest.approx(w_q.T @ w_k, abs=1e-8)
    assert products["truncated"] + products["rest"] == pytest.approx(products["whole"], abs=1e-8)
    assert np.linalg.matrix_rank(products["truncated"], tol=1e-6) == 2
    assert products["shrunken"] == pytest.approx((part.left * part.values) @ part.right, abs=1e-8)
    assert abs(products["nothing"]).max() < 1e-9


def test_the_rest_is_worth_nothing_and_the_directions_nearly_all_as_the_readme_says():
    text = (STUDIES / "what_was_learned" / "README.md").read_text(encoding="utf-8")
    for one in LEARNED.values():
        bits = one["bits_per_byte"]
        assert all(f"{number:.3f}" in text for number in bits.values())
        worth = bits["nothing"] - bits["whole"]
        assert 1.8 < worth < 3.7
        assert abs(bits["nothing"] - bits["rest"]) < 0.008
        assert 0.002 < bits["truncated"] - bits["whole"] < 0.015
    heads = LEARNED["final"]["each_head"]
    assert np.max(np.abs(np.subtract(heads["rest"], heads["nothing"]))) < 0.001


def test_errors_of_quantiles_are_right_in_size_and_cover_where_ten_draws_or_more_lie_beyond():
    assert ERRORS["summary"] == quantile_errors.summary(ERRORS["rows"])
    assert min(map(quantile_errors.beyond, ERRORS["rows"])) == 10
    for group in ERRORS["summary"]:
        assert 93 < group["covered_percent"] < 96, group
        assert group["heavy"] or 0.99 < group["ratio"] < 1.1, group
    # No single quantile covers less than 89 % by more than its sampling error: 2 000 or 200 tables, 744 quantiles.
    for row in ERRORS["rows"]:
        assert stats.binom.cdf(round(row["covered"] * row["tables"]), row["tables"], 0.92) > 1e-3 / 744, row


def test_the_study_measures_what_it_says():
    sample = np.random.default_rng(3).standard_normal((40_000, len(quantile_errors.STATISTICS)))
    rows = quantile_errors.measure(sample, 200)
    assert {row["tables"] for row in rows} == {200}
    assert {row["probability"] for row in rows} == {0.05, 0.16, 0.25, 0.5, 0.75, 0.84, 0.95}
    # The median of 200 normal numbers: 8 statistics of 200 tables each, ratio and coverage known to 1.8 % and 0.6 %.
    ratios, covered = np.array([(row["ratio"], row["covered"]) for row in rows if row["probability"] == 0.5]).T
    assert ratios.mean() == pytest.approx(1.0, abs=0.09)
    assert covered.mean() == pytest.approx(0.945, abs=0.03)


def test_untrained_components_are_called_nearer_no_more_often_than_the_level():
    for width, row in held("calibration", "nearest_published.json")["widths"].items():
        for level in (0.5, 0.1, 0.05, 0.01):
            count = round(row[f"share_below_{level:g}"] * row["components"])
            assert stats.binomtest(count, row["components"], level).pvalue > 0.01, (width, level)
        assert stats.binom.sf(row["models_named"] - 1, row["models"], 0.05) > 0.05, width


def test_every_cause_was_tried_and_of_the_heads_with_a_named_cause_at_most_5_percent_are_wrong():
    """In all, and in every cell but for chance: if each cell had 5 %, this would fail in 1 % of studies."""
    assert list(CAUSES_FOUND["cases"]) == list(CAUSES)
    assert all(list(cases) == [f"{d}x{h}" for d, h in SHAPES] for cases in CAUSES_FOUND["cases"].values())
    cells = {(cause, shape): one for cause, cases in CAUSES_FOUND["cases"].items() for shape, one in cases.items()}
    named = {place: CAUSES_FOUND["heads"] - one["unresolved"] - one["nothing"] for place, one in cells.items()}
    assert sum(one["wrong"] for one in cells.values()) <= 0.05 * sum(named.values())
    for place, one in cells.items():
        assert one["wrong"] <= stats.binom.ppf(1.0 - 0.01 / len(cells), named[place], 0.05), place


def test_tables_are_those_of_the_results():
    tables = {"confusion": confusion(CAUSES_FOUND), "sizes": sizes(CAUSES_FOUND)}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name in ("confusion", "sizes"):
            assert f"<!-- begin {name} -->" not in text or tables[name] in text
    assert tables["confusion"] in PAGES[1].read_text(encoding="utf-8")


def test_causes_are_those_of_the_tests_that_name_one():
    tests = ("query", "query_signs", "subspaces", "key_entries")
    assert named_causes(tests, (False, True, True, False)) == set(NAMED[:1]) | {NAMED[2]}
    assert named_causes(tests, (False, False, False, True)) == {NAMED[4]}
    assert named_causes(tests, (False, False, False, False)) == set()


def test_of_heads_with_a_named_cause_at_most_5_percent_are_wrong_in_every_mixture():
    """Within two standard errors of the study."""
    assert list(MIXTURES["shapes"]) == [f"{d}x{h}" for d, h in mixture.SHAPES]
    for shape, cases in MIXTURES["shapes"].items():
        assert list(cases) == list(mixture.MIXTURES)
        for name, models in cases.items():
            for heads, case in models.items():
                error = case["wrong_of_named_standard_error"]
                assert case["wrong_of_named"] <= 0.05 + 2 * error, (shape, name, heads)
    assert mixture.table(MIXTURES) in PAGES[0].read_text(encoding="utf-8")


ROW = re.compile(r"^\| (\d+) \| (\d+) \| ([\d.]+) \|$", flags=re.MULTILINE)


def test_the_tables_of_training_are_those_of_the_trajectory():
    summary = summarize_trajectory(rmtbase.open_table(STUDIES / "training_run" / "trajectory.nc"))
    rows = ROW.findall((STUDIES / "training_run" / "README.md").read_text(encoding="utf-8"))
    assert len(rows) > 6
    at = {one.step: one for one in summary.steps}
    for step, left, median in rows:
        found = at[int(step)]
        assert found.left["gaussian"] == int(left)
        assert f"{found.median_participation_ratio:.3f}" == median
    results = json.loads((STUDIES / "training_run" / "results.json").read_text(encoding="utf-8"))
    assert results["steps"] == len(summary.steps) == 41
    assert all(results["same_as_shipped"].values())
    for one in summary.departures:
        expected = json.loads(json.dumps(one._asdict()))
        assert results["departures"][expected.pop("null")] == expected


MEASURES = {
    "queries": "attention_query weibull_shape",
    "keys": "attention_key weibull_shape",
    "values": "attention_value weibull_shape",
    "attention output": "attention_output weibull_shape",
    "MLP, in": "mlp_in weibull_shape",
    "MLP, out": "mlp_out weibull_shape",
    "NPR of W_QK": "median normalized_participation_ratio",
}


def test_means_differences_and_losses_of_the_twins_are_those_of_their_comparison():
    comparison = rmtbase.open_table(STUDIES / "attention_twins" / "comparison.nc", "comparison")
    text = (STUDIES / "attention_twins" / "README.md").read_text(encoding="utf-8").replace("−", "-")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]
    between = comparison["between"].to_dataset()
    found = [row for row in rows if row[0] in MEASURES]
    assert len(found) == len(MEASURES)
    for name, *means, adjusted in found:
        own = between.sel(measure=MEASURES[name])
        assert means == [f"{mean:.3f}" for mean in own["mean"].values]
        assert adjusted == f"{float(own['adjusted_p_value']):.2f}"
    groups = comparison["groups"].to_dataset()
    found = [row for row in rows if " → " in row[0]]
    assert len(found) == 13
    for pair, name, difference, interval, p, adjusted in found:
        own = groups.sel(contrast=pair.replace(" → ", " | "), measure=MEASURES[name])
        assert difference == f"{float(own['difference']):+.3f}"
        assert interval == f"{float(own['interval_low']):+.3f} to {float(own['interval_high']):+.3f}"
        assert (p, adjusted) == tuple(f"{float(own[key]):.2g}" for key in ("p_value", "adjusted_p_value"))
    members = comparison["members"].to_dataset()
    losses = json.loads((STUDIES / "attention_twins" / "losses.json").read_text(encoding="utf-8"))
    assert list(losses) == members["model"].values.tolist()
    seeds = [int(re.search(r"\d+$", name)[0]) for name in losses]
    assert len(set(seeds)) == len(seeds) == 17
    told = {row[0]: row for row in rows if len(row) == 6 and row[0] in members["group_of"].values}
    assert len(told) == 5
    for group, row in told.items():
        own = [losses[name] for name in members["model"].values[members["group_of"].values == group]]
        assert len(own) == int(row[4])
        assert row[5] == f"{np.min(own):.2f} – {np.max(own):.2f}"
