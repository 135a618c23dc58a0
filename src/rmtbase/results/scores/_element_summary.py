"""Summary of the scores of elements, in words."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.models import FUSED_COMPONENTS, MatrixName, Place
from rmtbase.reasons import NOT_RECORDED, NotTestable, Reason
from rmtbase.results.scores._element_scores import STATISTICS
from rmtbase.results.scores._heads import require_scores
from rmtbase.results.scores.summary import FALSE_DISCOVERY_RATE
from rmtbase.results.scores.words import heavy_tails, updates_of
from rmtbase.shown import in_one_line
from rmtbase.statistics import ELEMENT_STATISTICS, benjamini_hochberg, cauchy_combination
from rmtbase.tables import layer_numbers, layer_stacks, matrices_present
from rmtbase.words import counted, plural, untested_words

# Largest ratio of the frequency at which the Cauchy combination of a matrix's 24 dependent p-values falls below a level
# from 0.001 to 0.05 to that level, measured in studies/calibration (``fresh_matrices.json``).
_EXCESS = 1.15
_NAMED = 3  # statistics, and super-weights, that are named


@in_one_line
@dataclass(frozen=True)
class ElementsSummary:
    n_matrices: int  # matrices that could be tested, in layers, outside them and in experts, without fused ones
    n_differing: int  # number that differ from the null by all statistics of their elements together, at ``level``
    flagged: dict[str, int]  # number with a q-value under ``level``, by statistic, if it tested any
    super_weights: tuple[dict[str, Any], ...]  # rows of ``/super_weights``, with the name of the matrix as ``place``
    initialization: str  # law of the elements under the null
    level: float  # false discovery rate
    not_testable: tuple[NotTestable, ...] = ()  # matrices that could not be tested, each with its reason
    without_tail: tuple[NotTestable, ...] = ()  # matrices whose largest elements could not be compared with a tail
    heavy: tuple[str, ...] = ()  # matrices in which probability cannot identify super-weights
    noun: str = "weight matrix"  # what the matrices are: weight matrices, or factors of updates

    @property
    def total(self) -> int:
        return self.n_matrices + len(self.not_testable)

    @property
    def searched(self) -> int:
        return self.total - len(self.without_tail)

    def answer(self) -> str:
        extremes, line = len(self.super_weights), self._verdict()
        if not extremes and not self.searched:
            return f"Elements: {line}; whether single elements stand apart cannot be tested."
        apart = f"{extremes or 'no'} single {plural(extremes or 1, 'element')} stand{'s' * (extremes < 2)} apart"
        if self.without_tail:
            apart += f" (not testable in {len(self.without_tail)} of {self.total} matrices)"
        if self.heavy:
            apart += f"; in {len(self.heavy)} of {self.searched} matrices, of heavy tails, only a gap could show one"
        return f"Elements: {line}; {apart}."

    def _verdict(self) -> str:
        untested = untested_words(self.not_testable, self.total, self.noun)
        if not self.n_matrices:
            return untested
        testable = "testable " if untested else ""
        law = f"independent {self.initialization.replace('_', ' ')} draws"
        line = f"no {testable}{self.noun} of {self.n_matrices} can be told from {law}"
        if self.n_differing:
            matrices = f"{self.n_matrices} {testable}{plural(self.n_matrices, self.noun)}"
            line = f"in {self.n_differing} of {matrices} they differ from {law}"
        return f"{line}; {untested}" if untested else line

    def sentences(self) -> list[str]:
        rate = f" (false discovery rate {self.level:.0%})" if self.n_matrices else ""
        most = sorted(self.flagged.items(), key=lambda item: -item[1])[: _NAMED if self.n_differing else 0]
        named = ", ".join(f"{ELEMENT_STATISTICS[name].long_name} ({count})" for name, count in most if count)
        by_most = f", most by {named}" if named else ""
        return [f"Elements: {self._verdict()}{rate}{by_most}.", self._extremes()]

    def _extremes(self) -> str:
        number, untested = len(self.super_weights), untested_words(self.without_tail, self.total, self.noun)
        untold = heavy_tails(self.heavy, self.searched)
        ending = f"{f'; {untold}' if untold else ''}."
        if number:
            listed = "; ".join(map(_in_words, self.super_weights[:_NAMED])) + ("; …" if number > _NAMED else "")
            stand = f"{counted(number, 'element')} stand{'s' * (number == 1)} apart from the tail of the matrix"
            untested = f". {untested}" if untested else ""
            return f"Super-weights: {stand}, or improbable under its body: {listed}{untested}{ending}"
        if not self.searched:
            return f"Super-weights: whether single elements stand apart cannot be told; {untested}."
        apart = f"in {self.searched} testable {plural(self.searched, self.noun)}"
        apart = apart if untested else "from the tail of its matrix"
        return (
            f"No element stands apart {apart}, and none is improbable under its body"
            f"{f'; {untested}' if untested else ''}{ending}"
        )


def _in_words(element: dict[str, Any]) -> str:
    far = f"{element['magnitude_over_core']:.0f} σ of its core"
    return f"{element['place']} [{element['row']}, {element['column']}] = {element['value']:.3g}, {far}"


def summarize_elements(tree: xr.DataTree, level: float = FALSE_DISCOVERY_RATE) -> ElementsSummary | None:
    """Count the matrices whose elements differ from the null, and list the super-weights; None if none was scored."""
    require_scores(tree)
    groups = [tree[name].to_dataset() for name in ("matrices", "experts") if name in tree.children]
    if not groups:
        return None
    joint_of_groups, flagged = [], dict[str, int]()
    not_testable, without_tail, heavy = list[NotTestable](), list[NotTestable](), list[str]()
    for group in groups:
        statistics = [name for name in group["statistic"].values.tolist() if name in STATISTICS]
        unfused = np.flatnonzero(~np.isin(group["component"].values, FUSED_COMPONENTS))
        matrices = group.sel(statistic=statistics).isel(component=unfused).transpose(..., "statistic")
        present = matrices_present(matrices)
        joint = joint_p_value(matrices["p_value"].values[present])
        joint_of_groups.append(joint[~np.isnan(joint)])
        columns = (matrices[name].values[present].tolist() for name in ("reason", "tail_reason", "heavy_tail"))
        for name, p, reason, tail_reason, is_heavy in zip(_names(matrices), joint, *columns, strict=True):
            not_testable += [NotTestable(name, Reason.read(reason) or NOT_RECORDED)] if np.isnan(p) else []
            without_tail += [NotTestable(name, Reason.read(tail_reason))] if tail_reason else []
            heavy += [name] if is_heavy == 1.0 else []
        for name in statistics:
            q_value = matrices["q_value"].sel(statistic=name).values
            if not np.isnan(q_value).all():
                flagged[name] = flagged.get(name, 0) + int((q_value < level).sum())
    extremes = []
    table = tree["super_weights"].to_dataset() if "super_weights" in tree.children else xr.Dataset()
    columns = {str(name): table[name].values.tolist() for name in table.data_vars}
    for values in zip(*columns.values(), strict=True):
        element = dict(zip(columns, values, strict=True))
        expert = None if element["expert"] < 0 else element["expert"]
        name = MatrixName(Place(element["stack"], element["layer"]), element["component"], expert)
        extremes.append({"place": str(name), **element})
    joint = np.concatenate(joint_of_groups)
    return ElementsSummary(
        n_matrices=joint.size,
        n_differing=int((benjamini_hochberg(joint) < level).sum()),
        flagged=flagged,
        super_weights=tuple(extremes),
        initialization=str(tree.attrs.get("initialization", "normal")),
        level=level,
        not_testable=tuple(not_testable),
        without_tail=tuple(without_tail),
        heavy=tuple(heavy),
        noun="factor of an update" if updates_of(tree.attrs) else "weight matrix",
    )


def _names(group: xr.Dataset) -> Iterator[str]:
    axes = [str(dim) for dim in group["n_rows"].dims]
    stacks, numbers = layer_stacks(group), layer_numbers(group)
    for place in np.argwhere(matrices_present(group)).tolist():
        at = dict(zip(axes, place, strict=True))
        expert = f"expert {group['expert'].values[at['expert']]} " if "expert" in at else ""
        number = numbers[at["layer"]]
        layer = "" if number == -1 else f"{stacks[at['layer']]} layer {number} ".lstrip()
        yield f"{layer}{expert}{group['component'].values[at['component']]}"


def joint_p_value(p_value: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "..."]:
    """Combine the p-values of all element statistics of a matrix: 1.15 times their Cauchy combination, at most 1."""
    return np.minimum(1.0, _EXCESS * cauchy_combination(p_value))
