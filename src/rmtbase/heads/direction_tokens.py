"""Directions of the residual stream read as tokens: which embeddings lie nearest, against a random direction."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import betaincc

from rmtbase.errors import ParameterError
from rmtbase.models import MatrixName, WeightMatrices
from rmtbase.parameters import require_positive_integer, require_real_array
from rmtbase.statistics import benjamini_hochberg

_READ = {"qk": ("left", "right"), "ov": ("right",), **dict.fromkeys(("query", "key", "value"), ("right",))}
_WRITTEN = {"ov": ("left",), "output": ("right",), "attention_output": ("left",), "mlp_out": ("left",)}
_READ |= dict.fromkeys(("attention_query", "attention_key", "attention_value", "mlp_in", "mlp_gate"), ("right",))

_NORMAL_95 = 1.96
_UPPER = 0.95  # probability below the upper point of the nearest token by chance

_Tokens = list[tuple[str, float]]  # names with their z


class TokenScores(NamedTuple):
    """The tokens whose embeddings lie nearest to directions, the nearest first on each side."""

    above: Int[np.ndarray, "direction token"]  # numbers of the tokens with the largest scores
    # numbers of the tokens with the lowest scores, since the sign of a direction is arbitrary
    below: Int[np.ndarray, "direction token"]
    # z_above, z_below: their scores √d cos(e_t, u). For a random direction the score of a token that is picked
    # beforehand has mean 0 and standard deviation 1, exactly; that of the nearest one is larger, see
    # :func:`nearest_by_chance`.
    z_above: Float[np.ndarray, "direction token"]
    z_below: Float[np.ndarray, "direction token"]
    # bound on the probability that any token's embedding lies as near to a random direction: ``P(max |z| ≥ c)`` is at
    # most the number of tokens times ``P(|z_t| ≥ c)``, whatever their dependence
    p_value: Float[np.ndarray, " direction"]

    def named(self, direction: int, names: Mapping[int, str]) -> tuple[_Tokens, _Tokens]:
        """Return the names of one direction's tokens with their z, on each side; ``#number`` for one without a name."""
        above, below = (
            [
                (names.get(token, f"#{token}"), z)
                for token, z in zip(tokens[direction].tolist(), scores[direction].tolist(), strict=True)
            ]
            for tokens, scores in ((self.above, self.z_above), (self.below, self.z_below))
        )
        return above, below


def sides_in_stream(what: str) -> dict[str, bool]:
    """Sides of a circuit's or component's directions that lie in the residual stream; True if written to it.

    W_OV has ``{"left": True, "right": False}``: its left directions are written, its right ones read.
    """
    return dict.fromkeys(_READ.get(what, ()), False) | dict.fromkeys(_WRITTEN.get(what, ()), True)


def direction_tokens(model: WeightMatrices, directions: object, written: bool = False, count: int = 5) -> TokenScores:
    """Read directions of the residual stream as tokens, through the model's own embedding.

    Directions that are read are compared with W_E; directions that are written, with W_U, or with W_E where the two are
    tied. Norms between the stream and the matrices are left out, as they are from W_QK. For a direction uniform on the
    sphere of R^d, cos² has a Beta(1/2, (d - 1)/2) law.
    """
    vectors = require_real_array("directions", directions).astype(np.float64)
    count = require_positive_integer("count", count)
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True) if vectors.ndim == 2 else np.zeros((1, 1))
    if vectors.ndim != 2 or not (np.isfinite(vectors).all() and (norms > 0.0).all()):
        raise ParameterError("directions", vectors.shape, "shape (direction, d_model), finite and none of them zero")
    name = embedding_of(model, written)
    width = _width(model, name)
    if vectors.shape[1] != width:
        raise ParameterError("directions", vectors.shape, f"{width} numbers each, the width of the {name.component}")
    cosine = np.concatenate(list(_cosines(model, name, vectors / norms)), axis=1)
    order = np.argsort(-cosine, axis=1, kind="stable")
    above, below = order[:, :count], order[:, ::-1][:, :count]
    nearest = np.abs(cosine).max(axis=1)
    tail = betaincc(0.5, 0.5 * (width - 1), np.minimum(nearest, 1.0) ** 2)
    z = np.sqrt(width) * cosine
    return TokenScores(
        above,
        below,
        np.take_along_axis(z, above, axis=1),
        np.take_along_axis(z, below, axis=1),
        np.minimum(cosine.shape[1] * tail, 1.0),
    )


class NearestByChance(NamedTuple):
    """z of the nearest token at one end of a random direction, the null of :class:`TokenScores`."""

    component: str  # the embedding: ``"embedding"``, or ``"unembedding"`` for directions that are written to the stream
    n_tokens: int  # number of tokens of the embedding
    draws: int  # number of ends of random directions
    # mean, standard_error: their mean z, and its standard error
    mean: float
    standard_error: float
    upper: float  # z below which 95 % of them lie
    # upper_low, upper_high: a 95 % interval of that point, by order statistics
    upper_low: float
    upper_high: float


