"""Signal and noise of a model on the terminal, and as JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rmtbase.heads.direction_tokens import nearer_than_chance, nearest_words, readings_headline
from rmtbase.models import opened_from, token_names
from rmtbase.reasons import NOT_RECORDED, Reason
from rmtbase.report import DETAILS, UNTESTED, Column, Heading, Item, Rows, Verbatim
from rmtbase.results.attributes import command_about, result_json
from rmtbase.results.signal.rows import (
    SignalRow,
    discoveries,
    groups_headline,
    not_testable,
    signal_groups,
    signal_headline,
    signal_rows,
    summarize_signal,
    summarize_tails,
)
from rmtbase.results.signal.schema import VERDICTS, WITHIN_CHANCE
from rmtbase.shown import percent, shown
from rmtbase.statistics import benjamini_hochberg
from rmtbase.terminal.endings import VERBOSITY, Verbosity, note
from rmtbase.words import counted, plural

if TYPE_CHECKING:
    import xarray as xr

    from rmtbase.heads.direction_tokens import DirectionReading
    from rmtbase.models import Difference, Model, WeightMatrices
    from rmtbase.nulls import Null

_LISTED = 12  # largest number of spectra, and of groups, that get a line of their own
_FIRST = 3  # spectra named as those that learned most
_NO_NUMBER = "no number"
_CANNOT_TELL = "cannot tell"
_LONGEST_TOKEN = 20  # characters


def _strongest_rows(rows: Sequence[SignalRow]) -> list[SignalRow]:
    return sorted((row for row in rows if row.directions), key=lambda row: -row.numbers["signal_share"])[:_LISTED]


def strongest_readings(model: WeightMatrices, tree: xr.DataTree, directions: int, null: Null) -> list[DirectionReading]:
    """Read the strongest directions of the listed spectra as tokens."""
    from rmtbase.results.signal._learned_part import read_directions

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
    rows: Sequence[SignalRow], summaries: Sequence[dict[str, Any]], strongest: Sequence[SignalRow], level: float
) -> Iterator[Item]:
    """Say in how many spectra something was learned, where most and how much, and how many directions."""
    yield signal_headline(rows, level)
    if strongest:
        first = ", ".join(
            f"{row.place} ({percent(row.numbers['signal_share'])} in {_directions(row)} "
            f"{plural(len(row.directions), 'direction')})"
            for row in strongest[:_FIRST]
        )
        numbered = counted(sum(not math.isnan(row.numbers["signal_share"]) for row in rows), "spectrum")
        yield (f"Largest learned share of the squared norm, among the {numbered} with a number of directions: {first}.")
    medians = []
    for part in (part for part in summaries if part["testable"]):
        without = f"no number ({part['unknown']} of {part['testable']} have none)"
        medians.append(f"{part['what']} {_if_number(part['median'], otherwise=without)}")
    if medians:
        yield f"Median number of directions: {', '.join(medians)}; noise has none with probability {1 - level:.0%}."
    with_bounds = [part for part in summaries if part["bounded"] or WITHIN_CHANCE in part["unbounded"]]
    bounds = []
    for part in with_bounds:
        median = _CANNOT_TELL if math.isnan(part["bound"]) else f"at least {percent(part['bound'])} in the median"
        bounds.append(f"{part['what']} {median} ({part['bounded']} of {part['spectra']} have a bound)")
    if any(part["bounded"] for part in with_bounds):
        yield (
            f"Learned share of each matrix of a head, rows scaled to one norm: {'; '.join(bounds)}. At most 5 % of the "
            "bounds exceed the share by more than 5 points."
        )
    elif with_bounds:
        count = sum(part["spectra"] for part in with_bounds)
        yield f"Learned share of each matrix of a head: cannot tell (0 of {count} have a bound beyond chance)."
    if any(row.numbers["noise_floor"] is False for row in strongest[:_FIRST]):
        yield "In brackets: the other eigenvalues do not look like noise, which makes the number uncertain."


def _row_items(
    rows: Sequence[SignalRow], summaries: Sequence[dict[str, Any]], strongest: Sequence[SignalRow], level: float
) -> Iterator[Item]:
    """Print a line for each circuit and component, then the spectra in which the most was learned."""

    def percentage(name: str, otherwise: Callable[[dict[str, Any]], str]) -> Callable[[dict[str, Any]], str]:
        return lambda part: _if_number(100 * part[name], "{:.1f} %", otherwise(part))

    def lacking(part: dict[str, Any]) -> str:
        return _NO_NUMBER if part["testable"] else UNTESTED

    def unbounded(part: dict[str, Any]) -> str:
        return _CANNOT_TELL if WITHIN_CHANCE in part["unbounded"] else ""

    def overlaps(row: SignalRow) -> str:
        return ", ".join(f"{row.directions[0][name]:.2f}" for name in ("overlap_left", "overlap_right"))

    def noise_scale(row: SignalRow) -> str:
        return f"{row.numbers['noise_scale']:.3g}" + _if_number(row.numbers["noise_scale_std"], " ± {:.1g}", "")

    if any(row.testable for row in rows):
        yield (
            "Directions are counted in each by itself: a spectrum that learned nothing has one with probability "
            f"{100 * level:g} %."
        )
    yield Rows.of(
        summaries,
        Column("what", "left", cell=lambda part: part["what"]),
        Column("spectra", cell=lambda part: part["spectra"]),
        Column("testable", cell=lambda part: part["testable"]),
        Column("none found", cell=lambda part: part["without"] if part["testable"] else UNTESTED),
        Column("directions, median", cell=lambda part: _if_number(part["median"], otherwise=lacking(part))),
        Column("most", cell=lambda part: f"{'≥ ' if part['unknown'] else ''}{_if_number(part['most'])}"),
        Column("learned share of the squared norm", cell=percentage("share", lacking)),
        Column("rest is not noise", cell=lambda part: _if_number(part["no_floor"])),
        Column("at least, by a bound", cell=percentage("bound", unbounded)),
    )
    if strongest:
        yield Rows.of(
            strongest,
            *_place_columns(),
            Column("directions", cell=_directions),
            *_strength_columns(level),
            Column("overlaps", cell=overlaps),
            Column("learned share", cell=lambda row: f"{100 * row.numbers['signal_share']:.1f} %"),
            Column("noise scale", cell=noise_scale),
            Column("rest is noise, p", cell=lambda row: _if_number(row.numbers["rest_p_value"], "{:.2g}")),
            named=3,
        )
    omitted = sum(bool(row.directions) for row in rows) - len(strongest)
    if omitted > 0:
        yield f"and {omitted} more; the file and --json hold all of them"
    if any(row.numbers["noise_floor"] is False and row.numbers["n_directions"] is not None for row in rows):
        yield "( ): the other eigenvalues are not those of noise, so that the number depends on where noise begins."
    yield from _reasons("a number of directions", [Reason(row.no_number) for row in rows])
    yield from _reasons("a bound on the learned share", [Reason(row.no_bound) for row in rows])


def _place_columns(head: str = "head") -> tuple[Column, ...]:
    return (
        Column("layer", cell=lambda row: f"{row.stack} {row.layer}".lstrip()),
        Column("what", "left", cell=lambda row: row.what),
        Column(head, cell=lambda row: "" if row.head is None else str(row.head)),
    )


def _strength_columns(level: float) -> tuple[Column, ...]:
    def limits(row: SignalRow) -> str:
        first = row.directions[0]
        return _if_number(first["strength_low"], f"{{:.3g}}–{first['strength_high']:.3g}")

    return (
        Column("strongest", cell=lambda row: f"{row.directions[0]['strength']:.3g}"),
        Column(f"{100 * (1 - level):g} % limits", cell=limits),
        Column("/ threshold", cell=lambda row: f"{row.directions[0]['strength'] / row.numbers['threshold']:.3g}"),
    )


def _directions(row: SignalRow) -> str:
    """Format the number of directions, in brackets if there is no noise floor."""
    number = str(row.numbers["n_directions"])
    return f"({number})" if row.numbers["noise_floor"] is False else number


def _group_items(rows: Sequence[SignalRow], groups: Sequence[SignalRow], level: float) -> Iterator[Item]:
    """Print what heads that share have as one, beside the directions of each head by itself."""
    numbers = {(row.stack, row.layer, row.what, row.head): row.numbers["n_directions"] for row in rows}

    def in_heads(group: SignalRow) -> str:
        members = len(group.directions[0]["head_share"])
        heads = range(members * (group.head or 0), members * ((group.head or 0) + 1))
        counts = (numbers[group.stack, group.layer, group.what, head] for head in heads)
        return ", ".join(_NO_NUMBER if number is None else str(number) for number in counts)

    def shares(group: SignalRow) -> str:
        return " ".join(f"{100 * share:.0f}" for share in group.directions[0]["head_share"]) + " %"

    yield f"Heads that share a key head or values, as one: {groups_headline(groups)}."
    if strongest := _strongest_rows(groups):
        yield Rows.of(
            strongest,
            *_place_columns("shared head"),
            Column("directions", cell=_directions),
            Column("in its heads", cell=in_heads),
            *_strength_columns(level),
            Column("of each head", cell=shares),
            named=3,
        )


def _if_number(value: float, form: str = "{:g}", otherwise: str = UNTESTED) -> str:
    return otherwise if math.isnan(value) else form.format(value)


def _tail_items(rows: Sequence[SignalRow], level: float) -> Iterator[Item]:
    if summaries := summarize_tails(rows, level):
        yield Rows.of(
            summaries,
            Column("what", "left", cell=lambda item: item.what),
            Column("spectra", cell=lambda item: item.spectra),
            Column("exponent, median", form=".3g", cell=lambda item: item.exponent),
            Column("95 % of noise", cell=lambda item: f"{item.null_low:.3g}–{item.null_high:.3g}"),
            Column("heavier tail", cell=lambda item: item.heavier),
            *(Column(word, cell=lambda item, code=code: item.verdicts[code]) for code, word in VERDICTS.items()),
        )
        yield (
            "Exponents of a power law fitted to the eigenvalues, beside those of matrices that learned nothing; a "
            f"heavier tail: smaller by more than chance makes it, at {level:g}. What a spectrum is: the one "
            "candidate that the likelihood of all its eigenvalues leaves standing."
        )
    yield from _reasons("tails", [row.tails["tail_reason"] for row in rows if row.tails])


def _reasons(lacking: str, reasons: Sequence[Reason]) -> Iterator[Item]:
    for words, count in Counter(reason.words for reason in reasons if reason).items():
        yield f"{counted(count, 'spectrum')} without {lacking}: {words}"


def _reading_items(readings: Sequence[DirectionReading], level: float, command: str) -> Iterator[Item]:
    """Say how many directions point at tokens beyond chance, and list these; with ``--verbose`` all directions."""
    yield readings_headline(readings, level)
    listed = readings if VERBOSITY.get() >= Verbosity.VERBOSE else nearer_than_chance(readings, level)
    if not listed:
        if readings:
            yield f"All of them: {command}"
        return

    def tokens(nearest: Sequence[tuple[str, float]]) -> str:
        return f"{' '.join(shown(token, _LONGEST_TOKEN) for token, _ in nearest)} ({nearest[0][1]:+.1f})"

    yield Rows.of(
        listed,
        *_place_columns(),
        Column("direction", cell=lambda reading: reading.direction),
        Column("side", "left", cell=lambda reading: f"{reading.side}, {'written' if reading.written else 'read'}"),
        Column("tokens at one end, z", "left", cell=lambda reading: tokens(reading.above)),
        Column("at the other", "left", cell=lambda reading: tokens(reading.below)),
        Column("nearest by chance, p", form=".2g", cell=lambda reading: reading.p_value),
        named=3,
    )
    chance = "p bounds the probability that any token is as near to a random direction."
    yield f"{nearest_words(readings)} {chance} A direction and its opposite are the same.".lstrip()
    if len(listed) < len(readings):
        yield f"The other {len(readings) - len(listed)}: {command}"


def as_json(tree: xr.DataTree, readings: Sequence[DirectionReading] | None = None) -> dict[str, Any]:
    """Return every head and matrix with its directions as plain data; null where there is no number."""
    level, rows, groups = float(tree.attrs["level"]), signal_rows(tree), signal_groups(tree)
    tested, heads = sum(row.testable for row in rows), [row for row in rows if row.head is not None]
    q_values = benjamini_hochberg(np.array([row.numbers["first_p_value"] for row in heads])).tolist()
    of_heads = [
        _place_json(row)
        | {"p_value": row.numbers["first_p_value"], "q_value": q_value}
        | {"differs": q_value < level if row.testable else None}
        | {name: row.numbers[name] for name in ("n_directions", "signal_share", "learned_share_bound")}
        | {"testable": row.testable, "no_number": row.no_number, "no_bound": row.no_bound}
        | {"reason": row.reason.words if row.reason or row.testable else NOT_RECORDED.words}
        for row, q_value in zip(heads, q_values, strict=True)
    ]
    of_groups = {"groups": [_row_json(group, "key_head") for group in groups]} if groups else {}
    of_tokens: dict[str, Any] = {}
    if readings is not None:
        names = ("direction", "side", "written", "p_value", "above", "below")
        of_tokens["tokens"] = [
            _place_json(reading)
            | {name: getattr(reading, name) for name in names}
            | ({} if reading.by_chance is None else {"nearest_by_chance": reading.by_chance._asdict()})
            for reading in readings
        ]
    return result_json(
        tree.attrs,
        ("model", "revision", "level"),
        [*not_testable(rows), *not_testable(groups, "heads of key head")],
        [signal_headline(rows, level), *([] if readings is None else [readings_headline(readings, level)])],
        n_testable=tested,
        n_learned=discoveries(rows, level) if tested else None,
        heads=of_heads,
        spectra=[_row_json(row) for row in rows],
        **of_groups,
        **of_tokens,
    )


def _place_json(row: SignalRow | DirectionReading, unit: str = "head") -> dict[str, Any]:
    return ({"stack": row.stack} if row.stack else {}) | {"layer": row.layer, "what": row.what, unit: row.head}


def _row_json(row: SignalRow, unit: str = "head") -> dict[str, Any]:
    tails = {name: value.words if isinstance(value, Reason) else value for name, value in row.tails.items()}
    of_row = {"directions": row.directions, "reason": row.reason.words}
    codes = {"no_number": row.no_number, "no_bound": row.no_bound}
    return _place_json(row, unit) | row.numbers | of_row | codes | ({"heavy_tails": tails} if tails else {})
