"""A planted rank-one spike is found, in its head and no other, and named."""

import numpy as np
import pytest

import rmtbase
from rmtbase.nulls import Gaussian
from rmtbase.results.scores import summarize_scores


@pytest.fixture(scope="module")
def planted(make_weights, tmp_path_factory):
    """Two layers of 16 heads at (64, 8); head 5 of layer 1 has a spike of twice the null's largest singular value."""
    rng = np.random.default_rng(17)
    queries, keys = rng.standard_normal((2, 2, 16, 8, 64))
    left, right = rng.standard_normal((2, 64))
    direction = rng.standard_normal(8)
    direction /= np.linalg.norm(direction)
    queries[1, 5] += 3.0 * np.outer(direction, left)
    keys[1, 5] += 3.0 * np.outer(direction, right)
    folder = make_weights(0.02 * queries, 0.02 * keys).save(tmp_path_factory.mktemp("spike") / "planted")
    # 32 random heads at a false discovery rate of 5 %: the chance that any random head is called beside the planted
    # one is about 2 * 0.05 * 31/32 = 10 % over seeds; seed and draws are fixed, so the outcome is too.
    return rmtbase.score(folder, Gaussian(draws=4000))


def test_only_the_planted_head_is_found_and_sentences_say_by_what_and_how_far(planted):
    summary = summarize_scores(planted)
    assert [(finding.layer, finding.head) for finding in summary.findings] == [(1, 5)]
    (finding,) = summary.findings
    assert finding.outliers_above == 1
    assert abs(finding.z_score) > 5
    sentence = finding.sentence()
    assert sentence.startswith("Layer 1 head 5: ")
    assert f"{abs(finding.z_score):.1f} standard deviations " in sentence
    assert finding.at_floor
    assert f"q ≤ {finding.omnibus_q_value:.2g}" in sentence
    lines = summary.sentences()
    assert lines[0] == "1 of 32 heads differs from random heads (false discovery rate 5%)."
    assert lines[1].startswith("Moved share of ‖W_QK‖²: layer 1 head 5 (")
    assert sum("head" in line and line.startswith("Layer") for line in lines) == 1
    assert summary.flagged["largest_eigenvalue"] >= 1


def test_csv_carries_every_number_back(planted):
    header, *rows = (line.split(",") for line in rmtbase.export(planted).decode().splitlines())
    heads = planted["heads"].to_dataset()
    statistics = heads["statistic"].values.tolist()
    assert len(rows) == 32 * len(statistics)
    assert len(set(header)) == len(header)
    columns = {name: [row[place] for row in rows] for place, name in enumerate(header)}
    assert [
        (int(a), int(b), c) for a, b, c in zip(*(columns[x] for x in ("layer", "head", "statistic")), strict=True)
    ] == [(layer, head, name) for layer in range(2) for head in range(16) for name in statistics]
    for field in ("observed", "null_mean", "null_std", "z_score", "p_value", "q_value"):
        expected = heads[field].transpose("layer", "head", "statistic").values.ravel()
        np.testing.assert_array_equal(np.array(columns[field], dtype=float), expected)
    for field in ("sigma_q", "sigma_k", "outliers_above", "outliers_below", "omnibus_p_value", "omnibus_q_value"):
        expected = np.repeat(heads[field].values.ravel(), len(statistics))
        np.testing.assert_array_equal(np.array(columns[field], dtype=float), expected)
    for field, read in (("farthest_statistic", str), ("key_head", int)):
        expected = np.repeat(heads[field].values.ravel(), len(statistics)).tolist()
        assert [read(one) for one in columns[field]] == expected
