"""Heads without a shape, and heads without full rank: said, never hidden, and the others scored as ever."""

import json

import numpy as np
import pytest

import rmtbase
from rmtbase.errors import ParameterError
from rmtbase.models import open_model
from rmtbase.nulls import Gaussian, Table
from rmtbase.reasons import Reason
from rmtbase.results import open_table
from rmtbase.results.scores import summarize_scores
from rmtbase.tables import write_table
from telling import Told

DRAWS = 400


def warnings_of_heads(tree):
    """Without those of whole matrices, which a head of zeros is in."""
    return [line for line in json.loads(tree.attrs["warnings"]) if " head " in line.partition(":")[0]]


@pytest.fixture
def score_model(null_table, tmp_path):
    """Score weights as a checkpoint."""

    def score(weights, null=None, **options):
        return rmtbase.score(weights.save(tmp_path / "model"), null or Table(null_table), **options)

    return score


@pytest.mark.parametrize("mode", ["none", "elements", "spectra"])
def test_zero_head_is_recorded_and_the_rest_is_scored(mode, weights, score_model):
    usual = score_model(weights, matrices=mode)
    weights.queries[1, 2] = 0
    notes = Told()
    tree = score_model(weights, matrices=mode, progress=notes)
    why = "W_Q is zeros, or rounding to them"
    line = f"layer 1 head 2: {why}; not tested by W_QK"
    assert warnings_of_heads(tree) == [line] and line in notes
    of_elements = json.loads(tree.attrs["warnings"])[1:]
    assert [one.partition(":")[0] for one in of_elements] == ["layer 1 attention_query"] * (mode != "none")
    heads = tree["heads"].to_dataset()
    for name in ("z_score", "p_value", "q_value", "omnibus_p_value", "omnibus_q_value"):
        missing = np.isnan(heads[name].values.reshape(2, 4, -1)).all(axis=-1)
        assert np.argwhere(missing).tolist() == [[1, 2]], name
    np.testing.assert_array_equal(heads["p_value"].values[~missing], usual["heads"]["p_value"].values[~missing])
    assert heads["farthest_statistic"].values[1, 2] not in heads["statistic"].values
    assert np.argwhere(heads["reason"].values != "").tolist() == [[1, 2]]
    assert np.isnan(heads["outliers_above"].values[1, 2])
    summary = summarize_scores(tree)
    assert summary.n_heads == 7
    assert summary.not_testable == (("layer 1 head 2", Reason("zero_factor", {"factor": "W_Q"})),)
    assert f"Not tested: 1 of 8 heads cannot be tested: {why}." in summary.answer()
    assert summary.warnings == (line, *of_elements)


def test_zero_key_head_takes_its_whole_group_a_zero_matrix_scores_nan_and_of_zeros_no_head_is_judged(
    weights, score_model
):
    weights.keys[0, 1] = 0
    tree = score_model(weights)
    assert [line.partition(":")[0] for line in warnings_of_heads(tree)] == ["layer 0 head 2, layer 0 head 3"]
    assert np.isnan(tree["heads"]["omnibus_p_value"].values).sum() == 2
    weights.queries[1] = 0
    tree = score_model(weights, matrices="spectra")
    found = np.isnan(tree["matrices"]["p_value"].values).all(axis=-1)
    assert np.argwhere(found).tolist() == [[1, 0]]
    assert any(line.startswith("layer 1 attention_query") for line in json.loads(tree.attrs["warnings"]))
    weights.queries[:], weights.keys[:] = 0, 0
    summary = summarize_scores(score_model(weights))
    assert (summary.n_heads, summary.findings) == (0, ())
    assert summary.verdict() == "Whether heads differ from random heads cannot be told."


@pytest.mark.parametrize("defect", ["dead dimension", "twin dimension"])
def test_rank_deficient_head_is_infinitely_far_and_no_rounding_noise_stands_in_for_a_zero(
    defect, weights, score_model, null_table, run, tmp_path
):
    # one of the eight query dimensions of layer 0 head 1
    weights.queries[0, 1, 3] = 0 if defect == "dead dimension" else 2 * weights.queries[0, 1, 5]
    tree = score_model(weights)
    head = tree["heads"].to_dataset().sel(layer=0, head=1)
    assert head["eigenvalue"].values[-1] == 0 and (head["eigenvalue"].values[:-1] > 0).all()
    for name, value in (("log_determinant", -np.inf), ("condition_number", np.inf), ("smallest_eigenvalue", 0)):
        assert head["observed"].sel(statistic=name) == value, name
        assert head["p_value"].sel(statistic=name).item() == pytest.approx(2 / (DRAWS + 1)), name
    assert head["z_score"].sel(statistic="log_determinant") == -np.inf
    assert head["omnibus_p_value"].item() == pytest.approx(1 / (DRAWS + 1))
    assert head["outliers_below"] >= 1

    opened = open_table(write_table(tree, tmp_path / "scores.nc"), "scores")
    assert opened["heads"].to_dataset().identical(tree["heads"].to_dataset())
    assert "-inf" in rmtbase.export(tree).decode()
    summary = summarize_scores(tree)
    assert [(finding.layer, finding.head) for finding in summary.findings] == [(0, 1)]
    printed = run("score", tmp_path / "model", "--null", write_table(null_table, tmp_path / "null.nc"), "--json")
    said = json.loads(printed.out, parse_constant=pytest.fail)  # NaN and Infinity are no JSON
    assert [finding["head"] for finding in said["findings"]] == [1]
    assert "nan" not in summary.findings[0].sentence()


def test_heads_wider_than_the_model_and_a_revision_beside_an_opened_model_are_refused(
    make_weights, model_folder, tmp_path
):
    queries, keys = np.random.default_rng(0).standard_normal((2, 1, 2, 8, 6))
    with pytest.raises(ParameterError, match="d_head = 8: expected at most d_model = 6"):
        rmtbase.score(make_weights(queries, keys).save(tmp_path / "wide"), Gaussian(draws=100))
    with pytest.raises(ParameterError, match="revision = 'step-7'"):
        open_model(open_model(model_folder), "step-7")
