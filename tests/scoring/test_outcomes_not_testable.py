"""Three outcomes of a test: counts are of what was tested, and what could not be is beside them, with its reason."""

import json

import numpy as np
import pytest

import rmtbase
from rmtbase.models import open_model
from rmtbase.nulls import Table
from rmtbase.reasons import NotTestable, Reason
from rmtbase.results.scores import summarize_scores
from rmtbase.results.signal import signal, signal_rows
from rmtbase.results.signal._decisions import Module, decisions_text, left_out_of
from rmtbase.results.signal.rows import signal_headline, summarize_signal
from rmtbase.results.trajectory.schema import departure_steps
from rmtbase.words import of_tested, plural, untested_words

SHORT = [NotTestable(f"layer {k}", Reason("too_short", {"length": k, "needed": 8})) for k in range(1, 4)]
ZEROS = [NotTestable("layer 9", Reason("all_zeros"))]
SHORTEST = "a spectrum of length 1 is too short for any law (8 needed)"


def test_nouns_have_their_plurals():
    plurals = {"spectrum": "spectra", "weight matrix": "weight matrices", "pair of models": "pairs of models"}
    plurals |= {"overlap of subspaces": "overlaps of subspaces", "part of a head": "parts of heads"}
    for noun, many in (plurals | {noun: f"{noun}s" for noun in ("head", "key head", "module", "group")}).items():
        assert [plural(count, noun) for count in (0, 1, 2)] == [many, noun, many]


def test_a_headline_counts_what_was_tested_and_names_the_rest_and_the_commonest_reasons():
    assert of_tested(2, 5, [], "head", "differ") == "2 of 5 heads differ"
    alone = of_tested(0, 0, SHORT, "spectrum", "have a direction")
    assert alone == f"3 of 3 spectra cannot be tested: {SHORTEST}"
    both = of_tested(1, 6, SHORT + ZEROS, "spectrum", "have a direction")
    assert both.startswith("1 of 6 testable spectra have a direction; 4 of 10 spectra cannot be tested: ")
    assert both.endswith(f"{SHORTEST} (3); {ZEROS[0].reason.words} (1)")
    assert untested_words([], 7, "head") == ""
    codes = ("all_zeros", "not_recorded", "missing_values", "too_few_left", "equal_heads", "unchanged", "all_zeros")
    words = untested_words([NotTestable("a", Reason(code)) for code in codes], 9, "head")
    assert words.count("(1)") == 3 and "(2)" in words.partition(";")[0] and words.endswith("; other reasons (2)")


@pytest.fixture(scope="module")
def null():
    return rmtbase.baseline(32, 8, draws=60)


def test_what_so_few_draws_cannot_find_is_said_with_the_number_that_could(null):
    heads = np.random.default_rng(0).standard_normal((2, 1, 4, 8, 32))

    def summary_by(table):
        return summarize_scores(rmtbase.score_heads(*heads, Table(table)))

    summary = summary_by(null)
    # The smallest p-value of 60 draws is 1/61, and k of 4 heads at it have q = 4/(61 k): below 5 % from k = 2 on.
    assert (summary.n_heads, summary.fewest, summary.not_testable) == (4, 2, ())
    assert "With so few draws of the null none can be found unless 2 or more heads differ." in summary.sentences()[0]
    summary = summary_by(rmtbase.baseline(32, 8, draws=30))  # 2/31 > 5 % of one statistic, 1/31 < 5 % of all together
    assert summary.n_heads == 4 and summary.flagged == {}
    (reason,) = set(summary.unscored.values())
    assert reason.words == "30 draws of the null give no p-value below 0.065 (40 needed)"
    summary = summary_by(rmtbase.baseline(32, 8, draws=19))
    assert summary.n_heads == 0 and len(summary.not_testable) == 4
    words = {head.reason.words for head in summary.not_testable}
    assert words == {"19 draws of the null give no p-value below 0.05 (20 needed)"}
    assert summary_by(rmtbase.baseline(32, 8, draws=20)).n_heads == 4