def nearest_by_chance(
    model: WeightMatrices, written: bool = False, directions: int = 100, seed: int = 0
) -> NearestByChance:
    """Draw random directions, and find how near the nearest token of the model's own embedding lies at each end.

    Tokens depend on each other, so that the law of the largest z is that of the embedding and not of the number of
    tokens alone. Both ends of each direction are used; they depend on each other only a little.
    """
    name = embedding_of(model, written)
    count, width = require_positive_integer("directions", directions), _width(model, name)
    vectors = np.random.default_rng(seed).standard_normal((count, width))
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    n_tokens, nearest = 0, np.full((2, count), -np.inf)
    for cosine in _cosines(model, name, unit):
        n_tokens += cosine.shape[1]
        np.maximum(nearest, (cosine.max(axis=1), -cosine.min(axis=1)), out=nearest)
    z = np.sort(math.sqrt(width) * nearest.ravel().astype(np.float64))
    around, error = z.size * _UPPER, math.sqrt(z.size * _UPPER * (1.0 - _UPPER))
    low, high = (min(max(round(around + sign * _NORMAL_95 * error), 0), z.size - 1) for sign in (-1.0, 1.0))
    return NearestByChance(
        name.component,
        n_tokens,
        z.size,
        float(z.mean()),
        float(z.std(ddof=1) / math.sqrt(z.size)),
        float(np.quantile(z, _UPPER)),
        float(z[low]),
        float(z[high]),
    )


def _width(model: WeightMatrices, name: MatrixName) -> int:
    return model.shape(name)[1 if name.component == "unembedding" else 0]


def _cosines(
    model: WeightMatrices, name: MatrixName, unit: Float[np.ndarray, "direction width"]
) -> Iterator[Float[np.ndarray, "direction token"]]:
    """Yield the cosines between unit vectors and the tokens of each block of an embedding; 0 for a token of zeros."""
    for block in model.blocks(name):  # a row for each token
        rows = block.astype(unit.dtype)
        length = np.linalg.norm(rows, axis=1)
        yield np.divide(unit @ rows.T, length, out=np.zeros((len(unit), len(rows)), unit.dtype), where=length > 0.0)


def embedding_of(model: WeightMatrices, written: bool = False) -> MatrixName:
    """Find the matrix, with one row per token, that directions read or written are compared with."""
    names = {name.component: name for name in model.parts.get("embeddings", ())}
    components = ("unembedding", "embedding") if written else ("embedding",)
    for component in components:
        if component in names:
            return names[component]
    expected = f"one with a known {' or '.join(components)}, to read directions as tokens"
    raise ParameterError("model", model.name, expected)


class DirectionReading(NamedTuple):
    """Direction of a head or matrix, on a side that lies in the residual stream, read as tokens."""

    # stack, layer, what, head: the head or matrix: its layer, circuit or component, and head if it is a head's
    stack: str
    layer: int
    what: str
    head: int | None
    direction: int  # number of the direction, from 0
    side: str  # ``"left"`` or ``"right"``, the side of its singular vector
    written: bool  # whether the direction is written to the stream; it is read from it if False
    # above, below: names of the nearest tokens with their z, on each side
    above: _Tokens
    below: _Tokens
    p_value: float  # as in :class:`TokenScores`
    # z of the nearest token of a random direction through the same embedding; None if it is not known
    by_chance: NearestByChance | None = None


def nearer_than_chance(readings: Sequence[DirectionReading], level: float) -> list[DirectionReading]:
    """Select the readings with a token nearer than chance, at a false discovery rate of ``level`` over all of them."""
    q_value = benjamini_hochberg(np.array([reading.p_value for reading in readings]))
    return [reading for reading, q in zip(readings, q_value.tolist(), strict=True) if q < level]


def nearest_words(readings: Sequence[DirectionReading]) -> str:
    """Say how large z of the nearest token is for a random direction, by embedding; "" if that is not known."""
    nulls = list(dict.fromkeys(item.by_chance for item in readings if item.by_chance is not None))
    if not nulls:
        return ""
    parts = [
        f"{item.mean:.1f} on average and below {item.upper:.1f} for 95 %, among {item.n_tokens:,} tokens of the "
        f"{item.component}"
        for item in nulls
    ]
    return f"The token nearest to an end of a random direction has a z of {'; '.join(parts)}."


def readings_headline(readings: Sequence[DirectionReading], level: float) -> str:
    """Say in one sentence how many of the directions point at tokens beyond chance."""
    count, total = len(nearer_than_chance(readings, level)), len(readings)
    if not total:
        return "No direction was read as tokens: none that was found lies in the residual stream."
    rate = f"at a false discovery rate of {100 * level:g} %, a side that is read or written counted by itself"
    if not count:
        return f"None of {total} directions points at tokens beyond chance, {rate}."
    return f"{count} of {total} directions {'point' if count != 1 else 'points'} at tokens beyond chance, {rate}."
