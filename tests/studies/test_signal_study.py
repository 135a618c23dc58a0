"""The study of signal and noise: what it claims is what its numbers say, and its heads are what they are said to be."""

import numpy as np
from study_files import held, study_module

results, planted = held("signal"), study_module("signal", "planted")
CUTS = ("true_rank", "hard_threshold", "hard_threshold_unknown", "energy_90")


def test_too_many_are_found_as_often_as_the_level_says():
    error = np.sqrt(0.05 * 0.95 / results["trials"])
    cases = results["number_and_strength"] + results["along"]
    assert len(cases) == 84
    # 5 % and two standard errors; of 84 cases one or two could lie beyond by chance, were all of them at 5 %.
    assert max(row["too_many"] for row in cases) <= 0.05 + 2 * error


def test_noise_of_any_chain_has_a_direction_as_often_as_the_level_says():
    untrained = [row for row in results["other_entries"] if not row["planted"]]
    normal = [row["too_many_in_w_qk"] for row in untrained if row["entries"] == "normal"]
    assert len(normal) == 4
    for share in [*normal, *(row["any"] for row in results["other_chains"])]:
        assert share <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / results["trials"])
    for row in results["other_chains"]:
        assert row["any_at_1_percent"] <= 0.01 + 2 * np.sqrt(0.01 * 0.99 / results["trials"])


def test_noise_of_other_entries_has_a_direction_as_often_where_its_kurtosis_is_known():
    rows = [
        row
        for row in results["other_entries"]
        if not row["planted"] and row["entries"] in ("uniform", "normal truncated at 2", "logistic")
    ]
    products = [row["too_many_in_w_qk_with_kurtosis"] for row in rows]
    matrices = [
        row["too_many_in_w_q_with_kurtosis"] for row in rows if row["dims"][1] == 64 or row["entries"] == "uniform"
    ]
    assert (len(products), len(matrices)) == (12, 8)
    assert max(products + matrices) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / results["trials"])


def test_heads_that_share_keys_have_the_level_and_more_power_as_one():
    for row in results["key_groups"]:
        assert row["too_many_in_the_group"] <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / results["trials"])
        if row["multiple"] == 1.0:
            assert row["found_in_the_group"] > 1.5 * row["found_in_any_head"]
            assert row["limits_hold"] > 0.93


def test_the_number_is_right_at_twice_the_threshold():
    rows = [row for row in results["number_and_strength"] if row["planted"] and min(row["planted"]) >= 2.0]
    assert {len(row["planted"]) for row in rows} == {1, 2, 4, 8}
    assert min(row["exact"] for row in rows) >= 0.9


def test_limits_hold():
    for row in results["number_and_strength"]:
        if row["planted"]:
            assert row["covered"] >= 0.95 - 2 * np.sqrt(0.05 * 0.95 / min(row["intervals"], results["trials"]))


def test_a_factor_shows_what_the_product_hides():
    found = {row["multiple"]: row for row in results["one_factor"]}
    assert found[1.0]["found_in_w_q"] >= 0.45 > found[1.0]["found_in_w_qk"]
    assert found[1.2]["found_in_w_q"] >= 0.90 > found[1.2]["found_in_w_qk"]


def test_the_shrunken_signal_is_nearly_the_oracles():
    for row in results["shrinkage"]:
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
