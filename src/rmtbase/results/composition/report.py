"""Compositions on the terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rmtbase.nulls import SMALLEST_P_VALUE
from rmtbase.reasons import not_testable_json
from rmtbase.report import DETAILS, UNTESTED, Column, Heading, Item, Rows
from rmtbase.results.attributes import result_json
from rmtbase.results.composition.summary import summarize_composition
from rmtbase.words import plural, untested_words

if TYPE_CHECKING:
    import xarray as xr

    from rmtbase.results.composition.summary import ComposedPair, CompositionSummary, KindSummary

_FIRST = 3  # pairs that the answer names
_LISTED = 12
_NAMES = {"q": "queries", "k": "keys", "v": "values"}


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
