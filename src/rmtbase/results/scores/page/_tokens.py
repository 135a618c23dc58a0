"""Leading directions of the first heads of a page, read as tokens."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from rmtbase.errors import CheckpointError, ParameterError, RmtbaseWarning
from rmtbase.heads.direction_tokens import (
    DirectionReading,
    direction_tokens,
    embedding_of,
    nearer_than_chance,
    nearest_by_chance,
    nearest_words,
    readings_headline,
)
from rmtbase.heads.read_sites import head_factors
from rmtbase.linalg import product_svd, without_noise
from rmtbase.models import Place, WeightMatrices, opened_from, token_names
from rmtbase.results.scores.summary import HeadFinding, Summary
from rmtbase.shown import shown
from rmtbase.tables import CIRCUITS, layer_numbers, layer_stacks

_HEADS = 3  # largest number of heads whose directions are read
_DIRECTIONS = 2  # largest number of directions of each head, on each side
_WITHOUT_TOKENS = ("vision", "audio")  # stacks whose stream holds no tokens of the embedding
_SAME = 1e-4  # relative difference of the largest eigenvalue of a head; the stored one has thirteen digits


class TokenFinding(NamedTuple):
    """Answer of a page to what the first heads read."""

    sentence: str  # how many directions point at tokens beyond chance, and of which heads; or why none could be read
    listed: Sequence[DirectionReading] = ()  # the readings of those that do
    by_chance: str = ""  # how near the nearest token lies to a random direction, in words


class _Direction(NamedTuple):
    """Singular vector of a head's W_QK, on the side of the queries or of the keys."""

    head: HeadFinding
    number: int
    side: str
    vector: np.ndarray


def leading_tokens(scores: xr.DataTree, summary: Summary, model: WeightMatrices) -> TokenFinding | None:
    """Read the strongest directions of the heads that differ most, on both sides of W_QK, as tokens.

    Both sides are read from the residual stream, so that they are compared with the model's own embedding; for a
    difference of models, with that of the first.

    The finding; None if no head differs, or none of the first heads reads a stream with a known embedding of
    tokens. If the weights cannot be read, the finding says so, and a warning, too.
    """
    _require_model_of(scores, model)
    source = next(iter(opened_from(model)), None)
    if source is None or not any(name.component == "embedding" for name in source.parts.get("embeddings", ())):
        return None
    width, findings = source.shape(embedding_of(source))[0], summary.leading()[:_HEADS]
    try:
        directions = [direction for direction in _directions(scores, findings, model) if len(direction.vector) == width]
        if not directions:
            return None
        tokens = direction_tokens(source, np.array([direction.vector for direction in directions]))
        names, by_chance = token_names(source.path), nearest_by_chance(source)
    except CheckpointError as error:
        sentence = f"What the first heads read could not be found out: {error}"
        warnings.warn(RmtbaseWarning(sentence), stacklevel=3)
        return TokenFinding(sentence)
    readings = [
        DirectionReading(
            head.stack, head.layer, "qk", head.head, number, side, False, *tokens.named(k, names), p_value, by_chance
        )
        for k, ((head, number, side, _), p_value) in enumerate(zip(directions, tokens.p_value.tolist(), strict=True))
    ]
    read = dict.fromkeys(direction.head.place for direction in directions)
    sentence = (
        f"{readings_headline(readings, summary.level)} They are the strongest of W_QK of {', '.join(read)}, which "
        "queries and keys read from the residual stream."
    )
    return TokenFinding(sentence, nearer_than_chance(readings, summary.level), nearest_words(readings))


def _require_model_of(scores: xr.DataTree, model: WeightMatrices) -> None:
    if not isinstance(model, WeightMatrices):
        raise ParameterError("model", type(model).__name__, "an opened model, as rmtbase.open_model returns it")
    opened, expected = (
        f"{name}, revision {revision}" if revision else name
        for name, revision in (
            (shown(model.name), shown(model.revision or "")),
            (scores.attrs["model"], scores.attrs["revision"]),
        )
    )
    if opened != expected:
        raise ParameterError("model", opened, f"{expected}, whose scores these are")


def _directions(scores: xr.DataTree, findings: Sequence[HeadFinding], model: WeightMatrices) -> Iterator[_Direction]:
    """Yield the leading directions of heads, each first of the queries, then of the keys."""
    heads, sites = scores["heads"].to_dataset(), {site.place: index for index, site in enumerate(model.sites)}
    rows = list(map(Place, layer_stacks(heads), layer_numbers(heads)))
    largest = heads["eigenvalue"].transpose("layer", "head", "index").values[..., 0]
    for finding in findings:
        place = Place(finding.stack, finding.layer)
        if finding.stack in _WITHOUT_TOKENS:
            continue
        if place not in sites or finding.head >= model.sites[sites[place]].n_heads:
            raise ParameterError("model", model.name, f"one with {finding.place}, as the scores have")
        factors = head_factors(model, sites[place], CIRCUITS["qk"], finding.head)
        left, values, right = product_svd(*(factor.astype(np.float64) for factor in factors))
        strength, expected = float(values[0]) ** 2, float(largest[rows.index(place), finding.head])
        if not math.isclose(strength, expected, rel_tol=_SAME):
            words = f"{model.name}, whose {finding.place} has the largest eigenvalue {strength:.6g}"
            raise ParameterError("model", words, f"the weights and folds that were scored, with {expected:.6g}")
        for k in range(min(_DIRECTIONS, int((without_noise(values) > 0.0).sum()))):
            yield _Direction(finding, k, "left", left[:, k])
            yield _Direction(finding, k, "right", right[k])
