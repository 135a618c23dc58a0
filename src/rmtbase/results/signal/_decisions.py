"""Decisions for further training: which modules to give low-rank adapters, and which to unfreeze."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.models import Difference, Model
from rmtbase.reasons import NOT_RECORDED, NotTestable, Reason
from rmtbase.results.signal.rows import SignalRow, signal_rows
from rmtbase.shown import shown
from rmtbase.statistics import benjamini_hochberg
from rmtbase.tables import CIRCUITS
from rmtbase.words import counted, of_tested, untested_words

FORMATS = ("peft", "yaml")
_OF_ADAPTER = re.compile(r"\.lora_[AB]\b")
_WRAPPED = "base_model.model."  # before the names that PEFT saves
_SOME_UNTESTED = Reason("module_part_untested")


class Module(NamedTuple):
    """A module of a model with a weight matrix, and what was learned in it."""

    name: str  # name of the module: the name of its tensor without ``.weight``
    n_directions: float  # learned, summed where the tensor holds several matrices; NaN where it is not known
    share: float  # learned share of the squared norm; NaN where the number is not known
    p_value: float  # of no learned direction; of several matrices the smallest times their number
    q_value: float  # q-value over all modules that could be tested (Benjamini & Hochberg)
    reason: Reason = Reason()  # why the module could not be tested; its numbers are then not known
    no_number: Reason = Reason()  # why the number of directions of a tested module is not known


def learned_modules(tree: xr.DataTree, model: Model | Difference) -> list[Module]:
    """List the modules of a model with what was learned in each: largest share first, unknown and untested last."""
    minuend = model.of if isinstance(model, Difference) else model
    places = {(place.stack, place.layer): layer for layer, place in enumerate(minuend.layers)}
    rows: dict[str, list[SignalRow]] = {}
    for row in signal_rows(tree):
        component = "attention_query" if row.what == "qk" else row.what  # a module of an adapter is a head
        if component in CIRCUITS:
            continue
        tensor = minuend.tensors(places[row.stack, row.layer], component)[0]
        update = _OF_ADAPTER.search(tensor)
        if (row.what in CIRCUITS) == (update is not None):
            module = tensor[: update.start()].removeprefix(_WRAPPED) if update else tensor.removesuffix(".weight")
            rows.setdefault(module, []).append(row)
    if not rows:
        raise ParameterError("tree", "no whole matrices", "those of a model: matrices='spectra'")
    p_values = []
    for parts in rows.values():
        tested = [row.numbers["first_p_value"] for row in parts if row.testable]
        p_values.append(min(1.0, len(tested) * min(tested)) if tested else np.nan)
    q_values = benjamini_hochberg(np.array(p_values)).tolist()
    modules = []
    for (name, parts), p_value, q_value in zip(rows.items(), p_values, q_values, strict=True):
        norms, shares, numbers = (
            np.array([row.numbers[number] for row in parts], dtype=float)
            for number in ("squared_norm", "signal_share", "n_directions")
        )
        share = float(norms @ shares / norms.sum())
        reason = (parts[0].reason or NOT_RECORDED) if np.isnan(p_value) else Reason()
        no_number = next((Reason(row.no_number) for row in parts if row.no_number), Reason())
        modules.append(Module(name, float(numbers.sum()), share, p_value, q_value, reason, no_number))
    if np.isnan(p_values).all():
        words = untested_words(modules_not_testable(modules), len(modules), "module")
        raise ParameterError("tree", words, "modules that can be tested, to decide by")
    return sorted(modules, key=lambda module: (bool(module.reason), -np.nan_to_num(module.share, nan=-1.0)))


def decisions_text(modules: Sequence[Module], level: float, form: str) -> str:
    """Format the modules that have learned something, q < level, as one of :data:`FORMATS`.

    ``"peft"``: arguments of ``peft.LoraConfig``, with the number of learned directions of each module in
    ``rank_pattern``. ``"yaml"``: patterns of the parameters to unfreeze, as recipes for fine-tuning some layers take.
    """
    if form not in FORMATS:
        raise ParameterError("format", form, f"one of {', '.join(FORMATS)}")
    learned = [module for module in modules if module.q_value < level]
    if form == "peft":
        ranks = {module.name: int(module.n_directions) for module in learned if module.n_directions >= 1}
        settings = {"r": int(np.median(list(ranks.values())))} if ranks else {}
        return json.dumps(settings | {"target_modules": list(ranks), "rank_pattern": ranks}, indent=1) + "\n"
    random = f"in a model that learned nothing none has, except for {100 * level:g} % of such models"
    untested, predicate = modules_not_testable(modules), f"have learned directions (q < {level:g}; {random})"
    finding = of_tested(len(learned), len(modules) - len(untested), untested, "module", predicate)
    lines = [f"# {shown(finding, 10_000)}", "unfrozen_parameters:" if learned else "unfrozen_parameters: []"]
    for module in learned:
        pattern = json.dumps(f"^{re.escape(module.name)}\\.weight$")
        words = f"{module.n_directions:g} directions, {100 * module.share:.1f} %"
        if np.isnan(module.n_directions):
            words = f"no number: {(module.no_number or _SOME_UNTESTED).words}"
        lines.append(f"  - {shown(pattern, 10_000)}  # {words}")
    return "\n".join(lines) + "\n"


def modules_not_testable(modules: Sequence[Module]) -> list[NotTestable]:
    return [NotTestable(module.name, module.reason) for module in modules if module.reason]


def left_out_of(modules: Sequence[Module], level: float, form: str) -> list[str]:
    """Describe the modules that :func:`decisions_text` leaves out, which does not mean that they learned nothing."""
    if form != "peft":  # the others say so themselves
        return []
    words = untested_words(modules_not_testable(modules), len(modules), "module")
    unknown = [module for module in modules if module.q_value < level and np.isnan(module.n_directions)]
    counts = Counter((module.no_number or _SOME_UNTESTED).words for module in unknown)
    return [f"{words}: left out"] * bool(words) + [
        f"{counted(count, 'module')} with learned directions, whose number is not known ({reason}): left out"
        for reason, count in counts.items()
    ]
