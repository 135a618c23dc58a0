"""What the scores of elements say, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from rmtbase.models import MatrixName, Place
from rmtbase.scoring._element_scores import STATISTICS
from rmtbase.scoring._heads import require_scores
from rmtbase.scoring._matrices import is_fused
from rmtbase.scoring._summary import FALSE_DISCOVERY_RATE
from rmtbase.shown import in_one_line
from rmtbase.statistics import ELEMENT_STATISTICS, benjamini_hochberg, cauchy_combination
from rmtbase.tables import matrices_present

_NAMED = 3  # statistics, and super-weights, that have words of their own


@in_one_line
@dataclass(frozen=True)
class ElementsSummary:
    """What the elements of a model's matrices say.

    Attributes:
        n_matrices: how many were scored, of layers, outside of them, and of experts; fused ones are their parts.
        n_differing: how many differ from the null by all statistics of their elements together, at ``level``.
        flagged: by statistic, how many have a q-value under ``level``.
        super_weights: the isolated extremes by the names of ``rmtbase.tables.SUPER_WEIGHTS_SCHEMA``, with the name of
            their matrix as ``place``.
        initialization: the law of the elements under the null.
        level: false discovery rate.
    """

    n_matrices: int
    n_differing: int
    flagged: dict[str, int]
    super_weights: tuple[dict[str, Any], ...]
    initialization: str
    level: float

    def sentences(self) -> list[str]:
        """How many matrices differ, by which statistics most, and which elements stand apart."""
        if not self.n_matrices:
            return ["Elements: no matrix has enough of them that differ to be scored."]
        law = self.initialization.replace("_", " ")
        many = f"{self.n_differing} of {self.n_matrices} weight matri{'ces' if self.n_matrices != 1 else 'x'}"
        line = f"Elements: {many} cannot have independent {law} elements (false discovery rate {self.level:.0%})"
        most = sorted(self.flagged.items(), key=lambda item: -item[1])[: _NAMED if self.n_differing else 0]
        named = ", ".join(f"{ELEMENT_STATISTICS[name].long_name} ({count})" for name, count in most if count)
        return [f"{line}{f', most by {named}' if named else ''}.", self._extremes()]

    def _extremes(self) -> str:
        number = len(self.super_weights)
        if not number:
            return "No element stands apart from the tail of its matrix."
        of = "; ".join(map(_in_words, self.super_weights[:_NAMED]))
        stand = f"{number} elements stand" if number != 1 else "1 element stands"
        return f"Super-weights: {stand} apart from the tail of the matrix: {of}{'; …' if number > _NAMED else ''}."


def _in_words(one: dict[str, Any]) -> str:
    far = f"{one['magnitude_over_core']:.0f} σ of its core"
    return f"{one['place']} [{one['row']}, {one['column']}] = {one['value']:.3g}, {far}"


def summarize_elements(tree: xr.DataTree, level: float = FALSE_DISCOVERY_RATE) -> ElementsSummary | None:
    """How many matrices differ from the null by their elements, and the super-weights; None where none was scored.

    A matrix differs when one test of all statistics of its elements, the Cauchy combination of their p-values, has a
    Benjamini–Hochberg q-value under ``level``.

    Raises:
        ParameterError: it is no scores tree.
    """
    require_scores(tree)
    groups = [tree[name].to_dataset() for name in ("matrices", "experts") if name in tree.children]
    if not groups:
        return None
    together, flagged = [], dict.fromkeys(STATISTICS, 0)
    for group in groups:
        names = [name for name in group["statistic"].values.tolist() if name in STATISTICS]
        kept = [not is_fused(str(component)) for component in group["component"].values]
        held = group.sel(statistic=names).isel(component=np.flatnonzero(kept)).transpose(..., "statistic")
        p_value = held["p_value"].values[matrices_present(held)]
        together.append(cauchy_combination(p_value))
        for name in names:
            flagged[name] += int((held["q_value"].sel(statistic=name).values < level).sum())
    joint = np.concatenate(together)
    joint = joint[~np.isnan(joint)]
    return ElementsSummary(
        n_matrices=joint.size,
        n_differing=int((benjamini_hochberg(joint) < level).sum()),
        flagged=flagged,
        super_weights=tuple(_super_weights(tree)),
        initialization=str(tree.attrs.get("initialization", "normal")),
        level=level,
    )


def _super_weights(tree: xr.DataTree) -> Iterator[dict[str, Any]]:
    """Each by the names of its variables; none of a file before schema 1.5."""
    found = tree["super_weights"].to_dataset() if "super_weights" in tree.children else xr.Dataset()
    columns = {str(name): found[name].values.tolist() for name in found.data_vars}
    for row in zip(*columns.values(), strict=True):
        one = dict(zip(columns, row, strict=True))
        expert = None if one["expert"] < 0 else one["expert"]
        yield {"place": str(MatrixName(Place(one["stack"], one["layer"]), one["component"], expert)), **one}
