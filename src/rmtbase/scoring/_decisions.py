"""What was learned, for those who go on training: which modules to give low-rank adapters or to unfreeze."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.models import Difference, Model
from rmtbase.scoring._signal_rows import SignalRow, signal_rows
from rmtbase.shown import shown
from rmtbase.statistics import benjamini_hochberg
from rmtbase.tables import CIRCUITS

FORMATS = ("peft", "yaml")
_OF_ADAPTER = re.compile(r"\.lora_[AB]\b")
_WRAPPED = "base_model.model."  # before the names that PEFT saves


class Module(NamedTuple):
    """A module of a model with a weight matrix, and what was learned in it.

    Attributes:
        name: of the module, that of its tensor without ``.weight``.
        n_directions: learned directions; where the tensor is several matrices, of all of them; NaN without a floor.
        share: of the squared norm that was learned; NaN without a floor.
        p_value: of no directions at all; of several matrices the smallest times their number.
        q_value: over all modules (Benjamini & Hochberg).
    """

    name: str
    n_directions: float
    share: float
    p_value: float
    q_value: float


def learned_modules(tree: xr.DataTree, model: Model | Difference) -> list[Module]:
    """The modules of a model with what was learned in each, the largest learned share first.

    Args:
        tree: of signal and noise of that model, its whole matrices among it; of an adapter W_QK, which is an update.
        model: opened.

    Raises:
        ParameterError: no whole matrices in the tree, or none with numbers.
    """
    of = model.of if isinstance(model, Difference) else model
    places = {(place.stack, place.layer): layer for layer, place in enumerate(of.layers)}
    rows: dict[str, list[SignalRow]] = {}
    for row in signal_rows(tree):
        component = {"qk": "attention_query"}.get(row.what, row.what)  # a module of an adapter is a head
        if np.isnan(row.numbers["first_p_value"]) or component in CIRCUITS:
            continue
        tensor = of.tensors(places[row.stack, row.layer], component)[0]
        update = _OF_ADAPTER.search(tensor)
        if (row.what in CIRCUITS) == (update is not None):
            module = tensor[: update.start()].removeprefix(_WRAPPED) if update else tensor.removesuffix(".weight")
            rows.setdefault(module, []).append(row)
    if not rows:
        raise ParameterError("tree", "no whole matrices with numbers", "those of a model: matrices='spectra'")
    p_value = np.array([min(1.0, len(own) * min(row.numbers["first_p_value"] for row in own)) for own in rows.values()])
    modules = [
        Module(name, sum(row.numbers["n_directions"] for row in own), _share(own), float(p), float(q))
        for (name, own), p, q in zip(rows.items(), p_value, benjamini_hochberg(p_value), strict=True)
    ]
    return sorted(modules, key=lambda one: -np.nan_to_num(one.share, nan=2.0))


def decisions_text(modules: Sequence[Module], level: float, form: str) -> str:
    """The modules that have learned something, q < level, as ``"peft"`` or ``"yaml"``; of a random model none.

    ``"peft"``: what ``peft.LoraConfig`` takes, ``rank_pattern`` with the number of learned directions of each module.
    Modules without a noise floor, whose number is not known, are left out of it. ``"yaml"``: patterns of parameters to
    unfreeze, the largest learned share first, as recipes for fine-tuning some layers take them. The false discovery
    rate over all modules is ``level``: of a model that learned nothing nothing is named, but for a share ``level``.

    Raises:
        ParameterError: another format.
    """
    if form not in FORMATS:
        raise ParameterError("format", form, f"one of {', '.join(FORMATS)}")
    learned = [one for one in modules if one.q_value < level]
    if form == "peft":
        ranks = {one.name: int(one.n_directions) for one in learned if one.n_directions >= 1}
        common = int(np.median(list(ranks.values()))) if ranks else None
        settings = {} if common is None else {"r": common}
        return json.dumps(settings | {"target_modules": list(ranks), "rank_pattern": ranks}, indent=1) + "\n"
    random = f"of a model that learned nothing none, but for {100 * level:g} % of such models"
    lines = [f"# {len(learned)} of {len(modules)} modules have learned directions (q < {level:g}); {random}"]
    lines.append("unfrozen_parameters:" if learned else "unfrozen_parameters: []")
    for one in learned:
        pattern = json.dumps(f"^{re.escape(one.name)}\\.weight$")
        known = not np.isnan(one.n_directions)
        words = f"{one.n_directions:g} directions, {100 * one.share:.1f} %" if known else "no noise floor"
        lines.append(f"  - {shown(pattern, 10_000)}  # {words}")
    return "\n".join(lines) + "\n"


def _share(rows: Sequence[SignalRow]) -> float:
    norms = np.array([row.numbers["squared_norm"] for row in rows])
    return float(norms @ [row.numbers["signal_share"] for row in rows] / norms.sum())
