"""Compositions on the terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rmtbase.nulls import SMALLEST_P_VALUE
from rmtbase.report import DETAILS, UNTESTED, Column, Heading, Item, Rows
from rmtbase.results.composition.summary import summarize_composition
from rmtbase.tables import plural

if TYPE_CHECKING:
    import xarray as xr

    from rmtbase.results.composition.summary import ComposedPair, CompositionSummary, KindSummary

_FIRST = 3  # pairs that the answer names
_LISTED = 12
_LONGEST_LINE = 10_000
_NAMES = {"q": "queries", "k": "keys", "v": "values"}


def as_json(
    table: xr.Dataset, level: float = 0.05, layer: int | None = None, head: int | None = None
) -> dict[str, Any]:
    """Return the summary of the compositions of a model's heads as plain data."""
    from rmtbase.tables import not_testable_json

    summary, lists = summarize_composition(table, level, layer, head), ("not_testable", "overlaps_not_testable")
    return {
        **{name: table.attrs[name] for name in ("model", "revision", "null")},
        "warnings": json.loads(table.attrs["warnings"]),
        **{name: not_testable_json(getattr(summary, name)) for name in lists},
        "sentences": [f"{summary.headline()}.", *_leading(summary)],
        "level": summary.level,
        "kinds": [_kind_json(one) for one in summary.kinds],
        "surviving": [asdict(one) for one in summary.surviving],
        "largest": [asdict(one) for one in summary.largest[:_FIRST]],
        "surest": [asdict(one) for one in summary.surviving[:_FIRST]],
    }


def _kind_json(kind: KindSummary) -> dict[str, Any]:
    """Convert the counts of a kind for JSON; null where no pair of it could be tested."""
    sizes = ("kind", "pairs", "not_testable", "overlaps")
    return {
        name: value if name in sizes or (kind.overlaps if name == "overlapping" else kind.pairs) else None
        for name, value in asdict(kind).items()
    }


def report(table: xr.Dataset, level: float = 0.05, layer: int | None = None, head: int | None = None) -> Iterator[Item]:
    """Print how many pairs compose beyond chance, which most and which most surely, and the numbers of each kind."""
    from rmtbase.tables import not_testable_words

    summary, said = summarize_composition(table, level, layer, head), f"{level:g}"
    pairs, surviving = sum(one.pairs for one in summary.kinds), len(summary.surviving)
    untested = bool(summary.not_testable)
    yield Heading.of_model(table.attrs)
    reads = "A pair composes if the later head reads more of what the earlier one writes than unrelated heads would."
    chance = f" In a model of unrelated heads, that any pair does has a probability of {level:.0%} at most."
    yield f"{summary.headline()}. {reads}{chance if pairs else ''}"
    yield from _leading(summary)
    overlaps = summary.overlaps_not_testable
    if overlaps and [one.place for one in overlaps] != [one.place for one in summary.not_testable]:
        total = sum(one.overlaps for one in summary.kinds) + len(overlaps)
        words = not_testable_words(overlaps, total, "overlap of subspaces")
        yield f"{words}."
    yield DETAILS
    yield (
        f"In the first table: the pairs with p < {said} by themselves, and how many chance gives; those that compose, "
        f"q < {said} over all pairs however they depend on each other; those that would if pairs were independent, "
        "a milder test; those that are family-wise sure, so that even one false pair among them has a probability of "
        f"{level:.0%} at most; those whose later head reads less of what the earlier one writes than by chance; those "
        "that use the same directions, whatever their strengths."
    )
    columns = [Column("the later head's", "left"), *map(Column, ("testable pairs",) if untested else ("pairs",))]
    columns += map(Column, ("not testable",) if untested else ())
    columns += map(Column, (f"p < {said}", "by chance", "compose"))
    columns += map(Column, ("if independent", "family-wise", "read less", "subspaces overlap"))
    rows = [
        (
            _NAMES[one.kind],
            str(one.pairs),
            *((str(one.not_testable),) if untested else ()),
            *(
                str(number) if one.pairs else UNTESTED
                for number in (one.small, round(one.pairs * summary.level), one.surviving, one.surviving_independent)
            ),
            *(str(number) if one.pairs else UNTESTED for number in (one.surviving_family, one.avoiding)),
            f"{one.overlapping}{f' of {one.overlaps}' if one.overlaps != one.pairs else ''}"
            if one.overlaps
            else UNTESTED,
        )
        for one in summary.kinds
    ]
    yield Rows(columns, rows)
    orders = {"largest score first": summary.largest}
    if surviving > _LISTED:
        orders["smallest p first, of equal p the largest score"] = list(summary.surviving)
    for order, pairs in orders.items():
        if pairs:
            yield _table(pairs[:_LISTED], f"pairs that compose beyond chance, {order}")
    if surviving > _LISTED:
        yield f"The first {_LISTED} of {surviving} in each order; --json lists all, and the file holds every pair."


def _leading(summary: CompositionSummary) -> Iterator[str]:
    """Name the pairs with the largest scores, and those with the smallest p-values if these are others."""
    largest, surest = summary.largest[:_FIRST], summary.surviving[:_FIRST]
    if not largest:
        return
    names = ", ".join(f"{_name(one)} ({one.score:.3f}, by chance {one.expected_score:.3f})" for one in largest)
    yield f"Largest {plural(len(largest), 'score')} of these: {names}."
    if len(summary.surviving) > _FIRST:
        at_floor = sum(one.p_value <= SMALLEST_P_VALUE for one in summary.surviving)
        ties = f"; {at_floor} pairs are at this floor of p, the largest scores first" if at_floor > _FIRST else ""
        names = ", ".join(f"{_name(one)} (p {_p(one.p_value)})" for one in surest)
        yield f"Surest, by p: {names}{ties}."


def _name(pair: ComposedPair) -> str:
    return f"{pair.earlier} into {_NAMES[pair.kind]} of {pair.later}"


def _p(p_value: float) -> str:
    """Format a p-value, as a bound at the floor."""
    return f"{'≤' if p_value <= SMALLEST_P_VALUE else '='} {p_value:.1e}"


def _table(pairs: Sequence[ComposedPair], title: str) -> Rows:
    columns = [Column("the later head's", "left"), Column("earlier", "left"), Column("later", "left")]
    columns += map(Column, ("score", "by chance", "z", "p", "q", "overlap"))
    rows = [
        (
            _NAMES[one.kind],
            one.earlier,
            one.later,
            f"{one.score:.4f}",
            f"{one.expected_score:.4f}",
            f"{one.z_score:+.1f}",
            _p(one.p_value).removeprefix("= "),
            f"{one.q_value:.1e}",
            f"{one.overlap:.3f}",
        )
        for one in pairs
    ]
    return Rows(columns, rows, named=3, title=title)