def test_fdr_is_over_the_heads_that_were_tested(null):
    scores = []
    for zeros in (0, 2):  # heads of a GPT-2 layer whose queries are zeros
        attention = np.random.default_rng(1).standard_normal((32, 96))
        attention[:, : 8 * zeros] = 0.0
        state = {"h.0.attn.c_attn.weight": attention, "h.0.attn.c_proj.weight": np.eye(32)}
        model = open_model(state, family="gpt2", config={"n_head": 4})
        scores.append(rmtbase.score(model, Table(null), matrices="none")["heads"].to_dataset())
    every, half = scores
    p_value = every["omnibus_p_value"].values[0, 2:]
    np.testing.assert_array_equal(half["omnibus_p_value"].values[0, 2:], p_value)
    np.testing.assert_array_equal(half["omnibus_q_value"].values[0, 2:], rmtbase.statistics.benjamini_hochberg(p_value))
    assert (
        np.isnan(half["omnibus_q_value"].values[0, :2]).all() and np.isnan(half["outliers_above"].values[0, :2]).all()
    )
    assert half["reason"].values.tolist() == [['zero_factor {"factor": "W_Q"}'] * 2 + [""] * 2]


def test_numbers_that_are_not_known_are_no_zeros_in_the_summary_of_a_kind():
    w_q, w_k = np.random.default_rng(4).standard_normal((2, 1, 3, 8, 40))
    w_q[0, 0] += 9.0 * np.outer(np.ones(8), np.ones(40))  # one direction, and too few values left below it
    tree = signal(rmtbase.models.ArrayModel.from_factors(w_q, w_k, "made"), circuits=("qk",), matrices="none")
    rows = signal_rows(tree)
    (one,) = summarize_signal(rows)
    assert [one[name] for name in ("spectra", "testable", "unknown", "most", "median")] == [3, 3, 1, 1.0, 0.0]
    said = signal_headline(rows, 0.05)
    why = "too few eigenvalues are left below the directions"
    assert said.endswith(f"; 1 of 3 spectra has no number of directions: {why}.") and "the rest" not in said
    assert (one["no_floor"], rows[0].reason.words, rows[0].no_number) == (0.0, why, "too_few_left") and rows[0].testable


def test_modules_that_cannot_be_tested_are_told_beside_the_decisions():
    nan = float("nan")
    modules = [
        Module("found", 2, 0.4, 1e-6, 1e-5),
        Module("no floor", nan, nan, 1e-6, 1e-5, no_number=Reason("too_few_left")),
        Module("not found", 0, 0.0, 0.5, 0.5),
        Module("short", nan, nan, nan, nan, Reason("too_short", {"length": 4, "needed": 8})),
    ]
    text = decisions_text(modules, 0.05, "yaml")
    assert text.startswith("# 2 of 3 testable modules have learned directions (q < 0.05; ")
    short = "1 of 4 modules cannot be tested: a spectrum of length 4 is too short for any law (8 needed)"
    assert short in text.splitlines()[0]
    assert "short" not in "".join(text.splitlines()[1:]) and "  # no number: too few eigen" in text
    assert json.loads(decisions_text(modules, 0.05, "peft"))["target_modules"] == ["found"]
    told = left_out_of(modules, 0.05, "peft")
    assert told[0] == f"{short}: left out"
    why = "too few eigenvalues are left below the directions"
    assert told[1] == f"1 module with learned directions, whose number is not known ({why}): left out"
    assert left_out_of(modules, 0.05, "yaml") == []


def test_a_step_without_a_test_does_not_end_a_departure_and_the_last_one_cannot_be_without():
    nan, steps = np.nan, np.array([0, 10, 20, 30])
    q_value = np.array([[0.9, 0.01, nan, 0.01], [0.01, 0.01, 0.01, nan], [nan, nan, 0.9, 0.01]]).T[:, None, None]
    first, lasting = departure_steps(q_value, steps)
    np.testing.assert_array_equal(first[0, 0], [10, 0, 30])
    np.testing.assert_array_equal(lasting[0, 0], [10, nan, 30])
