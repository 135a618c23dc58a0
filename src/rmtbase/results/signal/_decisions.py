"""Decisions for further training: which modules to give low-rank adapters, and which to unfreeze."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.models import Difference, Model
from rmtbase.results.signal._sequential_count import NO_NUMBER
from rmtbase.results.signal.rows import SignalRow, signal_rows
from rmtbase.shown import shown
from rmtbase.statistics import benjamini_hochberg
from rmtbase.tables import CIRCUITS, NotTestable, headline, not_testable_words, plural, recorded

FORMATS = ("peft", "yaml")
_OF_ADAPTER = re.compile(r"\.lora_[AB]\b")
_WRAPPED = "base_model.model."  # before the names that PEFT saves


class Module(NamedTuple):
    """A module of a model with a weight matrix, and what was learned in it."""

    name: str  # name of the module: the name of its tensor without ``.weight``
    # number of learned directions, summed where the tensor holds several matrices; NaN where it is not known
    n_directions: float
    share: float  # learned share of the squared norm; NaN where the number is not known
    # p-value of no learned direction; where the tensor holds several matrices, the smallest of theirs times their
    # number
    p_value: float
    q_value: float  # q-value over all modules that could be tested (Benjamini & Hochberg)
    reason: str = ""  # why the module could not be tested, or ""; its numbers are then not known
    no_number: str = ""  # why the number of directions of a tested module is not known, a key of ``NO_NUMBER``; or ""


def learned_modules(tree: xr.DataTree, model: Model | Difference) -> list[Module]:
    """List the modules of a model with what was learned in each: largest share first, unknown and untested last."""
    of = model.of if isinstance(model, Difference) else model
    places = {(place.stack, place.layer): layer for layer, place in enumerate(of.layers)}
    rows: dict[str, list[SignalRow]] = {}
    for row in signal_rows(tree):
        component = {"qk": "attention_query"}.get(row.what, row.what)  # a module of an adapter is a head
        if component in CIRCUITS:
            continue
        tensor = of.tensors(places[row.stack, row.layer], component)[0]
        update = _OF_ADAPTER.search(tensor)
        if (row.what in CIRCUITS) == (update is not None):
            module = tensor[: update.start()].removeprefix(_WRAPPED) if update else tensor.removesuffix(".weight")
            rows.setdefault(module, []).append(row)
    if not rows:
        raise ParameterError("tree", "no whole matrices", "those of a model: matrices='spectra'")
    p_values = []
    for own in rows.values():
        tested = [row.numbers["first_p_value"] for row in own if row.testable]
        p_values.append(min(1.0, len(tested) * min(tested)) if tested else np.nan)
    modules = [
        Module(
            name, sum(row.numbers["n_directions"] for row in own), _share(own), float(p), float(q),
            recorded(own[0].reason) if np.isnan(p) else "", next((row.no_number for row in own if row.no_number), ""),
        )
        for (name, own), p, q in zip(rows.items(), p_values, benjamini_hochberg(np.array(p_values)), strict=True)
    ]  # fmt: skip
    if np.isnan(p_values).all():
        left_out = [NotTestable(one.name, one.reason) for one in modules]
        words = not_testable_words(left_out, len(modules), "module")
        raise ParameterError("tree", words, "modules that can be tested, to decide by")
    return sorted(modules, key=lambda one: (bool(one.reason), -np.nan_to_num(one.share, nan=-1.0)))


def decisions_text(modules: Sequence[Module], level: float, form: str) -> str:
    """Format the modules that have learned something (q < level) as ``"peft"`` or ``"yaml"``.

    ``"peft"``: arguments of ``peft.LoraConfig``, with the number of learned directions of each module in
    ``rank_pattern``. Modules whose number is not known are left out. ``"yaml"``: patterns
    of the parameters to unfreeze, largest learned share first, as recipes for fine-tuning some layers take them. The
    false discovery rate over all modules is ``level``: among models that learned nothing, only a share ``level`` have
    any module named.
    """
    if form not in FORMATS:
        raise ParameterError("format", form, f"one of {', '.join(FORMATS)}")
    learned = [one for one in modules if one.q_value < level]
    if form == "peft":
        ranks = {one.name: int(one.n_directions) for one in learned if one.n_directions >= 1}
        common = int(np.median(list(ranks.values()))) if ranks else None
        settings = {} if common is None else {"r": common}
        return json.dumps(settings | {"target_modules": list(ranks), "rank_pattern": ranks}, indent=1) + "\n"
    random = f"in a model that learned nothing none has, except for {100 * level:g} % of such models"
    tested, left_out = [one for one in modules if not one.reason], modules_not_testable(modules)
    found = headline(
        len(learned), len(tested), left_out, "module", f"have learned directions (q < {level:g}; {random})"
    )
    lines = [f"# {shown(found, 10_000)}"]
    lines.append("unfrozen_parameters:" if learned else "unfrozen_parameters: []")
    for one in learned:
        pattern = json.dumps(f"^{re.escape(one.name)}\\.weight$")
        known = not np.isnan(one.n_directions)
        words = f"{one.n_directions:g} directions, {100 * one.share:.1f} %" if known else _without_number(one)
        lines.append(f"  - {shown(pattern, 10_000)}  # {words}")
    return "\n".join(lines) + "\n"


def modules_not_testable(modules: Sequence[Module]) -> list[NotTestable]:
    """List the modules that could not be tested, each with its reason."""
    return [NotTestable(one.name, one.reason) for one in modules if one.reason]


def left_out_of(modules: Sequence[Module], level: float, form: str) -> list[str]:
    """Describe the modules that :func:`decisions_text` leaves out, which does not mean that they learned nothing.

    The ``"yaml"`` text says so itself.
    """
    if form != "peft":
        return []
    words = not_testable_words(modules_not_testable(modules), len(modules), "module")
    unknown = [one for one in modules if one.q_value < level and np.isnan(one.n_directions)]
    lines = [f"{words}: left out"] if words else []
    for why, count in Counter(one.no_number for one in unknown).items():
        reason = NO_NUMBER.get(why, "a matrix of the module cannot be tested")
        lines.append(
            f"{count} {plural(count, 'module')} with learned directions, whose number is not known ({reason}): left out"
        )
    return lines


def _without_number(module: Module) -> str:
    return f"no number: {NO_NUMBER.get(module.no_number, 'a matrix of the module cannot be tested')}"


def _share(rows: Sequence[SignalRow]) -> float:
    norms = np.array([row.numbers["squared_norm"] for row in rows])
    return float(norms @ [row.numbers["signal_share"] for row in rows] / norms.sum())
