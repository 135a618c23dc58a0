"""The learned part of a product, its directions, and these read as tokens."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from rmtbase.errors import CorruptFileError, ParameterError
from rmtbase.heads.direction_tokens import (
    DirectionReading,
    direction_tokens,
    nearest_by_chance,
    nearest_words,
    sides_in_stream,
)
from rmtbase.models import MatrixName, Place, open_model, token_names
from rmtbase.results.signal import learned_part, signal, signal_rows, spectral_signal
from rmtbase.results.signal._learned_part import learned_part_of, read_directions
from rmtbase.results.signal.report import _reading_items

HEAD = (16, 120)


@pytest.fixture(scope="module")
def demo():
    return open_model("demo", "step-200")


@pytest.fixture(scope="module")
def factors():
    """W_Q and W_K of a head whose W_Q has learned two directions, strong ones."""
    rng = np.random.default_rng(5)
    w_q, w_k = rng.standard_normal((2, *HEAD))
    w_q[0, 0] += 60.0
    w_q[1, 1] += 40.0
    return w_q, w_k


def test_the_product_is_factored_without_being_formed_and_near_what_was_planted(factors):
    w_q, w_k = factors
    part = learned_part(w_q, w_k)
    u, s, vt = np.linalg.svd(w_q.T @ w_k)
    alone = spectral_signal(s[:16] ** 2, (120, 16, 120))
    assert part.values.size == alone.n_directions == 2
    np.testing.assert_allclose(part.values, alone.shrunken, rtol=1e-10)
    dense = (u[:, :2] * alone.shrunken) @ vt[:2]
    np.testing.assert_allclose((part.left * part.values) @ part.right, dense, atol=1e-8 * s[0])
    np.testing.assert_allclose(part.left.T @ part.left, np.eye(2), atol=1e-12)
    planted = np.zeros((120, 120))
    planted[0], planted[1] = 60.0 * w_k[0], 40.0 * w_k[1]
    error = np.sum(((part.left * part.values) @ part.right - planted) ** 2)
    cut = np.sum(((u[:, :2] * s[:2]) @ vt[:2] - planted) ** 2)
    assert error < cut
    # Its own expectation holds within a factor of two for a single head: the error is of 240 numbers and more.
    assert 0.5 < error / part.signal.expected_error < 2.0
    # The computed left vectors lie where they were planted, as nearly as is said.
    cosines = part.left[[0, 1], [0, 1]] ** 2
    np.testing.assert_allclose(cosines, part.signal.overlap_left, atol=0.03)


def test_of_a_model_it_is_that_of_the_row_and_readings_are_of_the_sides_in_the_stream(demo):
    rows = signal_rows(signal(open_model(demo, proof=False), circuits=("value",), matrices="none"))
    row = next(row for row in rows if row.what == "value" and len(row.directions) > 1)
    part = learned_part_of(demo, row.layer, "value", row.head)
    np.testing.assert_allclose(part.values, [one["shrunken"] for one in row.directions], rtol=1e-8)
    assert part.right.shape == (len(row.directions), 128)
    matrix = demo.matrix(1, "mlp_in")
    np.testing.assert_allclose(learned_part_of(demo, 1, "mlp_in").values, learned_part(matrix).values)
    rows = signal_rows(signal(open_model(demo, proof=False), circuits=("ov", "query"), matrices="none"))
    chosen = [next(row for row in rows if row.what == what and row.directions) for what in ("qk", "ov", "query")]
    readings = list(read_directions(demo, chosen, 0.05, 1, names=token_names(demo.path)))
    sides = [(one.what, one.side, one.written) for one in readings]
    of_ov = [("ov", "right", False), ("ov", "left", True)]
    assert sides == [("qk", "left", False), ("qk", "right", False), *of_ov, ("query", "right", False)]
    assert all(len(one.above) == len(one.below) == 5 for one in readings)
    assert sides_in_stream("router") == {}


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0, "mlp_in", 1), "what"),
        ((0, "qk", None), "head"),
        ((0, "qk", 8), "head"),
        ((0, "key", 4), "head"),
        ((9, "qk", 0), "layer"),
    ],
)
def test_a_head_that_is_not_there_is_named(arguments, name, demo):
    with pytest.raises(ParameterError) as caught:
        learned_part_of(demo, *arguments)
    assert caught.value.name == name


def test_scores_of_tokens_are_standardised_and_the_embedding_of_a_token_reads_as_that_token(demo):
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((400, 128))
    scores = direction_tokens(demo, directions, count=256)
    z = np.take_along_axis(scores.z_above, np.argsort(scores.above, axis=1), axis=1)  # by token
    embedding = np.concatenate(list(demo.blocks(demo.parts["embeddings"][0]))).astype(float)
    unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    expected = np.sqrt(128) * unit @ embedding.T / np.linalg.norm(embedding, axis=1)
    np.testing.assert_allclose(z, expected, atol=1e-12)
    assert (z**2).mean() == pytest.approx(1.0, abs=5 * np.sqrt((z**2).mean(axis=1).var() / 400))
    np.testing.assert_array_equal(scores.above, scores.below[:, ::-1])
    # The p-value is a bound: not above a level more often than the level says; P(more than 34 of 400 at 5 %) = 1e-3.
    assert (scores.p_value < 0.05).sum() <= 34
    cosine = np.abs(z).max(axis=1) / np.sqrt(128)
    one = 2 * stats.t.sf(cosine * np.sqrt(127 / (1 - cosine**2)), 127)  # of the correlation of 128 normal numbers
    np.testing.assert_allclose(scores.p_value, np.minimum(256 * one, 1.0), rtol=1e-9)
    scores = direction_tokens(demo, -3.0 * embedding[[65, 200]], written=True)
    assert scores.below[:, 0].tolist() == [65, 200]
    assert (scores.p_value < 1e-100).all()


def with_embedding(rows):
    """A model of nothing but its embedding, in two blocks."""
    name = MatrixName(Place("", -1), "embedding")
    blocks = {"shape": lambda _: rows.shape[::-1], "blocks": lambda _: iter((rows[:9], rows[9:]))}
    return SimpleNamespace(name="made", parts={"embeddings": (name,)}, **blocks)


# 1 000 ends of random directions for each embedding: 4.5 standard errors of their mean, and an interval of the point
# that two of a hundred miss, for a fixed seed. Tokens in one direction are one token.
@pytest.mark.parametrize(("n_tokens", "width"), [(256, 128), (5000, 64)])
def test_the_nearest_token_of_a_random_direction_is_as_near_as_the_largest_of_all(n_tokens, width):
    rows = np.random.default_rng(3).standard_normal((n_tokens, width))
    nearest = nearest_by_chance(with_embedding(rows), directions=500)
    assert (nearest.n_tokens, nearest.draws, nearest.component) == (n_tokens, 1000, "embedding")
    cosine = np.linspace(-1.0, 1.0, 20_001)
    largest = stats.beta.cdf((1.0 + cosine) / 2.0, (width - 1) / 2, (width - 1) / 2) ** n_tokens
    mean = np.sqrt(width) * (1.0 - np.trapezoid(largest, cosine))
    upper = np.sqrt(width) * cosine[np.searchsorted(largest, 0.95)]
    assert abs(nearest.mean - mean) < 4.5 * nearest.standard_error < 0.15 * mean
    assert nearest.upper_low < upper < nearest.upper_high and nearest.upper_low < nearest.upper < nearest.upper_high
    same = nearest_by_chance(with_embedding(np.tile(rows[:1], (20, 1))), directions=500)
    assert abs(same.mean) < 4.5 * same.standard_error and same.upper == pytest.approx(1.64, abs=0.3)


def test_what_is_printed_of_tokens_names_the_null_of_the_nearest_one(demo):
    nearest = nearest_by_chance(demo)
    reading = DirectionReading("", 0, "qk", 0, 0, "left", False, [("a", 1.0)], [("b", -1.0)], 1e-9, nearest)
    words = nearest_words([reading, reading._replace(by_chance=None)])
    assert words == (
        f"The token nearest to an end of a random direction has a z of {nearest.mean:.1f} on average and below "
        f"{nearest.upper:.1f} for 95 %, among 256 tokens of the embedding."
    )
    assert words in list(_reading_items([reading], 0.05, ""))[-1] and nearest_words([]) == ""
    assert 1.5 < nearest.mean < 2.82 < nearest.upper  # tokens of a learned embedding lie together: fewer than 256


@pytest.mark.parametrize("directions", [np.zeros((1, 128)), np.ones((1, 127)), np.ones(128), np.full((1, 128), np.nan)])
def test_bad_directions_are_named(directions, demo):
    with pytest.raises(ParameterError, match="directions"):
        direction_tokens(demo, directions)


def test_tokens_are_named_by_the_files_of_tokenizers(tmp_path):
    assert token_names(tmp_path) == {}
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "Ġb": 1}))
    assert token_names(tmp_path) == {0: "a", 1: "Ġb"}
    added = [{"id": 2, "content": "<s>"}]
    for vocabulary in ({"x": 0, "y": 1}, [["x", -1.0], ["y", -2.0]]):
        whole = {"model": {"vocab": vocabulary}, "added_tokens": added}
        (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
        assert token_names(tmp_path) == {0: "x", 1: "y", 2: "<s>"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": 3}}))
    with pytest.raises(CorruptFileError, match=r"found model = {.vocab.: 3}; expected"):
        token_names(tmp_path)
