"""Summary of the scores, in words."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.parameters import require_probability
from rmtbase.results.scores._distance import at_p_value_floor, farthest_distance, layer_p_value_floors
from rmtbase.results.scores._heads import require_scores
from rmtbase.results.scores._how_much import HowMuch, Moved, Related, how_much, related_heads, upper_range
from rmtbase.results.scores._null_words import null_noun
from rmtbase.shown import in_one_line
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import (
    NotTestable,
    circuit_of,
    heads_present,
    layer_names,
    layer_numbers,
    layer_stacks,
    not_testable_words,
    plural,
    recorded,
)

FALSE_DISCOVERY_RATE = 0.05
_NAMED = 5  # heads with their own sentence
_FEW = 5  # heads that do not differ, named in the answer if no more

KINDS = (("trace", +1, "larger ‖{}‖"), ("trace", -1, "smaller ‖{}‖"))
"""Respects in which heads differ by one statistic: its name, the sign of its z, and words."""


@in_one_line
class HeadFinding(NamedTuple):
    """Head that differs from random heads."""

    # layer, head: numbers of the layer and of the head
    layer: int
    head: int
    statistic: str  # the statistic farthest from the null, by its distance
    # observed, null_mean, null_std, z_score: of that statistic; without a ``null_std``, z is that of the p-value
    observed: float
    null_mean: float
    null_std: float
    z_score: float
    # |z| of the statistic, or of its logarithm if it is positive and unbounded and its null has a spread
    distance: float
    omnibus_q_value: float  # q-value of the test of all statistics, over all heads
    # outliers_above, outliers_below: eigenvalues beyond the null's edge quantiles
    outliers_above: int
    outliers_below: int
    # whether its omnibus p-value is the smallest possible one, so that its q-value is only a bound
    at_floor: bool = False
    null_median: float = math.nan  # median of that statistic under the null
    stack: str = ""  # name of the layer's stack, if the model has several stacks
    noun: str = "head"  # ``head``, or ``key head`` for some circuits
    how_much: HowMuch = HowMuch()  # how much it differs

    @property
    def place(self) -> str:
        """Name of the head, such as ``layer 3 head 2`` or ``decoder layer 3 head 2``."""
        return f"{self.layer_name} {self.noun} {self.head}"

    @property
    def layer_name(self) -> str:
        """Name of the layer, such as ``decoder layer 3``."""
        return f"{self.stack} layer {self.layer}".lstrip()

    def sentence(self) -> str:
        """Write the finding as one sentence."""
        one = SPECTRAL_STATISTICS[self.statistic]
        side = "above" if self.z_score > 0 else "below"
        if math.isnan(self.null_std):
            far = (
                f"{side} the null's median {self.null_median:.4g}, as rare as {self.distance:.1f} standard deviations "
                "of a normal law (it has none of its own)"
            )
        else:
            far = (
                f"{self.distance:.1f} standard deviations{' of its ln' if one.on_log_scale else ''} {side} the null's "
                f"{self.null_mean:.4g} ± {self.null_std:.2g}"
            )
        return (
            f"{self.place[0].upper()}{self.place[1:]}: {one.long_name} {self.observed:.4g}, {far} "
            f"(q {'≤' if self.at_floor else '='} {self.omnibus_q_value:.2g}; eigenvalues beyond "
            f"the null's edges: {self.outliers_above} above, {self.outliers_below} below)."
        )


@in_one_line
@dataclass(frozen=True)
class Summary:
    """Summary of the scores of a model."""

    n_heads: int  # heads that could be tested at ``level``
    # heads with an omnibus q-value under ``level``, by increasing q-value, then by decreasing distance
    findings: tuple[HeadFinding, ...]
    # number of heads with a q-value under ``level``, by statistic; only statistics that tested any head
    flagged: dict[str, int]
    unscored: dict[str, str]  # reasons why some statistics tested no head, by statistic
    level: float  # false discovery rate
    warnings: tuple[str, ...]  # warnings recorded about the checkpoint
    layers: tuple[str, ...] = ()  # names of the layers, in order
    noun: str = "head"  # name of the scored objects: ``head``, or ``key head`` for some circuits
    not_testable: tuple[NotTestable, ...] = ()  # heads that could not be tested, each with its reason
    fewest: int = 1  # number of heads at the smallest p-value of the null's draws that are needed for any to be found
    against: str = "random heads"  # what the heads were compared with
    symbol: str = "W_QK"  # symbol of the matrix that was scored, such as ``W_QK``
    # respects in which heads differ, in words, and the number of heads
    kinds: Mapping[str, int] = field(default_factory=dict)
    moved: Moved = field(default_factory=Moved)  # moved shares of the heads that differ
    related: Related = field(default_factory=Related)  # heads whose keys read what their queries read
    alike: tuple[str, ...] = ()  # names of the tested heads that do not differ

    def answer(self, cause: str = "") -> list[str]:
        """Say how many heads differ, how much, in which respect, by which ``cause``, and what could not be tested."""
        return [
            self.verdict(),
            *self.moved.sentences(),
            *self.kind(),
            *self.related.sentences(),
            *filter(None, [cause]),
            *self.untested(),
        ]

    def sentences(self) -> list[str]:
        """Give the answer, then which heads differ, the statistics that flag them, and the farthest heads."""
        return self.answer() + self.details() + self.reasons()

    def details(self) -> list[str]:
        """List the heads that differ, how many each statistic flags by itself, and the statistics without a test."""
        named = [f"Heads that differ, by layer: {self._heads_by_layer()}."] if self.findings else []
        return [*named, *self.by_statistic(), *self.left_out()]

    def reasons(self) -> list[str]:
        """Describe the farthest heads, one sentence for each, and count the others."""
        lines = [finding.sentence() for finding in self.findings[:_NAMED]]
        if len(self.findings) > _NAMED:
            lines.append(f"The other {len(self.findings) - _NAMED} are in the table of {self.noun}s.")
        return lines

    def verdict(self) -> str:
        """Say how many heads differ from random ones."""
        noun, many = self.noun, plural(self.n_heads, self.noun)
        if not self.n_heads:
            return f"Whether {noun}s differ from {self.against} cannot be told."
        testable = "testable " if self.not_testable else ""
        at = f"(false discovery rate {self.level:.0%})"
        if self.findings:
            differ = f"differ{'s' * (len(self.findings) == 1)}"
            others = f" Not told from them: {', '.join(self.alike)}." if 0 < len(self.alike) <= _FEW else ""
            return f"{len(self.findings)} of {self.n_heads} {testable}{many} {differ} from {self.against} {at}.{others}"
        none = (
            f"The one {testable}{noun} cannot"
            if self.n_heads == 1
            else f"None of the {self.n_heads} {testable}{many} can"
        )
        few = ""
        if self.fewest > 1:
            few = (
                f" With so few draws of the null none can be found unless {self.fewest} or more "
                f"{plural(self.fewest, noun)} differ."
            )
        return f"{none} be told from {self.against} {at}.{few}"

    @property
    def at_floor(self) -> int:
        """Number of heads with the smallest p-value that the null can show."""
        return sum(finding.at_floor for finding in self.findings)

    def leading(self) -> list[HeadFinding]:
        """Return the heads that differ, by decreasing moved share."""
        return sorted(self.findings, key=lambda finding: -finding.how_much.moved_share)

    def kind(self) -> list[str]:
        """Say in which respects the heads differ, and how many heads."""
        if not self.findings:
            return []
        parts = [f"{words} ({count})" for words, count in self.kinds.items()]
        if not parts:
            return ["Kind: not told; neither the moved share nor the norm differs by itself."]
        return [f"Kind (number of {self.noun}s, some in several): {', '.join(parts)} than {self.against}."]

    def untested(self) -> list[str]:
        """Say which heads could not be tested, and why."""
        total = self.n_heads + len(self.not_testable)
        words = not_testable_words(self.not_testable, total, self.noun)
        return [f"Not tested: {words}."] if words else []

    def by_statistic(self) -> list[str]:
        """Say how many heads each statistic flags by itself, if it flags any."""
        by_count: dict[int, list[str]] = {}
        for name, count in sorted(self.flagged.items(), key=lambda item: -item[1]):
            if count:
                by_count.setdefault(count, []).append(SPECTRAL_STATISTICS[name].long_name)
        if not by_count or not self.n_heads:
            return []
        parts = "; ".join(
            f"{count} by {'every one' if len(names) == len(self.flagged) else ', '.join(names)}"
            for count, names in by_count.items()
        )
        return [f"{self.noun.capitalize()}s flagged by single statistics (q < {self.level:g}): {parts}."]

    def left_out(self) -> list[str]:
        """Name the statistics by which no head was tested, if there are any."""
        if not self.n_heads:
            return []
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.unscored.items():
            by_reason.setdefault(reason, []).append(SPECTRAL_STATISTICS[name].long_name)
        return [f"Not tested by {', '.join(names)}: {reason}." for reason, names in by_reason.items()]

    def _heads_by_layer(self) -> str:
        layers: dict[str, list[int]] = {}
        for finding in self.findings:
            layers.setdefault(finding.layer_name, []).append(finding.head)
        return "; ".join(
            f"{layer}: {_ranges(sorted(layers[layer]), self.noun)}" for layer in self.layers if layer in layers
        )


def _ranges(numbers: list[int], noun: str) -> str:
    """List sorted numbers, with runs of three or more abbreviated: 0-3, 5, 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"{noun}s " + ", ".join(parts) if len(numbers) > 1 else f"{noun} {numbers[0]}"


