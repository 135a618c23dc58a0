"""Changes from one checkpoint to another on the terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rmtbase.report import DETAILS, UNTESTED, Column, Heading, Item, Rows
from rmtbase.results.diff.schema import PRODUCTS, UNCHANGED
from rmtbase.terminal.command_line import next_command

if TYPE_CHECKING:
    import xarray as xr

    from rmtbase.tables import Circuit, NotTestable

_SIDES = ("in", "out")
_BOTH = ("before", "after")
_NOUNS = {"matrices": "matrix", "heads": "part of a head"}


def as_json(tree: xr.DataTree, level: float = 0.05) -> dict[str, Any]:
    """Return the summary of each component, and what could not be tested, as plain data."""
    summaries, untested = _all_summaries(tree, level)
    left_out = [
        {"test": test, **one._asdict()} for tests in untested.values() for test, each in tests.items() for one in each
    ]
    named = {"heads": most_changed(tree), "heads_with_larger_shares": larger_shares(tree, level)}
    return {"models": tree.attrs["model"], "level": level, **summaries, **named, "not_testable": left_out}


def most_changed(tree: xr.DataTree, circuit: Circuit = PRODUCTS[0]) -> list[dict[str, Any]]:
    """List all heads by the change of their W_QK, or of another product, over its norm before; the largest first."""
    from rmtbase.tables import layer_names

    if "heads" not in tree or f"relative_change_{circuit.name}" not in tree["heads"]:
        return []
    group = tree["heads"].to_dataset()
    known = [one.name for one in PRODUCTS if f"relative_change_{one.name}" in group]
    layers, heads = layer_names(group), group["head"].values.tolist()
    numbers = {
        f"{name}_{one}": group[f"{name}_{one}"].values for one in known for name in ("relative_change", "similarity")
    }
    change = numbers[f"relative_change_{circuit.name}"]
    places = np.argwhere(np.isfinite(change)).tolist()
    return [
        {"layer": layers[layer], "head": heads[head]} | {name: float(of[layer, head]) for name, of in numbers.items()}
        for layer, head in sorted(places, key=lambda place: -change[tuple(place)])
    ]


def larger_shares(tree: xr.DataTree, level: float) -> list[dict[str, Any]]:
    """List the heads whose share of the change of their matrix is larger than by chance, most improbable first."""
    from rmtbase.tables import layer_names

    if "heads" not in tree or "q_value_head" not in tree["heads"]:
        return []
    group = tree["heads"].to_dataset()
    layers, q_value = layer_names(group), group["q_value_head"].transpose("layer", "head", "component").values
    found = []
    for place in np.argwhere(q_value < level).tolist():
        one = group.isel(dict(zip(("layer", "head", "component"), place, strict=True)))
        row = {"layer": layers[place[0]], "head": int(one["head"]), "component": str(one["component"].values)}
        numbers = ("share", "expected_share", "p_value", "q_value")
        found.append(row | {name: float(one[f"{name}_head"]) for name in numbers})
    return sorted(found, key=lambda row: (row["q_value"], -row["share"] / row["expected_share"]))


def _all_summaries(
    tree: xr.DataTree, level: float
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, dict[str, list[NotTestable]]]]:
    """Summarize the components of whole matrices and of heads, and list for each what could not be tested."""
    groups = {name: tree[name].to_dataset() for name in ("matrices", "heads") if name in tree}
    summaries = {name: _summaries(group, level) for name, group in groups.items()}
    return summaries, {name: _not_testable(group) for name, group in groups.items()}


def _summaries(group: xr.Dataset, level: float) -> list[dict[str, Any]]:
    """Summarize each component: medians over its matrices, and the number of flagged ones."""
    found = []
    for name in group["component"].values.tolist():
        one = group.sel(component=name)
        row: dict[str, Any] = {
            "component": name,
            "matrices": int(one["n_rows"].notnull().sum()),
            "unchanged": int((one["relative_change"] == 0).sum()),
            "directions_tested": int(one["first_p_value"].notnull().sum()),
        }
        numbers = ("relative_change", "cosine", "effective_rank", "n_directions")
        for variable in (*numbers, *(f"{word}_{side}" for side in _SIDES for word in ("old_share", "expected_share"))):
            values = one[variable].values
            row[variable] = None if np.isnan(values).all() else float(np.nanmedian(values))
        for side in _SIDES:
            row[f"tested_{side}"] = int(one[f"p_value_{side}"].notnull().sum())
            flagged = int((one[f"q_value_{side}"] < level).sum())
            row[f"flagged_{side}"] = flagged if row[f"tested_{side}"] else None
        found.append(row)
    return found


_OF = {
    "reason": "directions",
    "reason_in": "old directions of the inputs",
    "reason_out": "old directions of the outputs",
    "reason_head": "shares of heads",
}


def _not_testable(group: xr.Dataset) -> dict[str, list[NotTestable]]:
    """List, for each test, the matrices of a group that could not be tested, each with its reason."""
    from rmtbase.tables import NotTestable, layer_names

    found = {}
    for variable, what in _OF.items():
        if variable not in group:
            continue
        layers, dims = layer_names(group), [str(dim) for dim in group[variable].dims]
        found[what] = []
        for place in np.argwhere(group[variable].values != "").tolist():
            at = dict(zip(dims, place, strict=True))
            head = f" head {group['head'].values[at['head']]}" if "head" in at else ""
            name = f"{layers[at['layer']]}{head} {group['component'].values[at['component']]}"
            found[what].append(NotTestable(name, str(group[variable].values[tuple(place)])))
    return found


def report(tree: xr.DataTree, level: float = 0.05) -> Iterator[Item]:
    """Print which heads changed most, then the change of each component, over whole matrices and over heads."""
    from rmtbase.tables import not_testable_words

    summaries, untested = _all_summaries(tree, level)
    yield _heading(tree)
    for circuit in PRODUCTS:
        yield from _most_changed_sentence(tree, circuit)
    yield from _answer(summaries, level)
    yield from _shares_sentence(tree, level)
    yield from _untold_sentence(untested)
    yield DETAILS
    for group, rows in summaries.items():
        total = sum(row["matrices"] for row in rows)
        for what, each in _alike(untested[group]).items():
            if each:
                said = not_testable_words(each, total, _NOUNS[group])
                yield f"{what[0].upper()}{what[1:]}: {said}."
    yield (
        "Medians over layers, or over all heads: the norm of the change over that of the earlier matrix; its cosine "
        "with the earlier matrix; its effective rank, and its directions beyond noise; its share along the old "
        "directions of inputs and outputs, with that of a random rotation, and the number of matrices whose share is "
        f"larger (q < {level:g}). A change that takes part of the earlier matrix away, at a negative cosine, is along "
        "its directions, too."
    )
    columns = [Column("matrix", "left"), *map(Column, ("number", "change", "cosine", "eff. rank", "directions"))]
    columns += map(Column, ("old inputs", "by chance", "larger", "old outputs", "by chance", "larger"))
    for group, rows in summaries.items():
        texts = [
            (
                row["component"],
                str(row["matrices"]),
                *(_text(row[name], form) for name, form in _FORMS.items()),
                *(
                    text
                    for side in _SIDES
                    for text in (
                        _text(row[f"old_share_{side}"], ".3f"),
                        _text(row[f"expected_share_{side}"], ".3f"),
                        _of_tested(row[f"flagged_{side}"], row[f"tested_{side}"], row["matrices"]),
                    )
                ),
            )
            for row in rows
        ]
        yield Rows(columns, texts, title={"matrices": "whole matrices", "heads": "of each head"}[group])
    yield from _shares_report(tree, level)


def _heading(tree: xr.DataTree) -> Heading:
    """Name the two checkpoints, or the adapter and its base."""
    call = json.loads(tree.attrs["provenance"])["call"]
    before, after = (Heading.of_model(dict(zip(("model", "revision"), call[name], strict=True))) for name in _BOTH)
    adapter = after.removeprefix(f"{before} + ")
    what = f"{adapter} on {before}" if adapter != after else f"From {before} to {after}"
    return Heading(f"{what}: what changed")


def _untold_sentence(untested: dict[str, dict[str, list[NotTestable]]]) -> Iterator[Item]:
    """Say which questions have no answer for what changed, of how much, and why if there is only one reason."""
    from rmtbase.tables import plural

    counts: dict[str, list[str]] = {}
    reasons: dict[str, dict[str, None]] = {}
    for group, tests in untested.items():
        for what, each in tests.items():
            if lacking := [one.reason for one in each if one.reason != UNCHANGED]:
                counts.setdefault(what, []).append(f"{len(lacking)} {plural(len(lacking), _NOUNS[group])}")
                reasons.setdefault(what, {}).update(dict.fromkeys(lacking))
    alike: dict[tuple[str, str], list[str]] = {}
    for what, each in counts.items():
        why = next(iter(reasons[what])) if len(reasons[what]) == 1 else ""
        alike.setdefault((" and ".join(each), why), []).append(_QUESTIONS[what])
    if alike:
        parts = (
            f"{' and '.join(questions)}, for {number}{f' ({why})' if why else ''}"
            for (number, why), questions in alike.items()
        )
        details = "" if all(why for _, why in alike) else f" (why: {next_command('--verbose')})"
        yield f"Cannot be told: {'; '.join(parts)}{details}."


_QUESTIONS = {
    "directions": "how many directions the change has",
    "old directions of the inputs": "whether it lies along the old inputs",
    "old directions of the outputs": "whether it lies along the old outputs",
    "shares of heads": "whether a head has more than its share of it",
}


def _most_changed_sentence(tree: xr.DataTree, circuit: Circuit) -> Iterator[Item]:
    """Name the heads whose product changed most, with the median and the least of all."""
    heads, name = most_changed(tree, circuit), f"relative_change_{circuit.name}"
    if not heads or not (tree["matrices"]["relative_change"] > 0.0).any():
        return
    if not heads[0][name]:
        yield f"{circuit.symbol} is the same in both in all {len(heads)} heads."
        return
    named = [f"{head['layer']} head {head['head']} ({head[name]:.2g})" for head in heads]
    median = np.median([head[name] for head in heads])
    rest = f"; of the {len(heads)} the median is {median:.2g}, the least {named[-1]}" if len(heads) > _FIRST else ""
    yield (
        f"Heads whose {circuit.symbol} changed most, by the norm of its change over its norm before: "
        f"{', '.join(named[:_FIRST])}{rest}."
    )


def _answer(summaries: dict[str, list[dict[str, Any]]], level: float) -> Iterator[Item]:
    """Say how much the matrices changed, which most, and whether along the old directions."""
    rows = summaries["matrices"]
    total, unchanged = (sum(row[name] for row in rows) for name in ("matrices", "unchanged"))
    if total == unchanged:
        yield f"No matrix of {total} changed, so there is no change to test."
        return
    same = f"; {unchanged} {'are' if unchanged > 1 else 'is'} the same in both" if unchanged else ""
    yield f"{total - unchanged} of {total} matrices changed{same}."
    changed = sorted((row for row in rows if row["relative_change"]), key=lambda row: -row["relative_change"])
    if changed:
        most = ", ".join(
            f"{row['component']} {row['relative_change']:.2g}"
            + ("" if row["n_directions"] is None else f" ({row['n_directions']:.0f} directions beyond noise)")
            for row in changed[:_FIRST]
        )
        yield f"Largest change over the earlier norm, median over layers: {most}."
    sides = [
        f"{_number(sum(row[f'flagged_{side}'] or 0 for row in rows))} of {tested} tested along the old {name}"
        for side, name in (("in", "inputs"), ("out", "outputs"))
        if (tested := sum(row[f"tested_{side}"] for row in rows))
    ]
    if sides:
        yield f"Changes that lie along old directions more than at random (q < {level:g}): {', '.join(sides)}."


def _number(count: int) -> str:
    return str(count) if count else "none"


def _shares_sentence(tree: xr.DataTree, level: float) -> Iterator[Item]:
    """Name the heads that have a larger share of the change of their matrix than by chance."""
    from rmtbase.tables import plural

    heads = larger_shares(tree, level)
    known = "heads" in tree and "p_value_head" in tree["heads"]
    tested = int(tree["heads"]["p_value_head"].notnull().sum()) if known else 0
    if not tested:
        return
    first = "; ".join(
        f"{_part(row)} has {row['share']:.0%} of the change of its matrix (by chance {row['expected_share']:.0%})"
        for row in heads[:_FIRST]
    )
    named = f"{first[0].upper()}{first[1:]}. " if heads else ""
    count, parts = _number(len(heads)).capitalize(), plural(tested, "part of a head")
    have = "have" if len(heads) > 1 else "has"
    yield (
        f"{named}{count} of {tested} tested {parts} (a head's rows or columns of one matrix) {have} a larger share of "
        f"the change than random rows would have (q < {level:g})."
    )


def _shares_report(tree: xr.DataTree, level: float) -> Iterator[Item]:
    """List the heads that have a larger share of the change of their matrix than by chance, the clearest first."""
    found = larger_shares(tree, level)
    if not found:
        return
    rows = [
        (
            _part(row),
            f"{row['share']:.3f}",
            f"{row['expected_share']:.3f}",
            f"{row['p_value']:.1e}",
            f"{row['q_value']:.1e}",
        )
        for row in found[:_LISTED]
    ]
    yield Rows([Column("part", "left"), *map(Column, ("share", "by chance", "p-value", "q-value"))], rows)
    if len(found) > _LISTED:
        yield f"{len(found) - _LISTED} more are in the file (-o) and in --json."


def _part(row: dict[str, Any]) -> str:
    """Name the part of a head in a matrix."""
    return f"{row['layer']} {'key ' if row['component'] in _OF_KEYS else ''}head {row['head']} {row['component']}"


_FIRST = 3  # matrices, and heads, that the answer names
_LISTED = 12  # heads in the table
_OF_KEYS = ("attention_key", "attention_value")  # their heads are those of the keys
_FORMS = {"relative_change": ".3g", "cosine": "+.2f", "effective_rank": ".1f", "n_directions": ".0f"}


def _alike(untested: dict[str, list[NotTestable]]) -> dict[str, list[NotTestable]]:
    """Join tests that are not possible for the same matrices and the same reasons under one name."""
    names: dict[tuple[NotTestable, ...], list[str]] = {}
    for what, each in untested.items():
        names.setdefault(tuple(each), []).append(what)
    return {", ".join(whats): list(each) for each, whats in names.items()}


def _of_tested(flagged: int | None, tested: int, all_of_them: int) -> str:
    """Format the number of flagged matrices, with the number tested if some could not be tested."""
    if flagged is None:
        return UNTESTED
    return str(flagged) if tested == all_of_them else f"{flagged} of {tested}"


def _text(value: float | None, form: str) -> str:
    return UNTESTED if value is None else format(value, form)
