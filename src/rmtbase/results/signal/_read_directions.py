"""Learned directions of heads and matrices, read as tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rmtbase.heads.direction_tokens import (
    DirectionReading,
    NearestByChance,
    direction_tokens,
    nearest_by_chance,
    sides_in_stream,
)
from rmtbase.models import WeightMatrices
from rmtbase.nulls import Null
from rmtbase.results.signal._learned_part import learned_part_of
from rmtbase.results.signal.rows import SignalRow


def read_directions(
    model: WeightMatrices,
    rows: Iterable[SignalRow],
    level: float,
    directions: int,
    embeddings: WeightMatrices | None = None,
    names: Mapping[int, str] | None = None,
    count: int = 5,
    null: Null | str = "gaussian",
) -> Iterator[DirectionReading]:
    """Read the strongest directions of each row as tokens, on every side that lies in the residual stream."""
    by_chance = dict[bool, NearestByChance]()
    places = {(place.stack, place.layer): layer for layer, place in enumerate(model.layers)}
    for row in rows:
        sides = sides_in_stream(row.what)
        if not sides:
            continue
        part = learned_part_of(model, places[row.stack, row.layer], row.what, row.head, level, null)
        for side, written in sides.items():
            vectors = (part.left.T if side == "left" else part.right)[:directions]
            scores = direction_tokens(embeddings or model, vectors, written, count)
            if written not in by_chance:
                by_chance[written] = nearest_by_chance(embeddings or model, written)
            for k, p_value in enumerate(scores.p_value.tolist()):
                ends = scores.named(k, names or {})
                of_tokens = (*ends, p_value, by_chance[written])
                yield DirectionReading(row.stack, row.layer, row.what, row.head, k, side, written, *of_tokens)