def summarize_scores(tree: xr.DataTree, level: float = FALSE_DISCOVERY_RATE) -> Summary:
    """Find the heads that differ from the null, how far, and by which statistic.

    A head differs from the null if its omnibus q-value is under ``level``; the omnibus test combines all statistics and
    accounts for their correlations. The statistic named with a head is its farthest one. The summary is about W_QK; for
    another circuit, pass the tree from :func:`rmtbase.results.scores.circuit_scores`.
    """
    require_scores(tree, "tree")
    level = require_probability("level", level)
    heads = tree["heads"].to_dataset()
    names = heads["statistic"].values.tolist()
    omnibus = heads["omnibus_q_value"].values
    single, floors = (np.broadcast_to(floor[:, None], omnibus.shape) for floor in layer_p_value_floors(tree))
    at_floor = at_p_value_floor(heads["omnibus_p_value"].values, floors)
    n_heads = int((np.isfinite(omnibus) & (floors < level)).sum())
    z, median = heads["z_score"].values, heads["null_quantile"].sel(probability=0.5).values
    distance = np.abs(farthest_distance(heads))
    numbers, stacks, circuit = layer_numbers(heads), layer_stacks(heads), circuit_of(tree.attrs)
    noun, against, amounts = circuit.noun, null_noun(tree.attrs, circuit.noun), how_much(tree)
    left_out = _not_testable(heads, noun, floors, level)
    findings, differs = [], omnibus < level
    names_of = {
        (layer, head): f"{name} {noun} {heads['head'].values[head]}"
        for layer, name in enumerate(layer_names(heads))
        for head in range(heads.sizes["head"])
    }
    for layer, head in np.argwhere(differs).tolist():
        k = names.index(str(heads["farthest_statistic"].values[layer, head]))
        findings.append(
            HeadFinding(
                int(numbers[layer]),
                int(heads["head"].values[head]),
                names[k],
                float(heads["observed"].values[layer, head, k]),
                float(heads["null_mean"].values[layer, head, k]),
                float(heads["null_std"].values[layer, head, k]),
                float(z[layer, head, k]),
                float(distance[layer, head]),
                float(omnibus[layer, head]),
                int(heads["outliers_above"].values[layer, head]),
                int(heads["outliers_below"].values[layer, head]),
                bool(at_floor[layer, head]),
                float(median[layer, head, k]),
                stacks[layer],
                noun,
                amounts[layer, head],
            )
        )
    places = sorted(
        ((layer, head) for layer, head in np.argwhere(differs).tolist()), key=lambda place: -amounts[place].moved_share
    )
    moved = Moved(
        tuple((names_of[place], amounts[place]) for place in places),
        upper_range(tree, differs),
        noun,
        circuit.symbol,
        against,
    )
    kinds = moved.kinds()
    for name, sign, words in KINDS:
        if name in names:
            of_one = heads.sel(statistic=name).transpose("layer", "head", ...)
            here = (of_one["q_value"].values < level) & (sign * of_one["z_score"].values > 0)
            kinds |= {words.format(circuit.symbol): count} if (count := int((differs & here).sum())) else {}
    findings.sort(key=lambda finding: (finding.omnibus_q_value, -finding.distance))
    q_value = heads["q_value"].transpose("statistic", ...).values.reshape(len(names), -1)
    known = [np.isfinite(q) for q in q_value]
    scored = [bool((one & (single.ravel() < level)).any()) for one in known]
    return Summary(
        n_heads=n_heads,
        findings=tuple(findings),
        flagged={name: int((q < level).sum()) for name, q, made in zip(names, q_value, scored, strict=True) if made},
        unscored={
            name: _too_few_draws(float(single.max()), level, 2) if one.any() else "no null is known at this shape"
            for name, one, made in zip(names, known, scored, strict=True)
            if not made
        },
        level=level,
        warnings=tuple(json.loads(tree.attrs["warnings"])),
        layers=tuple(layer_names(heads)),
        noun=noun,
        not_testable=tuple(left_out),
        fewest=_fewest(omnibus, floors, level),
        against=against,
        symbol=circuit.symbol,
        kinds=kinds,
        moved=moved,
        related=Related(level=level) if "updates" in tree.attrs else related_heads(heads, names_of, level),
        alike=tuple(
            names_of[layer, head]
            for layer, head in np.argwhere(np.isfinite(omnibus) & (floors < level) & ~differs).tolist()
        ),
    )


