"""Signal and noise of a model on the terminal, and as JSON."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rmtbase.report import DETAILS, UNTESTED, Column, Heading, Item, Rows, Verbatim
from rmtbase.results.attributes import command_about
from rmtbase.results.signal._learned_bound import NO_BOUND
from rmtbase.results.signal._sequential_count import NO_NUMBER
from rmtbase.shown import percent, shown
from rmtbase.tables import plural
from rmtbase.terminal.endings import VERBOSITY, Verbosity, note

if TYPE_CHECKING:
    import xarray as xr

    from rmtbase.heads.direction_tokens import DirectionReading
    from rmtbase.models import Difference, Model, WeightMatrices
    from rmtbase.nulls import Null
    from rmtbase.results.signal.rows import GroupRow, SignalRow, SignalSummary

_LISTED = 12
"""Largest number of spectra, and of groups, that get a line of their own."""

_FIRST = 3  # spectra named as those that learned most
_NO_NUMBER = "no number"
_LONGEST_TOKEN = 20  # characters


def _strongest_rows(rows: Sequence[SignalRow]) -> list[SignalRow]:
    """Select the spectra in which the most was learned, at most ``_LISTED``."""
    return sorted((row for row in rows if row.directions), key=lambda row: -row.numbers["signal_share"])[:_LISTED]


def strongest_readings(model: WeightMatrices, tree: xr.DataTree, directions: int, null: Null) -> list[DirectionReading]:
    """Read the strongest directions of the listed spectra as tokens."""
    from rmtbase.models import opened_from, token_names
    from rmtbase.results.signal._read_directions import read_directions
    from rmtbase.results.signal.rows import signal_rows

    level, (source, *_) = float(tree.attrs["level"]), opened_from(model)
    names, rows = token_names(source.path), _strongest_rows(signal_rows(tree))
    return list(read_directions(model, rows, level, directions, source, names, null=null))


def decisions(tree: xr.DataTree, model: Model | Difference, form: str) -> Iterator[Item]:
    """Yield the ranks of adapters, or the parameters to unfreeze, as ``form``; note what is left out."""
    from rmtbase.results.signal._decisions import decisions_text, learned_modules, left_out_of

    modules, level = learned_modules(tree, model), float(tree.attrs["level"])
    yield Verbatim(decisions_text(modules, level, form))
    for line in left_out_of(modules, level, form):
        note(line)


def report(tree: xr.DataTree, readings: Sequence[DirectionReading] | None = None) -> Iterator[Item]:
    """Print what each circuit and component has learned, the strongest spectra, the groups, and the tokens read."""
    from rmtbase.results.signal.rows import signal_groups, signal_rows, summarize_signal

    level, rows, groups = float(tree.attrs["level"]), signal_rows(tree), signal_groups(tree)
    strongest, summaries = _strongest_rows(rows), summarize_signal(rows)
    yield Heading.of_model(tree.attrs)
    yield from _answer(rows, summaries, strongest, level)
    if readings is not None:
        yield from _reading_items(readings, level, command_about(tree.attrs, "signal", "--verbose"))
    if any(row.tails for row in rows):
        yield from _tail_items(rows, level)
    yield DETAILS
    yield from _row_items(rows, summaries, strongest, level)
    if groups:
        yield from _group_items(rows, groups, level)


def _answer(
    rows: Sequence[SignalRow], summaries: Sequence[SignalSummary], strongest: Sequence[SignalRow], level: float
) -> Iterator[Item]:
    """Say in how many spectra something was learned, where most and how much, and how many directions."""
    from rmtbase.results.signal.rows import signal_headline

    yield signal_headline(rows, level)
    if strongest:
        first = ", ".join(
            f"{row.place} ({percent(row.numbers['signal_share'])} in {_number(row)[-1]} "
            f"{plural(len(row.directions), 'direction')})"
            for row in strongest[:_FIRST]
        )
        known = sum(not math.isnan(row.numbers["signal_share"]) for row in rows)
        yield (
            f"Largest learned share of the squared norm, among the {known} {plural(known, 'spectrum')} with a number "
            f"of directions: {first}."
        )
    medians = [_median_words(one) for one in summaries if one.testable]
    if medians:
        yield f"Median number of directions: {', '.join(medians)}; noise has none with probability {1 - level:.0%}."
    yield from _bound_items([one for one in summaries if one.bounded or "cannot tell" in one.unbounded])
    if any(row.numbers["noise_floor"] == 0 for row in strongest[:_FIRST]):
        yield "In brackets: the other eigenvalues do not look like noise, which makes the number uncertain."


def _median_words(summary: SignalSummary) -> str:
    """Give the median number of directions, or say that most spectra have no number."""
    if not math.isnan(summary.median):
        return f"{summary.what} {summary.median:g}"
    return f"{summary.what} no number ({summary.unknown} of {summary.testable} have none)"


def _bound_items(summaries: Sequence[SignalSummary]) -> Iterator[Item]:
    """Give the median bound on the learned share of each circuit, or say that it cannot be told for most."""
    if not any(summary.bounded for summary in summaries):
        if summaries:
            count = sum(summary.spectra for summary in summaries)
            yield f"Learned share of each matrix of a head: cannot tell (0 of {count} have a bound beyond chance)."
        return
    bounds = []
    for summary in summaries:
        median = "cannot tell" if math.isnan(summary.bound) else f"at least {percent(summary.bound)} in the median"
        bounds.append(f"{summary.what} {median} ({summary.bounded} of {summary.spectra} have a bound)")
    yield (
        f"Learned share of each matrix of a head, rows scaled to one norm: {'; '.join(bounds)}. At most 5 % of the "
        "bounds exceed the share by more than 5 points."
    )


def _row_items(
    rows: Sequence[SignalRow], summaries: Sequence[SignalSummary], strongest: Sequence[SignalRow], level: float
) -> Iterator[Item]:
    """Print a line for each circuit and component, then the spectra in which the most was learned."""
    known = [row for row in rows if not math.isnan(row.numbers["n_directions"])]
    learned = [row for row in known if row.directions]
    if any(row.testable for row in rows):
        yield (
            "Directions are counted in each by itself: a spectrum that learned nothing has one with probability "
            f"{100 * level:g} %."
        )
    columns = [Column("what", "left"), *map(Column, ("spectra", "testable", "none found", "directions, median"))]
    columns += map(Column, ("most", "learned share of the squared norm", "rest is not noise", "at least, by a bound"))
    texts = [
        (
            one.what,
            str(one.spectra),
            str(one.testable),
            str(one.without) if one.testable else UNTESTED,
            _count(one.median, _NO_NUMBER if one.testable else UNTESTED),
            f"{'≥ ' if one.unknown else ''}{_count(one.most)}",
            _known(100 * one.share, "{:.1f} %", _NO_NUMBER if one.testable else UNTESTED),
            _count(one.no_floor),
            _known(100 * one.bound, "{:.1f} %", "cannot tell" if "cannot tell" in one.unbounded else ""),
        )
        for one in summaries
    ]
    yield Rows(columns, texts)
    if strongest:
        yield from _strongest_items(strongest, level)
    left = len(learned) - len(strongest)
    if left > 0:
        yield f"and {left} more; the file and --json hold all of them"
    if any(row.numbers["noise_floor"] == 0 for row in known):
        yield "( ): the other eigenvalues are not those of noise, so that the number depends on where noise begins."
    yield from _reasons("a number of directions", [NO_NUMBER.get(row.no_number, "") for row in rows])
    yield from _reasons("a bound on the learned share", [NO_BOUND.get(row.no_bound, "") for row in rows])


def _strongest_items(rows: Sequence[SignalRow], level: float) -> Iterator[Item]:
    columns = [Column("layer"), Column("what", "left"), Column("head"), Column("directions")]
    columns += map(Column, ("strongest", f"{100 * (1 - level):g} % limits", "/ threshold", "overlaps"))
    columns += map(Column, ("learned share", "noise scale", "rest is noise, p"))
    texts = []
    for row in rows:
        of, first = row.numbers, row.directions[0]
        texts.append(
            (
                *_number(row),
                *_strongest(row),
                f"{first['overlap_left']:.2f}, {first['overlap_right']:.2f}",
                f"{100 * of['signal_share']:.1f} %",
                f"{of['noise_scale']:.3g}" + _known(of["noise_scale_std"], " ± {:.1g}", ""),
                _known(of["rest_p_value"], "{:.2g}", UNTESTED),
            )
        )
    yield Rows(columns, texts, named=3)


def _number(row: SignalRow) -> tuple[str, ...]:
    """Format the place of a spectrum and its number of directions, in brackets if there is no noise floor."""
    number = f"{row.numbers['n_directions']:g}"
    return *_place(row), number if row.numbers["noise_floor"] else f"({number})"


def _place(row: SignalRow | DirectionReading) -> tuple[str, str, str]:
    return f"{row.stack} {row.layer}".lstrip(), row.what, "" if row.head is None else str(row.head)


def _strongest(row: SignalRow) -> tuple[str, str, str]:
    """Format the strength of the first direction, its limits, and its ratio to the threshold."""
    first = row.directions[0]
    limits = _known(first["strength_low"], f"{{:.3g}}–{first['strength_high']:.3g}", UNTESTED)
    return f"{first['strength']:.3g}", limits, f"{first['strength'] / row.numbers['threshold']:.3g}"


def _group_items(rows: Sequence[SignalRow], groups: Sequence[GroupRow], level: float) -> Iterator[Item]:
    """Print heads that share a key head, or values, as one, beside the directions of each head by itself."""
    from rmtbase.results.signal.rows import groups_headline

    alone = {(row.stack, row.layer, row.what, row.head): row.numbers["n_directions"] for row in rows}
    learned = sorted((one for one in groups if one.row.directions), key=lambda one: -one.row.numbers["signal_share"])
    found = groups_headline(groups)
    yield f"Heads that share a key head or values, as one: {found}."
    if not learned:
        return
    columns = [Column("layer"), Column("what", "left"), Column("shared head"), Column("directions")]
    columns += map(Column, ("in its heads", "strongest", f"{100 * (1 - level):g} % limits", "/ threshold"))
    columns.append(Column("of each head"))
    texts = []
    for row, shares in learned[:_LISTED]:
        assert row.head is not None
        members = len(shares[0])
        heads = range(row.head * members, (row.head + 1) * members)
        texts.append(
            (
                *_number(row),
                ", ".join(_count(alone[row.stack, row.layer, row.what, head], _NO_NUMBER) for head in heads),
                *_strongest(row),
                " ".join(f"{100 * share:.0f}" for share in shares[0]) + " %",
            )
        )
    yield Rows(columns, texts, named=3)


def _known(value: float, form: str, otherwise: str) -> str:
    return otherwise if math.isnan(value) else form.format(value)


def _count(number: float, otherwise: str = UNTESTED) -> str:
    return _known(number, "{:g}", otherwise)


def _tail_items(rows: Sequence[SignalRow], level: float) -> Iterator[Item]:
    """Print a line for each circuit and component: exponents, and the verdicts on its spectra."""
    from rmtbase.results.signal._signal_tails import summarize_tails

    found = summarize_tails(rows, level)
    if found:
        columns = [
            Column("what", "left"),
            *map(Column, ("spectra", "exponent, median", "95 % of noise", "heavier tail")),
        ]
        columns += map(Column, found[0].verdicts)
        texts = [
            (
                one.what,
                str(one.spectra),
                f"{one.exponent:.3g}",
                f"{one.null_low:.3g}–{one.null_high:.3g}",
                str(one.heavier),
                *map(str, one.verdicts.values()),
            )
            for one in found
        ]
        yield Rows(columns, texts)
        yield (
            "Exponents of a power law fitted to the eigenvalues, beside those of matrices that learned nothing; a "
            f"heavier tail: smaller by more than chance makes it, at {level:g}. What a spectrum is: the one "
            "candidate that the likelihood of all its eigenvalues leaves standing."
        )
    yield from _reasons("tails", [row.tails["tail_reason"] for row in rows if row.tails])


def _reasons(lacking: str, reasons: Sequence[str]) -> Iterator[Item]:
    """Print how many spectra lack something for each reason; "" is no reason."""
    for reason, count in Counter(filter(None, reasons)).items():
        yield f"{count} {'spectrum' if count == 1 else 'spectra'} without {lacking}: {reason}"


def _reading_items(readings: Sequence[DirectionReading], level: float, command: str) -> Iterator[Item]:
    """Say how many directions point at tokens beyond chance, and list these; with ``--verbose`` all directions."""
    from rmtbase.heads.direction_tokens import nearer_than_chance, nearest_words, readings_headline

    yield readings_headline(readings, level)
    listed = readings if VERBOSITY.get() >= Verbosity.VERBOSE else nearer_than_chance(readings, level)
    if not listed:
        if readings:
            yield f"All of them: {command}"
        return
    columns = [Column("layer"), Column("what", "left"), Column("head"), Column("direction"), Column("side", "left")]
    columns += [Column("tokens at one end, z", "left"), Column("at the other", "left"), Column("nearest by chance, p")]
    texts = [
        (
            *_place(one),
            str(one.direction),
            f"{one.side}, {'written' if one.written else 'read'}",
            *(
                f"{' '.join(shown(token, _LONGEST_TOKEN) for token, _ in end)} ({end[0][1]:+.1f})"
                for end in (one.above, one.below)
            ),
            f"{one.p_value:.2g}",
        )
        for one in listed
    ]
    yield Rows(columns, texts, named=3)
    chance = "p bounds the probability that any token is as near to a random direction."
    yield f"{nearest_words(readings)} {chance} A direction and its opposite are the same.".lstrip()
    if len(listed) < len(readings):
        yield f"The other {len(readings) - len(listed)}: {command}"


def as_json(tree: xr.DataTree, readings: Sequence[DirectionReading] | None = None) -> dict[str, Any]:
    """Return every head and matrix with its directions as plain data; null where there is no number."""
    from rmtbase.heads.direction_tokens import readings_headline
    from rmtbase.results.signal.rows import (
        discoveries,
        groups_not_testable,
        signal_groups,
        signal_headline,
        signal_not_testable,
        signal_rows,
    )
    from rmtbase.tables import not_testable_json

    attributes, level = tree.attrs, float(tree.attrs["level"])
    rows, groups = signal_rows(tree), signal_groups(tree)
    return {
        **{name: attributes[name] for name in ("model", "revision", "level")},
        "n_testable": sum(row.testable for row in rows),
        "n_learned": discoveries(rows, level) if any(row.testable for row in rows) else None,
        "not_testable": not_testable_json([*signal_not_testable(rows), *groups_not_testable(groups)]),
        "sentences": [
            signal_headline(rows, level),
            *([] if readings is None else [readings_headline(readings, level)]),
        ],
        "warnings": json.loads(attributes["warnings"]),
        "heads": _heads_json(rows, level),
        "spectra": [_row_json(row) for row in rows],
        **({"groups": [_group_json(one) for one in groups]} if groups else {}),
        **({} if readings is None else {"tokens": [_reading_json(one) for one in readings]}),
    }


def _heads_json(rows: Sequence[SignalRow], level: float) -> list[dict[str, Any]]:
    """List every circuit of every head with its test, q over all heads, and how much it learned."""
    from rmtbase.statistics import benjamini_hochberg
    from rmtbase.tables import recorded

    heads = [row for row in rows if row.head is not None]
    q_value = benjamini_hochberg(np.array([row.numbers["first_p_value"] for row in heads]))
    return [
        _place_json(row)
        | {
            "p_value": row.numbers["first_p_value"],
            "q_value": float(q),
            "differs": bool(q < level) if row.testable else None,
            "n_directions": _plain("n_directions", row.numbers["n_directions"]),
            "signal_share": row.numbers["signal_share"],
            "testable": row.testable,
            "reason": row.reason if row.testable else recorded(row.reason),
            "no_number": row.no_number,
            "learned_share_bound": row.numbers["learned_share_bound"],
            "no_bound": row.no_bound,
        }
        for row, q in zip(heads, q_value, strict=True)
    ]


def _place_json(row: SignalRow | DirectionReading, numbered: str = "head") -> dict[str, Any]:
    return ({"stack": row.stack} if row.stack else {}) | {"layer": row.layer, "what": row.what, numbered: row.head}


def _row_json(row: SignalRow, numbered: str = "head") -> dict[str, Any]:
    return (
        _place_json(row, numbered)
        | {name: _plain(name, value) for name, value in row.numbers.items()}
        | {"directions": row.directions, "reason": row.reason, "no_number": row.no_number, "no_bound": row.no_bound}
        | ({"heavy_tails": row.tails} if row.tails else {})
    )


def _group_json(group: GroupRow) -> dict[str, Any]:
    whole = _row_json(group.row, "key_head")
    directions = zip(group.row.directions, group.head_share, strict=True)
    return whole | {"directions": [{**one, "head_share": share} for one, share in directions]}


def _reading_json(reading: DirectionReading) -> dict[str, Any]:
    told = ("direction", "side", "written", "p_value", "above", "below")
    by_chance = {} if reading.by_chance is None else {"nearest_by_chance": reading.by_chance._asdict()}
    return _place_json(reading) | {name: getattr(reading, name) for name in told} | by_chance


def _plain(name: str, value: float) -> float | int | bool:
    """Convert a value to its own type; printing turns NaN into JSON's null."""
    if math.isnan(value) or name not in ("n_directions", "noise_floor"):
        return value
    return bool(value) if name == "noise_floor" else int(value)
