"""Summary of the pairs of heads of a model that compose beyond chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Int

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_probability
from rmtbase.results.composition.schema import NOT_TESTABLE_PAIRS
from rmtbase.shown import in_one_line
from rmtbase.tables import NotTestable, headline


@in_one_line
@dataclass(frozen=True)
class ComposedPair:
    """Pair of heads, the later of which reads what the earlier writes."""

    kind: str  # ``"q"``, ``"k"`` or ``"v"``
    # earlier, later: names of the heads
    earlier: str
    later: str
    # score, expected_score, z_score, p_value, q_value, holm_p_value, overlap, overlap_q_value: as in the table
    score: float
    expected_score: float
    z_score: float
    p_value: float
    q_value: float
    holm_p_value: float
    overlap: float
    overlap_q_value: float


@in_one_line
@dataclass(frozen=True)
class KindSummary:
    """Numbers of pairs of one kind of composition."""

    kind: str  # kind of composition
    pairs: int  # pairs that could be tested
    not_testable: int  # pairs that could not be tested
    overlaps: int  # pairs whose overlap could be tested
    small: int  # pairs with a p-value below the level; chance gives ``pairs`` times the level
    surviving: int  # pairs with a Benjamini–Yekutieli q-value below the level
    surviving_independent: int  # pairs with a Benjamini–Hochberg q-value below the level
    surviving_family: int  # pairs with a p-value by Holm below the level
    avoiding: int  # pairs whose score is too small, by the q-value of the lower side
    overlapping: int  # pairs whose subspaces overlap beyond chance, by q-value


@in_one_line
@dataclass(frozen=True)
class CompositionSummary:
    """Summary of a model's pairs of heads."""

    level: float  # level of the false discovery rate, and of Holm's family-wise error
    kinds: tuple[KindSummary, ...]  # numbers of each kind
    # the pairs that compose beyond chance, the surest first: by p-value, and of equal p-values, as at the floor of what
    # a law can tell, the largest score first
    surviving: tuple[ComposedPair, ...]
    not_testable: tuple[NotTestable, ...] = ()  # the pairs whose score could not be tested, each with its reason
    # the pairs whose overlap could not be tested, each with its reason
    overlaps_not_testable: tuple[NotTestable, ...] = ()
    # layer, head: if not None, only pairs with a head of that layer or of that number in its layer are counted
    layer: int | None = None
    head: int | None = None

    @property
    def largest(self) -> list[ComposedPair]:
        """The pairs that compose beyond chance, by decreasing score: *how much* is another order than how sure."""
        return sorted(self.surviving, key=lambda pair: -pair.score)

    def headline(self) -> str:
        """Say how many of the testable pairs compose beyond chance, and why others could not be tested."""
        tested = sum(one.pairs for one in self.kinds)
        places = [
            f"{name} {number}" for name, number in (("layer", self.layer), ("head", self.head)) if number is not None
        ]
        chosen = f"with a head of {' '.join(places)} " if places else "of heads "
        found = f"{chosen}compose beyond chance (false discovery rate {self.level:.0%} over all pairs)"
        return headline(len(self.surviving), tested, self.not_testable, "pair", found)


def pairs_with(table: xr.Dataset, layer: int | None = None, head: int | None = None) -> xr.Dataset:
    """Keep the pairs with a head of a layer, of a number in its layer, or of both: those of all others become NaN.

    No q-value changes: each stays over all pairs.
    """
    if not isinstance(table, xr.Dataset) or table.attrs.get("kind") != "composition":
        raise ParameterError(
            "table", type(table).__name__, "compositions, as rmtbase.results.composition.composition makes them"
        )
    asked = {name: number for name, number in (("layer", layer), ("head", head)) if number is not None}
    chosen = dict.fromkeys(("earlier", "later"), np.True_)
    for name, number in asked.items():
        held = sorted({*table[f"earlier_{name}"].values.tolist()})
        if number not in held:
            raise ParameterError(name, number, f"one of {', '.join(map(str, held))}")
        chosen = {side: one & (table[f"{side}_{name}"] == number) for side, one in chosen.items()}
    if not asked:
        return table
    kept = chosen["earlier"] | chosen["later"]
    pairs = {name: one for name, one in table.data_vars.items() if {"earlier", "later"} <= {*one.dims}}
    return table.assign(
        {
            name: one.where(kept, 0 if one.dtype.kind in "iu" else np.nan).astype(one.dtype).transpose(*one.dims)
            for name, one in pairs.items()
        }
    )


def summarize_composition(
    table: xr.Dataset, level: float = 0.05, layer: int | None = None, head: int | None = None
) -> CompositionSummary:
    """Count the pairs of each kind that compose beyond chance, and list them."""
    table = pairs_with(table, layer, head)
    level = require_probability("level", level)
    below = {name: table[name].values < level for name in _COUNTED.values()}
    untested = {
        name: table[name].values if name in table else np.zeros(table["score"].shape, dtype=int)
        for name in ("not_testable", "overlap_not_testable")
    }
    kinds = tuple(
        KindSummary(
            kind,
            int(table["p_value"].notnull()[k].sum()),
            int((untested["not_testable"][k] > 0).sum()),
            int(table["overlap_p_value"].notnull()[k].sum()),
            **{name: int(below[variable][k].sum()) for name, variable in _COUNTED.items()},
        )
        for k, kind in enumerate(table["kind"].values.tolist())
    )
    places = np.argwhere(below["q_value"])
    order = np.lexsort((-table["score"].values[tuple(places.T)], table["p_value"].values[tuple(places.T)]))
    names = [table[dim].values.tolist() for dim in ("kind", "earlier", "later")]
    surviving = tuple(
        ComposedPair(
            *(of[at] for of, at in zip(names, place, strict=True)),
            **{name: float(table[name].values[place]) for name in _OF_A_PAIR},
        )
        for place in map(tuple, places[order].tolist())
    )
    lists = (_pairs_of(names, codes) for codes in untested.values())
    return CompositionSummary(level, kinds, surviving, *lists, layer=layer, head=head)


def _pairs_of(names: Sequence[Sequence[str]], codes: Int[np.ndarray, "kind earlier later"]) -> tuple[NotTestable, ...]:
    """List the pairs that have a code above 0, in words."""
    kinds, earlier, later = names
    return tuple(
        NotTestable(f"{kinds[k]}: {earlier[i]} to {later[j]}", NOT_TESTABLE_PAIRS[codes[k, i, j]])
        for k, i, j in np.argwhere(codes > 0).tolist()
    )


_OF_A_PAIR = (
    "score", "expected_score", "z_score", "p_value", "q_value", "holm_p_value", "overlap", "overlap_q_value",
)  # fmt: skip
_COUNTED = {
    "small": "p_value",
    "surviving": "q_value",
    "surviving_independent": "q_value_independent",
    "surviving_family": "holm_p_value",
    "avoiding": "q_value_below",
    "overlapping": "overlap_q_value",
}