def head_records(tree: xr.DataTree, level: float = FALSE_DISCOVERY_RATE) -> list[dict[str, Any]]:
    """List every head of a scores tree as plain data, in the order of the model.

    Each has ``layer`` and ``head`` (and ``stack``, if there are several), ``p_value`` and ``q_value`` of all statistics
    together, ``differs`` (null if the head is not ``testable``), ``moved_share``, ``moved_share_equal_axes``, its
    direction ``towards``, ``relation`` with its q-value, and the ``reason`` of a missing test.
    """
    heads = tree["heads"].to_dataset().transpose("layer", "head", ...)
    numbers, stacks, noun = layer_numbers(heads), layer_stacks(heads), circuit_of(tree.attrs).noun
    _, floors = layer_p_value_floors(tree)
    p_value, q_value = (heads[name].values for name in ("omnibus_p_value", "omnibus_q_value"))
    related = heads["relation_q_value"].values if "relation" in heads else np.full(p_value.shape, np.nan)
    amounts = how_much(tree)
    floors = np.broadcast_to(floors[:, None], p_value.shape)
    left_out = {one.place: one.reason for one in _not_testable(heads, noun, floors, level)}
    names, records = layer_names(heads), []
    for layer, head in np.argwhere(heads_present(heads)).tolist():
        number = int(heads["head"].values[head])
        reason = left_out.get(f"{names[layer]} {noun} {number}")
        records.append(
            ({"stack": stacks[layer]} if stacks[layer] else {})
            | {
                "layer": int(numbers[layer]),
                "head": number,
                "p_value": float(p_value[layer, head]),
                "q_value": float(q_value[layer, head]),
                "differs": None if reason is not None else bool(q_value[layer, head] < level),
                "moved_share": amounts[layer, head].moved_share,
                "moved_share_equal_axes": amounts[layer, head].moved_share_equal_axes,
                "towards": amounts[layer, head].towards.value,
                "relation": amounts[layer, head].relation,
                "relation_q_value": float(related[layer, head]),
                "testable": reason is None,
                "reason": reason or "",
            }
        )
    return records


