"""Summary of the scores of elements, in words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from rmtbase.models import MatrixName, Place
from rmtbase.results.scores._element_scores import STATISTICS
from rmtbase.results.scores._heads import require_scores
from rmtbase.results.scores._matrices import is_fused
from rmtbase.results.scores._null_words import updates_of
from rmtbase.results.scores._super_weights import CANNOT_TELL
from rmtbase.results.scores.summary import FALSE_DISCOVERY_RATE
from rmtbase.shown import in_one_line
from rmtbase.statistics import ELEMENT_STATISTICS, benjamini_hochberg, cauchy_combination
from rmtbase.tables import (
    NotTestable,
    layer_numbers,
    layer_stacks,
    matrices_present,
    not_testable_words,
    plural,
    recorded,
)

_EXCESS = 1.15
"""Largest ratio of the frequency at which the Cauchy combination of a matrix's 24 p-values falls below a level to that
level. The p-values are dependent, so that the combination is not yet exact at levels from 0.001 to 0.05. Measured in
studies/calibration (``fresh_matrices.json``)."""

_NAMED = 3  # statistics, and super-weights, that are named


@in_one_line
@dataclass(frozen=True)
class ElementsSummary:
    """Summary of the scores of the elements of a model's matrices."""

    # number of matrices that could be tested, in layers, outside them and in experts, without fused ones
    n_matrices: int
    n_differing: int  # number that differ from the null by all statistics of their elements together, at ``level``
    # number with a q-value under ``level``, by statistic; only statistics that tested any matrix
    flagged: dict[str, int]
    # isolated extremes, with the keys of ``rmtbase.results.scores.schema.SUPER_WEIGHTS_SCHEMA`` and the name of their
    # matrix as ``place``
    super_weights: tuple[dict[str, Any], ...]
    initialization: str  # law of the elements under the null
    level: float  # false discovery rate
    not_testable: tuple[NotTestable, ...] = ()  # matrices that could not be tested, each with its reason
    # matrices whose largest elements could not be compared with a tail, each with its reason
    without_tail: tuple[NotTestable, ...] = ()
    # number of matrices in which probability cannot identify super-weights, and why; "" if there are none
    untold: str = ""
    noun: str = "weight matrix"  # what the matrices are: weight matrices, or factors of updates

    def answer(self) -> str:
        """Say in one line how many matrices differ, and how many elements stand apart."""
        extremes, line = len(self.super_weights), self._verdict()
        total = self.n_matrices + len(self.not_testable)
        if not extremes and len(self.without_tail) == total:
            return f"Elements: {line}; whether single elements stand apart cannot be tested."
        apart = f"{extremes or 'no'} single {plural(extremes or 1, 'element')} stand{'s' * (extremes < 2)} apart"
        by_gap = re.search(r"\d+ of \d+ matrices", self.untold)
        if self.without_tail:
            apart += f" (not testable in {len(self.without_tail)} of {total} matrices)"
        if by_gap:
            apart += f"; in {by_gap[0]}, of heavy tails, only a gap could show one"
        return f"Elements: {line}; {apart}."

    def _verdict(self) -> str:
        """Say in how many matrices the elements differ from independent draws, and what could not be tested."""
        words = not_testable_words(self.not_testable, self.n_matrices + len(self.not_testable), self.noun)
        if not self.n_matrices:
            return words
        testable = "testable " if words else ""
        many, law = plural(self.n_matrices, self.noun), f"independent {self.initialization.replace('_', ' ')} draws"
        if self.n_differing:
            line = f"in {self.n_differing} of {self.n_matrices} {testable}{many} they differ from {law}"
        else:
            line = f"no {testable}{self.noun} of {self.n_matrices} can be told from {law}"
        return f"{line}; {words}" if words else line

    def sentences(self) -> list[str]:
        """Say how many matrices differ, by which statistics most, and which elements stand apart."""
        line = f"Elements: {self._verdict()}"
        line += f" (false discovery rate {self.level:.0%})" if self.n_matrices else ""
        most = sorted(self.flagged.items(), key=lambda item: -item[1])[: _NAMED if self.n_differing else 0]
        named = ", ".join(f"{ELEMENT_STATISTICS[name].long_name} ({count})" for name, count in most if count)
        return [f"{line}{f', most by {named}' if named else ''}.", self._extremes()]

    def _extremes(self) -> str:
        number, total = len(self.super_weights), self.n_matrices + len(self.not_testable)
        words = not_testable_words(self.without_tail, total, self.noun)
        untold = f"; {self.untold}" if self.untold else ""
        if not number:
            searched = total - len(self.without_tail)
            if not searched:
                return f"Super-weights: whether single elements stand apart cannot be told; {words}."
            of = f"in {searched} testable {plural(searched, self.noun)}" if words else "from the tail of its matrix"
            return (
                f"No element stands apart {of}, and none is improbable under its body"
                f"{f'; {words}' if words else ''}{untold}."
            )
        of = "; ".join(map(_in_words, self.super_weights[:_NAMED]))
        stand = f"{number} elements stand" if number != 1 else "1 element stands"
        more = "; …" if number > _NAMED else ""
        return (
            f"Super-weights: {stand} apart from the tail of the matrix, or improbable under its body: "
            f"{of}{more}{f'. {words}' if words else ''}{untold}."
        )


