"""What the scores say, in words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.nulls import distance_from_moments
from rmtbase.shown import in_one_line
from rmtbase.statistics import SPECTRAL_STATISTICS

FALSE_DISCOVERY_RATE = 0.05
_NAMED = 5  # heads that have a sentence of their own


@in_one_line
class HeadFinding(NamedTuple):
    """A head that left the null.

    Attributes:
        layer, head: which.
        statistic: the statistic farthest from the null, by its distance.
        observed, null_mean, null_std, z_score: of that statistic.
        omnibus_q_value: over all statistics and heads.
        outliers_above, outliers_below: eigenvalues beyond the null's edge quantiles.
    """

    layer: int
    head: int
    statistic: str
    observed: float
    null_mean: float
    null_std: float
    z_score: float
    omnibus_q_value: float
    outliers_above: int
    outliers_below: int

    @property
    def distance(self) -> float:
        """|z| of the statistic, of its logarithm where it is positive and unbounded."""
        one = SPECTRAL_STATISTICS[self.statistic]
        return float(distance_from_moments(one, self.observed, self.null_mean, self.null_std))

    def sentence(self) -> str:
        """The finding as one sentence."""
        name = SPECTRAL_STATISTICS[self.statistic].long_name
        side = "above" if self.z_score > 0 else "below"
        return (
            f"Layer {self.layer} head {self.head}: {name} {self.observed:.4g}, "
            f"{abs(self.z_score):.1f} standard deviations {side} the null's {self.null_mean:.4g} ± {self.null_std:.2g} "
            f"(q = {self.omnibus_q_value:.2g}; eigenvalues beyond the null's edges: {self.outliers_above} above, "
            f"{self.outliers_below} below)."
        )


@in_one_line
@dataclass(frozen=True)
class Summary:
    """What the scores of a model say.

    Attributes:
        n_heads: heads scored.
        findings: heads with an omnibus q-value under ``level``, the smallest first and of equal ones the farthest.
        flagged: by statistic, how many heads have a q-value under ``level``; without those that no head was scored on.
        unscored: those statistics: the null has no law for them at the shape, or no head has a shape.
        level: false discovery rate.
        warnings: what was recorded about the checkpoint.
    """

    n_heads: int
    findings: tuple[HeadFinding, ...]
    flagged: dict[str, int]
    unscored: tuple[str, ...]
    level: float
    warnings: tuple[str, ...]

    def sentences(self) -> list[str]:
        """Plain sentences: which heads left the null, by which statistics, and the farthest of them one by one."""
        lines = self.overview() + [finding.sentence() for finding in self.findings[:_NAMED]]
        if len(self.findings) > _NAMED:
            lines.append(f"The other {len(self.findings) - _NAMED} are in the table of heads.")
        return lines

    def overview(self) -> list[str]:
        """How many heads left the null, which, and how many are flagged by each statistic alone."""
        if not self.n_heads:
            return ["No head could be scored: each has a factor that is all zeros."]
        if not self.findings:
            lines = [
                f"None of the {self.n_heads} heads can be told from random: no head leaves the null at a false "
                f"discovery rate of {self.level:.0%}, all statistics taken together."
            ]
        else:
            lines = [
                f"{len(self.findings)} of {self.n_heads} heads left the null at a false discovery rate of "
                f"{self.level:.0%}, all statistics taken together.",
                f"They are, by layer: {self._heads_by_layer()}.",
            ]
        by_count: dict[int, list[str]] = {}
        for name, count in sorted(self.flagged.items(), key=lambda item: -item[1]):
            if count:
                by_count.setdefault(count, []).append(SPECTRAL_STATISTICS[name].long_name)
        if by_count:
            parts = "; ".join(
                f"{count} by {'every one' if len(names) == len(self.flagged) else ', '.join(names)}"
                for count, names in by_count.items()
            )
            lines.append(f"Heads flagged by one statistic alone (q < {self.level:g}): {parts}.")
        if self.unscored:
            names = ", ".join(SPECTRAL_STATISTICS[name].long_name for name in self.unscored)
            lines.append(f"Not scored, as their null is not known at this shape: {names}.")
        return lines

    def _heads_by_layer(self) -> str:
        layers: dict[int, list[int]] = {}
        for finding in self.findings:
            layers.setdefault(finding.layer, []).append(finding.head)
        return "; ".join(f"layer {layer}: {_ranges(sorted(heads))}" for layer, heads in sorted(layers.items()))


def _ranges(numbers: list[int]) -> str:
    """Sorted numbers with runs of three or more drawn together: 0-3, 5, 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return "heads " + ", ".join(parts) if len(numbers) > 1 else f"head {numbers[0]}"


def summarize_scores(tree: xr.DataTree, level: float = FALSE_DISCOVERY_RATE) -> Summary:
    """Which heads left the null, how far, and by which statistic.

    A head has left the null when its omnibus q-value, one test over all statistics with their correlations, is under
    ``level``; the statistic named with it is the farthest one.
    """
    heads = tree["heads"].to_dataset()
    names = heads["statistic"].values.tolist()
    omnibus = heads["omnibus_q_value"].values
    z = heads["z_score"].values
    findings = []
    for layer, head in zip(*np.nonzero(omnibus < level), strict=True):
        k = names.index(str(heads["farthest_statistic"].values[layer, head]))
        findings.append(
            HeadFinding(
                int(heads["layer"].values[layer]),
                int(heads["head"].values[head]),
                names[k],
                float(heads["observed"].values[layer, head, k]),
                float(heads["null_mean"].values[layer, head, k]),
                float(heads["null_std"].values[layer, head, k]),
                float(z[layer, head, k]),
                float(omnibus[layer, head]),
                int(heads["outliers_above"].values[layer, head]),
                int(heads["outliers_below"].values[layer, head]),
            )
        )
    findings.sort(key=lambda finding: (finding.omnibus_q_value, -finding.distance))
    q_value = heads["q_value"].transpose("statistic", ...).values.reshape(len(names), -1)
    scored = [bool(np.isfinite(q).any()) for q in q_value]
    return Summary(
        n_heads=int(np.isfinite(omnibus).sum()),
        findings=tuple(findings),
        flagged={name: int((q < level).sum()) for name, q, made in zip(names, q_value, scored, strict=True) if made},
        unscored=tuple(name for name, made in zip(names, scored, strict=True) if not made),
        level=level,
        warnings=tuple(json.loads(tree.attrs["warnings"])),
    )


def farthest_z(heads: xr.Dataset) -> Float[np.ndarray, "layer head"]:
    """The z-score of each head's farthest statistic; NaN where a head was not scored."""
    z = heads["z_score"].transpose("layer", "head", "statistic").values
    names = heads["statistic"].values.tolist()
    farthest = heads["farthest_statistic"].transpose("layer", "head").values
    # A head that was not scored has no farthest statistic; its z are NaN whichever is taken.
    place = np.array([[names.index(name) if name else 0 for name in layer] for layer in farthest])
    return np.take_along_axis(z, place[..., None], axis=-1)[..., 0]