def _not_testable(
    heads: xr.Dataset, noun: str, floors: Float[np.ndarray, "layer head"], level: float
) -> list[NotTestable]:
    """List the heads without a p-value, or without one that could be small enough, each with its reason."""
    names = layer_names(heads)
    omnibus = heads["omnibus_p_value"].values
    reasons = heads["reason"].values if "reason" in heads else np.full(omnibus.shape, "")
    found = []
    for layer, head in np.argwhere(heads_present(heads) & (np.isnan(omnibus) | (floors >= level))).tolist():
        untested = np.isnan(omnibus[layer, head])
        why = recorded(reasons[layer, head]) if untested else _too_few_draws(float(floors[layer, head]), level, 1)
        found.append(NotTestable(f"{names[layer]} {noun} {heads['head'].values[head]}", why))
    return found


def _too_few_draws(floor: float, level: float, times: int) -> str:
    """Explain why a p-value of at least ``times`` / (draws + 1) cannot be below a level."""
    needed = int(times / level - 1 + 1e-9) + 1
    return f"{round(times / floor) - 1} draws of the null give no p-value below {floor:.2g} ({needed} needed)"


def _fewest(omnibus: Float[np.ndarray, "layer head"], floors: Float[np.ndarray, "layer head"], level: float) -> int:
    """Return the number of heads at the smallest p-value that the Benjamini–Hochberg correction needs to find any."""
    tested = np.isfinite(omnibus) & (floors < level)
    if not tested.any():
        return 1
    return int(np.isfinite(omnibus).sum() * floors[tested].min() / level * (1 + 1e-9)) + 1