def _in_words(one: dict[str, Any]) -> str:
    far = f"{one['magnitude_over_core']:.0f} σ of its core"
    return f"{one['place']} [{one['row']}, {one['column']}] = {one['value']:.3g}, {far}"


def summarize_elements(tree: xr.DataTree, level: float = FALSE_DISCOVERY_RATE) -> ElementsSummary | None:
    """Count the matrices whose elements differ from the null, and list the super-weights.

    The result is None if no matrix was scored.

    A matrix differs if the test of all statistics of its elements, :func:`joint_p_value`, has a Benjamini–Hochberg
    q-value under ``level``. A model whose matrices all have independent elements of the null's law then has a matrix
    that differs with at most that probability.
    """
    require_scores(tree)
    groups = [tree[name].to_dataset() for name in ("matrices", "experts") if name in tree.children]
    if not groups:
        return None
    together, flagged = [], dict[str, int]()
    left_out: dict[str, list[NotTestable]] = {"reason": [], "tail_reason": []}
    for group in groups:
        names = [name for name in group["statistic"].values.tolist() if name in STATISTICS]
        kept = [not is_fused(str(component)) for component in group["component"].values]
        held = group.sel(statistic=names).isel(component=np.flatnonzero(kept)).transpose(..., "statistic")
        there = matrices_present(held)
        joint = joint_p_value(held["p_value"].values[there])
        together.append(joint)
        of_matrices = list(_names(held, there))
        for variable, lacking in left_out.items():
            reasons = held[variable].values[there] if variable in held else np.full(joint.shape, "")
            untested = np.isnan(joint) if variable == "reason" else reasons != ""
            lacking += [NotTestable(of_matrices[k], recorded(reasons[k])) for k in np.flatnonzero(untested)]
        for name in names:
            q_value = held["q_value"].sel(statistic=name).values
            if not np.isnan(q_value).all():
                flagged[name] = flagged.get(name, 0) + int((q_value < level).sum())
    joint = np.concatenate(together)
    joint = joint[~np.isnan(joint)]
    return ElementsSummary(
        n_matrices=joint.size,
        n_differing=int((benjamini_hochberg(joint) < level).sum()),
        flagged=flagged,
        super_weights=tuple(_super_weights(tree)),
        initialization=str(tree.attrs.get("initialization", "normal")),
        level=level,
        not_testable=tuple(left_out["reason"]),
        without_tail=tuple(left_out["tail_reason"]),
        untold=_untold(tree),
        noun="factor of an update" if updates_of(tree.attrs) else "weight matrix",
    )


def _untold(tree: xr.DataTree) -> str:
    """Return the note that names the matrices whose largest elements cannot be judged by probability."""
    notes = (one for one in json.loads(tree.attrs.get("notes", "[]")) if one.startswith(CANNOT_TELL))
    return next((one.removeprefix("super-weights: ") for one in notes), "")


def _names(group: xr.Dataset, there: Bool[np.ndarray, "..."]) -> Iterator[str]:
    """Yield the names of the matrices that are present, in their order."""
    axes = [str(dim) for dim in group["n_rows"].dims]
    stacks, numbers = layer_stacks(group), layer_numbers(group)
    for place in np.argwhere(there).tolist():
        at = dict(zip(axes, place, strict=True))
        expert = f"expert {group['expert'].values[at['expert']]} " if "expert" in at else ""
        number = numbers[at["layer"]]
        layer = "" if number == -1 else f"{stacks[at['layer']]} layer {number} ".lstrip()
        yield f"{layer}{expert}{group['component'].values[at['component']]}"


def joint_p_value(p_value: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "..."]:
    """Combine the p-values of all element statistics of a matrix: 1.15 times their Cauchy combination, at most 1."""
    return np.minimum(1.0, _EXCESS * cauchy_combination(p_value))


def _super_weights(tree: xr.DataTree) -> Iterator[dict[str, Any]]:
    """Return each super-weight by the names of its variables; empty for scores without matrices."""
    found = tree["super_weights"].to_dataset() if "super_weights" in tree.children else xr.Dataset()
    columns = {str(name): found[name].values.tolist() for name in found.data_vars}
    for row in zip(*columns.values(), strict=True):
        one = dict(zip(columns, row, strict=True))
        expert = None if one["expert"] < 0 else one["expert"]
        yield {"place": str(MatrixName(Place(one["stack"], one["layer"]), one["component"], expert)), **one}
