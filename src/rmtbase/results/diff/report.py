"""Changes from one checkpoint to another on the terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rmtbase.reasons import NotTestable, Reason
from rmtbase.report import DETAILS, UNTESTED, Column, Heading, Item, Rows
from rmtbase.results.diff.schema import PRODUCTS, SIDES
from rmtbase.tables import layer_names
from rmtbase.terminal.command_line import next_command
from rmtbase.words import counted, plural, untested_words

if TYPE_CHECKING:
    import xarray as xr

    from rmtbase.tables import Circuit

_FIRST = 3  # matrices, and heads, that the answer names
_LISTED = 12  # heads in the table
_NOUNS = {"matrices": "matrix", "heads": "part of a head"}
_OF_KEYS = ("attention_key", "attention_value")  # their heads are those of the keys
_TESTS = {
    "reason": ("directions", "how many directions the change has"),
    "reason_in": ("old directions of the inputs", "whether it lies along the old inputs"),
    "reason_out": ("old directions of the outputs", "whether it lies along the old outputs"),
    "reason_head": ("shares of heads", "whether a head has more than its share of it"),
}
"""Variable of the reasons, name, and question of each test."""

Row = dict[str, Any]
Untested = dict[str, list[NotTestable]]  # objects without a test, by the variable of their reasons


def _larger(row: Row, side: str) -> str:
    flagged, tested = row[f"flagged_{side}"], row[f"tested_{side}"]
    if flagged is None:
        return UNTESTED
    return str(flagged) if tested == row["matrices"] else f"{flagged} of {tested}"


def _part(row: Row) -> str:
    return f"{row['layer']} {'key ' if row['component'] in _OF_KEYS else ''}head {row['head']} {row['component']}"


_MEDIANS = (  # over the matrices of a component
    Column("change", form=".3g", cell="relative_change"),
    Column("cosine", form="+.2f", cell="cosine"),
    Column("eff. rank", form=".1f", cell="effective_rank"),
    Column("directions", form=".0f", cell="n_directions"),
    Column("old inputs", form=".3f", cell="old_share_in"),
    Column("by chance", form=".3f", cell="expected_share_in"),
    Column("old outputs", form=".3f", cell="old_share_out"),
    Column("by chance", form=".3f", cell="expected_share_out"),
)
_LARGER = tuple(Column("larger", cell=partial(_larger, side=side)) for side in SIDES)
_COLUMNS = (
    *(Column("matrix", "left", cell="component"), Column("number", form="d", cell="matrices")),
    *(*_MEDIANS[:6], _LARGER[0], *_MEDIANS[6:], _LARGER[1]),
)
_SHARES = (
    Column("part", "left", cell=_part),
    Column("share", form=".3f", cell="share"),
    Column("by chance", form=".3f", cell="expected_share"),
    Column("p-value", form=".1e", cell="p_value"),
    Column("q-value", form=".1e", cell="q_value"),
)


def as_json(tree: xr.DataTree, level: float = 0.05) -> dict[str, Any]:
    """Return the summary of each component, and what could not be tested, as plain data."""
    untested = [
        {"test": _TESTS[test][0], "place": item.place, "reason": item.reason.words}
        for group in _groups(tree).values()
        for test, items in _untested(group).items()
        for item in items
    ]
    summaries = {name: _summaries(group, level) for name, group in _groups(tree).items()}
    heads = {"heads": most_changed(tree), "heads_with_larger_shares": larger_shares(tree, level)}
    return {"models": tree.attrs["model"], "level": level, **summaries, **heads, "not_testable": untested}


def _groups(tree: xr.DataTree) -> dict[str, xr.Dataset]:
    return {name: tree[name].to_dataset() for name in _NOUNS if name in tree}


def most_changed(tree: xr.DataTree, circuit: Circuit = PRODUCTS[0]) -> list[Row]:
    """List all heads by the change of their W_QK, or of another product, over its norm before; the largest first."""
    if "heads" not in tree or f"relative_change_{circuit.name}" not in tree["heads"]:
        return []
    group = tree["heads"].to_dataset()
    names = [f"{name}_{product.name}" for product in PRODUCTS for name in ("relative_change", "similarity")]
    numbers = {name: group[name].values for name in names if name in group}
    change, layers = numbers[f"relative_change_{circuit.name}"], layer_names(group)
    places = sorted(np.argwhere(np.isfinite(change)).tolist(), key=lambda place: -change[tuple(place)])
    return [
        {"layer": layers[layer], "head": int(group["head"][head])}
        | {name: float(values[layer, head]) for name, values in numbers.items()}
        for layer, head in places
    ]


def larger_shares(tree: xr.DataTree, level: float) -> list[Row]:
    """List the heads whose share of the change of their matrix is larger than by chance, most improbable first."""
    if "heads" not in tree or "q_value_head" not in tree["heads"]:
        return []
    group = tree["heads"].to_dataset()
    layers, dims = layer_names(group), ("layer", "head", "component")
    rows = []
    for place in np.argwhere(group["q_value_head"].transpose(*dims).values < level).tolist():
        part = group.isel(dict(zip(dims, place, strict=True)))
        row = {"layer": layers[place[0]], "head": int(part["head"]), "component": str(part["component"].values)}
        numbers = ("share", "expected_share", "p_value", "q_value")
        rows.append(row | {name: float(part[f"{name}_head"]) for name in numbers})
    return sorted(rows, key=lambda row: (row["q_value"], -row["share"] / row["expected_share"]))


def _summaries(group: xr.Dataset, level: float) -> list[Row]:
    rows = []
    for name in group["component"].values.tolist():
        matrices = group.sel(component=name)
        row: Row = {
            "component": name,
            "matrices": int(matrices["n_rows"].notnull().sum()),
            "unchanged": int((matrices["relative_change"] == 0).sum()),
            "directions_tested": int(matrices["first_p_value"].notnull().sum()),
        }
        for variable in (str(column.cell) for column in _MEDIANS):
            values = matrices[variable].values
            row[variable] = None if np.isnan(values).all() else float(np.nanmedian(values))
        for side in SIDES:
            row[f"tested_{side}"] = int(matrices[f"p_value_{side}"].notnull().sum())
            flagged = int((matrices[f"q_value_{side}"] < level).sum())
            row[f"flagged_{side}"] = flagged if row[f"tested_{side}"] else None
        rows.append(row)
    return rows


def _untested(group: xr.Dataset) -> Untested:
    layers, untested = layer_names(group), {}
    for test in (name for name in _TESTS if name in group):
        reasons, dims = group[test].values, [str(dim) for dim in group[test].dims]
        untested[test] = []
        for place in np.argwhere(reasons != "").tolist():
            at = dict(zip(dims, place, strict=True))
            head = f" head {group['head'].values[at['head']]}" if "head" in at else ""
            name = f"{layers[at['layer']]}{head} {group['component'].values[at['component']]}"
            untested[test].append(NotTestable(name, Reason.read(reasons[tuple(place)])))
    return untested


def report(tree: xr.DataTree, level: float = 0.05) -> Iterator[Item]:
    """Print which heads changed most, then the change of each component, over whole matrices and over heads."""
    groups = _groups(tree)
    summaries = {name: _summaries(group, level) for name, group in groups.items()}
    untested = {name: _untested(group) for name, group in groups.items()}
    shares = larger_shares(tree, level)
    call = json.loads(tree.attrs["provenance"])["call"]
    sides = [name for name in ("before", "after", "adapter") if name in call]
    names = {name: Heading.of_model(dict(zip(("model", "revision"), call[name], strict=True))) for name in sides}
    pair = "{adapter} on {before}" if "adapter" in names else "From {before} to {after}"
    yield Heading(f"{pair.format(**names)}: what changed")
    if (groups["matrices"]["relative_change"] > 0.0).any():
        for circuit in PRODUCTS:
            heads, name = most_changed(tree, circuit), f"relative_change_{circuit.name}"
            if heads and not heads[0][name]:
                yield f"{circuit.symbol} is the same in both in all {len(heads)} heads."
            elif heads:
                named = [f"{head['layer']} head {head['head']} ({head[name]:.2g})" for head in heads]
                median = f"; of the {len(heads)} the median is {np.median([head[name] for head in heads]):.2g}"
                others = f"{median}, the least {named[-1]}" if len(heads) > _FIRST else ""
                yield (
                    f"Heads whose {circuit.symbol} changed most, by the norm of its change over its norm before: "
                    f"{', '.join(named[:_FIRST])}{others}."
                )
    yield from _answer(summaries["matrices"], level)
    if "heads" in groups and "p_value_head" in groups["heads"]:
        tested = int(groups["heads"]["p_value_head"].notnull().sum())
        first = (
            f"{_part(row)} has {row['share']:.0%} of the change of its matrix (by chance {row['expected_share']:.0%})"
            for row in shares[:_FIRST]
        )
        if tested:
            yield (
                f"{len(shares) or 'None'} of {tested} tested {plural(tested, 'part of a head')} (a head's rows or "
                f"columns of one matrix) {'have' if len(shares) > 1 else 'has'} a larger share of the change than "
                f"random rows would have (q < {level:g}){': ' if shares else ''}{'; '.join(first)}."
            )
    yield from _unanswered(untested)
    yield DETAILS
    for group, rows in summaries.items():
        total = sum(row["matrices"] for row in rows)
        tests: dict[tuple[tuple[str, str], ...], list[str]] = {}  # by the matrices and the reasons of no test
        for test, items in untested[group].items():
            tests.setdefault(tuple((item.place, str(item.reason)) for item in items), []).append(test)
        for joined in (names for missing, names in tests.items() if missing):
            words = untested_words(untested[group][joined[0]], total, _NOUNS[group])
            yield f"{', '.join(_TESTS[test][0] for test in joined).capitalize()}: {words}."
    yield (
        "Medians over layers, or over all heads: the norm of the change over that of the earlier matrix; its cosine "
        "with the earlier matrix; its effective rank, and its directions beyond noise; its share along the old "
        "directions of inputs and outputs, with that of a random rotation, and the number of matrices whose share is "
        f"larger (q < {level:g}). A change that takes part of the earlier matrix away, at a negative cosine, is along "
        "its directions, too."
    )
    for group, rows in summaries.items():
        yield Rows.of(rows, *_COLUMNS, title={"matrices": "whole matrices", "heads": "of each head"}[group])
    if shares:
        yield Rows.of(shares[:_LISTED], *_SHARES)
    if len(shares) > _LISTED:
        yield f"{len(shares) - _LISTED} more are in the file (-o) and in --json."


def _answer(rows: Sequence[Row], level: float) -> Iterator[Item]:
    total, unchanged = (sum(row[name] for row in rows) for name in ("matrices", "unchanged"))
    if total == unchanged:
        yield f"No matrix of {total} changed, so there is no change to test."
        return
    equal = f"; {unchanged} {'are' if unchanged > 1 else 'is'} the same in both" if unchanged else ""
    yield f"{total - unchanged} of {total} matrices changed{equal}."
    changed = sorted((row for row in rows if row["relative_change"]), key=lambda row: -row["relative_change"])
    if changed:
        most = ", ".join(
            f"{row['component']} {row['relative_change']:.2g}"
            + ("" if row["n_directions"] is None else f" ({row['n_directions']:.0f} directions beyond noise)")
            for row in changed[:_FIRST]
        )
        yield f"Largest change over the earlier norm, median over layers: {most}."
    sides = [
        f"{sum(row[f'flagged_{side}'] or 0 for row in rows) or 'none'} of {tested} tested along the old {name}"
        for side, name in SIDES.items()
        if (tested := sum(row[f"tested_{side}"] for row in rows))
    ]
    if sides:
        yield f"Changes that lie along old directions more than at random (q < {level:g}): {', '.join(sides)}."


def _unanswered(untested: Mapping[str, Untested]) -> Iterator[Item]:
    questions: dict[tuple[str, Reason], list[str]] = {}
    for test, (_, question) in _TESTS.items():
        missing = {
            group: [item.reason for item in tests.get(test, ()) if item.reason != Reason("unchanged")]
            for group, tests in untested.items()
        }
        reasons = [reason for of_group in missing.values() for reason in of_group]
        if reasons:
            counts = " and ".join(counted(len(items), _NOUNS[group]) for group, items in missing.items() if items)
            single = reasons[0] if all(reason == reasons[0] for reason in reasons) else Reason()
            questions.setdefault((counts, single), []).append(question)
    parts = [
        f"{' and '.join(texts)}, for {counts}{f' ({reason.words})' if reason else ''}"
        for (counts, reason), texts in questions.items()
    ]
    if parts:
        details = "" if all(reason for _, reason in questions) else f" (why: {next_command('--verbose')})"
        yield f"Cannot be told: {'; '.join(parts)}{details}."
