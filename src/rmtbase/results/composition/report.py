"""Compositions on the terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rmtbase.report import DETAILS, UNTESTED, Column, Heading, Item, Rows
from rmtbase.results.composition.summary import summarize_composition

if TYPE_CHECKING:
    import xarray as xr

    from rmtbase.results.composition.summary import KindSummary

_FIRST = 3  # pairs that the answer names
_LISTED = 12
_LONGEST_LINE = 10_000
_NAMES = {"q": "queries", "k": "keys", "v": "values"}


def as_json(table: xr.Dataset, level: float = 0.05) -> dict[str, Any]:
    """Return the summary of the compositions of a model's heads as plain data."""
    from rmtbase.tables import not_testable_json

    summary, lists = summarize_composition(table, level), ("not_testable", "overlaps_not_testable")
    return {
        **{name: table.attrs[name] for name in ("model", "revision", "null")},
        "warnings": json.loads(table.attrs["warnings"]),
        **{name: not_testable_json(getattr(summary, name)) for name in lists},
        "sentences": [f"{summary.headline()}."],
        "level": summary.level,
        "kinds": [_kind_json(one) for one in summary.kinds],
        "surviving": [asdict(one) for one in summary.surviving],
    }


def _kind_json(kind: KindSummary) -> dict[str, Any]:
    """Convert the counts of a kind for JSON; null where no pair of it could be tested."""
    sizes = ("kind", "pairs", "not_testable", "overlaps")
    return {
        name: value if name in sizes or (kind.overlaps if name == "overlapping" else kind.pairs) else None
        for name, value in asdict(kind).items()
    }


def report(table: xr.Dataset, level: float = 0.05) -> Iterator[Item]:
    """Print how many pairs of each kind compose beyond chance, and the strongest pairs."""
    from rmtbase.tables import not_testable_words

    summary, said = summarize_composition(table, level), f"{level:g}"
    pairs, surviving = sum(one.pairs for one in summary.kinds), len(summary.surviving)
    untested = bool(summary.not_testable)
    yield Heading.of_model(table.attrs)
    chance = f" In a model with unrelated heads any pair would with a probability of {said} at most."
    yield f"{summary.headline()}.{chance if pairs else ''}"
    if summary.surviving:
        first = ", ".join(
            f"{one.earlier} into {_NAMES[one.kind]} of {one.later} "
            f"(score {one.score:.3f}, by chance {one.expected_score:.3f})"
            for one in summary.surviving[:_FIRST]
        )
        yield f"Strongest: {first}."
    overlaps = summary.overlaps_not_testable
    if overlaps and [one.place for one in overlaps] != [one.place for one in summary.not_testable]:
        total = sum(one.overlaps for one in summary.kinds) + len(overlaps)
        words = not_testable_words(overlaps, total, "overlap of subspaces")
        yield f"{words}."
    yield DETAILS
    columns = [Column("the later head's", "left"), *map(Column, ("testable pairs",) if untested else ("pairs",))]
    columns += map(Column, ("not testable",) if untested else ())
    columns += map(Column, (f"p < {said}", "by chance", "survive"))
    columns += map(Column, ("if independent", "family-wise", "avoid", "subspaces overlap"))
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
    if not summary.surviving:
        return
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
            f"{one.p_value:.1e}",
            f"{one.q_value:.1e}",
            f"{one.overlap:.3f}",
        )
        for one in summary.surviving[:_LISTED]
    ]
    yield Rows(columns, rows, named=3)
    if surviving > _LISTED:
        yield f"{surviving - _LISTED} more; --json lists all, and the file holds every pair."
