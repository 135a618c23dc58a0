"""Summary of the pairs of heads of a model that compose beyond chance."""

from dataclasses import dataclass, fields

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_probability
from rmtbase.reasons import NotTestable, Reason
from rmtbase.results.composition.schema import NOT_TESTABLE_PAIRS
from rmtbase.shown import in_one_line
from rmtbase.words import of_tested


@in_one_line
@dataclass(frozen=True)
class ComposedPair:
    """Pair of heads, the later of which reads what the earlier writes; numbers as in the table."""

    kind: str  # ``"q"``, ``"k"`` or ``"v"``
    earlier: str  # name of the head
    later: str
    score: float
    expected_score: float
    z_score: float
    p_value: float
    q_value: float
    holm_p_value: float
    overlap: float
    overlap_q_value: float


_PLACE = ("kind", "earlier", "later")


@in_one_line
@dataclass(frozen=True)
class KindSummary:
    """Numbers of pairs of one kind of composition."""

    kind: str  # kind of composition
    pairs: int  # pairs that could be tested
    not_testable: int  # pairs that could not be tested
    overlaps: int  # pairs whose overlap could be tested
    # pairs with a value of ``_COUNTED`` below the level
    small: int
    surviving: int
    surviving_independent: int
    surviving_family: int
    avoiding: int
    overlapping: int


_COUNTED = {
    "small": "p_value",
    "surviving": "q_value",
    "surviving_independent": "q_value_independent",
    "surviving_family": "holm_p_value",
    "avoiding": "q_value_below",
    "overlapping": "overlap_q_value",
}


@in_one_line
@dataclass(frozen=True)
class CompositionSummary:
    """Summary of a model's pairs of heads."""

    level: float  # level of the false discovery rate, and of Holm's family-wise error
    kinds: tuple[KindSummary, ...]  # numbers of each kind
    surviving: tuple[ComposedPair, ...]  # that compose beyond chance, by p-value, of equal ones the largest score first
    not_testable: tuple[NotTestable, ...] = ()  # the pairs whose score could not be tested, each with its reason
    overlaps_not_testable: tuple[NotTestable, ...] = ()  # likewise for their overlap
    layer: int | None = None  # if not None, only pairs with a head of that layer are counted
    head: int | None = None  # likewise for the number of a head in its layer

    @property
    def largest(self) -> list[ComposedPair]:
        """The pairs that compose beyond chance, by decreasing score: *how much* is another order than how sure."""
        return sorted(self.surviving, key=lambda pair: -pair.score)

    def headline(self) -> str:
        """Say how many of the testable pairs compose beyond chance, and why others could not be tested."""
        numbers = (("layer", self.layer), ("head", self.head))
        place = " ".join(f"{name} {number}" for name, number in numbers if number is not None)
        chosen = f"with a head of {place}" if place else "of heads"
        predicate = f"{chosen} compose beyond chance (false discovery rate {self.level:.0%} over all pairs)"
        tested = sum(kind.pairs for kind in self.kinds)
        return of_tested(len(self.surviving), tested, self.not_testable, "pair", predicate)


def pairs_with(table: xr.Dataset, layer: int | None = None, head: int | None = None) -> xr.Dataset:
    """Keep the pairs with a head of a layer, of a number in its layer, or of both; no q-value changes."""
    if not isinstance(table, xr.Dataset) or table.attrs.get("kind") != "composition":
        expected = "compositions, as rmtbase.results.composition.composition makes them"
        raise ParameterError("table", type(table).__name__, expected)
    numbers = {name: number for name, number in (("layer", layer), ("head", head)) if number is not None}
    if not numbers:
        return table
    chosen = dict.fromkeys(("earlier", "later"), np.True_)
    for name, number in numbers.items():
        present = sorted({*table[f"earlier_{name}"].values.tolist()})
        if number not in present:
            raise ParameterError(name, number, f"one of {', '.join(map(str, present))}")
        chosen = {side: mask & (table[f"{side}_{name}"] == number) for side, mask in chosen.items()}
    mask, pairs = chosen["earlier"] | chosen["later"], {}
    for name, array in table.data_vars.items():
        if {"earlier", "later"} <= {*array.dims}:
            missing = 0 if array.dtype.kind in "iu" else np.nan
            pairs[name] = array.where(mask, missing).astype(array.dtype).transpose(*array.dims)
    return table.assign(pairs)


def summarize_composition(
    table: xr.Dataset, level: float = 0.05, layer: int | None = None, head: int | None = None
) -> CompositionSummary:
    """Count the pairs of each kind that compose beyond chance, and list them."""
    table = pairs_with(table, layer, head)
    level = require_probability("level", level)
    masks = {
        "pairs": table["p_value"].notnull().values,
        "not_testable": table["not_testable"].values > 0,
        "overlaps": table["overlap_p_value"].notnull().values,
        **{name: table[variable].values < level for name, variable in _COUNTED.items()},
    }
    kinds = tuple(
        KindSummary(kind, **{name: int(mask[k].sum()) for name, mask in masks.items()})
        for k, kind in enumerate(table["kind"].values.tolist())
    )
    places = np.argwhere(masks["surviving"])
    score, p_value = (table[name].values[tuple(places.T)] for name in ("score", "p_value"))
    names = [table[dim].values.tolist() for dim in _PLACE]
    numbers = [field.name for field in fields(ComposedPair) if field.name not in _PLACE]
    surviving = tuple(
        ComposedPair(
            *(labels[index] for labels, index in zip(names, place, strict=True)),
            **{name: float(table[name].values[place]) for name in numbers},
        )
        for place in map(tuple, places[np.lexsort((-score, p_value))].tolist())
    )
    untested = []
    for variable in ("not_testable", "overlap_not_testable"):
        codes = table[variable].values
        pairs = [
            NotTestable(f"{names[0][k]}: {names[1][i]} to {names[2][j]}", Reason(NOT_TESTABLE_PAIRS[codes[k, i, j]]))
            for k, i, j in np.argwhere(codes > 0).tolist()
        ]
        untested.append(tuple(pairs))
    return CompositionSummary(level, kinds, surviving, *untested, layer=layer, head=head)
