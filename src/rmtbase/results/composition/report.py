"""Pairs of heads that compose beyond chance: their summary, on the terminal and as JSON."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.nulls import SMALLEST_P_VALUE
from rmtbase.parameters import require_probability
from rmtbase.reasons import NotTestable, Reason, not_testable_json
from rmtbase.report import DETAILS, UNTESTED, Column, Heading, Item, Rows
from rmtbase.results.attributes import result_json
from rmtbase.results.composition.schema import NOT_TESTABLE_PAIRS
from rmtbase.shown import in_one_line
from rmtbase.words import of_tested, plural, untested_words

_FIRST = 3  # pairs that the answer names
_LISTED = 12
_NAMES = {"q": "queries", "k": "keys", "v": "values"}


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


def as_json(
    table: xr.Dataset, level: float = 0.05, layer: int | None = None, head: int | None = None
) -> dict[str, Any]:
    """Return the summary of the compositions of a model's heads as plain data."""
    summary = summarize_composition(table, level, layer, head)
    sizes = ("kind", "pairs", "not_testable", "overlaps")
    kinds = [asdict(kind) for kind in summary.kinds]
    for kind in kinds:  # null where no pair of a kind could be tested
        untested = [name for name in kind if name not in sizes]
        kind |= {name: None for name in untested if not kind["overlaps" if name == "overlapping" else "pairs"]}
    return result_json(
        table.attrs,
        ("model", "revision", "null"),
        summary.not_testable,
        [f"{summary.headline()}.", *_leading(summary)],
        overlaps_not_testable=not_testable_json(summary.overlaps_not_testable),
        level=summary.level,
        kinds=kinds,
        surviving=[asdict(pair) for pair in summary.surviving],
        largest=[asdict(pair) for pair in summary.largest[:_FIRST]],
        surest=[asdict(pair) for pair in summary.surviving[:_FIRST]],
    )


def report(table: xr.Dataset, level: float = 0.05, layer: int | None = None, head: int | None = None) -> Iterator[Item]:
    """Print how many pairs compose beyond chance, which most and which most surely, and the numbers of each kind."""
    summary = summarize_composition(table, level, layer, head)
    yield Heading.of_model(table.attrs)
    reads = "A pair composes if the later head reads more of what the earlier one writes than unrelated heads would."
    chance = f" In a model of unrelated heads, that any pair does has a probability of {level:.0%} at most."
    yield f"{summary.headline()}. {reads}{chance if any(kind.pairs for kind in summary.kinds) else ''}"
    yield from _leading(summary)
    overlaps = summary.overlaps_not_testable
    if overlaps and [pair.place for pair in overlaps] != [pair.place for pair in summary.not_testable]:
        total = sum(kind.overlaps for kind in summary.kinds) + len(overlaps)
        yield f"{untested_words(overlaps, total, 'overlap of subspaces')}."
    yield DETAILS
    yield (
        f"In the first table: the pairs with p < {level:g} by themselves, and how many chance gives; those that "
        f"compose, q < {level:g} over all pairs however they depend on each other; those that would if pairs were "
        "independent, a milder test; those that are family-wise sure, so that even one false pair among them has a "
        f"probability of {level:.0%} at most; those whose later head reads less of what the earlier one writes than "
        "by chance; those that use the same directions, whatever their strengths."
    )
    yield Rows.of(summary.kinds, *_kind_columns(level, bool(summary.not_testable)))
    surviving = len(summary.surviving)
    orders = {"largest score first": summary.largest}
    if surviving > _LISTED:
        orders["smallest p first, of equal p the largest score"] = list(summary.surviving)
    for order, pairs in orders.items():
        if pairs:
            title = f"pairs that compose beyond chance, {order}"
            yield Rows.of(pairs[:_LISTED], *_PAIR_COLUMNS, named=3, title=title)
    if surviving > _LISTED:
        yield f"The first {_LISTED} of {surviving} in each order; --json lists all, and the file holds every pair."


def _kind_columns(level: float, some_untested: bool) -> list[Column]:
    def counted(heading: str, count: Callable[[KindSummary], int]) -> Column:
        return Column(heading, cell=lambda kind: count(kind) if kind.pairs else UNTESTED)

    def overlapping(kind: KindSummary) -> str:
        tested = f" of {kind.overlaps}" if kind.overlaps != kind.pairs else ""
        return f"{kind.overlapping}{tested}" if kind.overlaps else UNTESTED

    return [
        Column("the later head's", "left", cell=lambda kind: _NAMES[kind.kind]),
        Column("testable pairs" if some_untested else "pairs", cell=lambda kind: kind.pairs),
        *[Column("not testable", cell=lambda kind: kind.not_testable)] * some_untested,
        counted(f"p < {level:g}", lambda kind: kind.small),
        counted("by chance", lambda kind: round(kind.pairs * level)),
        counted("compose", lambda kind: kind.surviving),
        counted("if independent", lambda kind: kind.surviving_independent),
        counted("family-wise", lambda kind: kind.surviving_family),
        counted("read less", lambda kind: kind.avoiding),
        Column("subspaces overlap", cell=overlapping),
    ]


def _leading(summary: CompositionSummary) -> Iterator[str]:
    """Name the pairs with the largest scores, and those with the smallest p-values if these are others."""
    largest, surest = summary.largest[:_FIRST], summary.surviving[:_FIRST]
    if not largest:
        return
    names = ", ".join(f"{_name(pair)} ({pair.score:.3f}, by chance {pair.expected_score:.3f})" for pair in largest)
    yield f"Largest {plural(len(largest), 'score')} of these: {names}."
    if len(summary.surviving) > _FIRST:
        at_floor = sum(pair.p_value <= SMALLEST_P_VALUE for pair in summary.surviving)
        ties = f"; {at_floor} pairs are at this floor of p, the largest scores first" if at_floor > _FIRST else ""
        names = ", ".join(f"{_name(pair)} (p {_p(pair.p_value, '= ')})" for pair in surest)
        yield f"Surest, by p: {names}{ties}."


def _name(pair: ComposedPair) -> str:
    return f"{pair.earlier} into {_NAMES[pair.kind]} of {pair.later}"


def _p(p_value: float, equal: str = "") -> str:
    """Format a p-value, as a bound at the floor."""
    return f"{'≤ ' if p_value <= SMALLEST_P_VALUE else equal}{p_value:.1e}"


_PAIR_COLUMNS = (
    Column("the later head's", "left", cell=lambda pair: _NAMES[pair.kind]),
    Column("earlier", "left", cell=lambda pair: pair.earlier),
    Column("later", "left", cell=lambda pair: pair.later),
    Column("score", form=".4f", cell=lambda pair: pair.score),
    Column("by chance", form=".4f", cell=lambda pair: pair.expected_score),
    Column("z", form="+.1f", cell=lambda pair: pair.z_score),
    Column("p", cell=lambda pair: _p(pair.p_value)),
    Column("q", form=".1e", cell=lambda pair: pair.q_value),
    Column("overlap", form=".3f", cell=lambda pair: pair.overlap),
)
