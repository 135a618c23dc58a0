"""Summary of the scores of heads, in words."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from rmtbase.parameters import require_probability
from rmtbase.reasons import NOT_RECORDED, NotTestable, Reason
from rmtbase.results.scores import _how_much as differences
from rmtbase.results.scores._heads import require_scores
from rmtbase.results.scores._how_much import HowMuch, Moved, Related, Towards, how_much
from rmtbase.results.scores.words import null_noun
from rmtbase.shown import in_one_line
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import circuit_of, heads_present, layer_names, layer_numbers, layer_stacks
from rmtbase.words import place_name, plural, untested_words

FALSE_DISCOVERY_RATE = 0.05
_NAMED = 5  # heads with their own sentence
_FEW = 5  # heads that do not differ, named in the answer if no more


class Respect(StrEnum):
    """Respect in which heads differ, in words; {} is the symbol of the scored matrix."""

    FEWER = "strength in fewer directions"
    MORE = "in more directions"
    BOTH = "in fewer strong and more weak directions"
    LARGER = "larger ‖{}‖"
    SMALLER = "smaller ‖{}‖"


@in_one_line
class HeadFinding(NamedTuple):
    """Head that differs from random heads."""

    layer: int  # number of the layer
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
    outliers_above: int  # eigenvalues beyond the null's edge quantiles
    outliers_below: int
    at_floor: bool = False  # whether its omnibus p-value is the smallest possible one, so that q is only a bound
    null_median: float = math.nan  # median of that statistic under the null
    stack: str = ""  # name of the layer's stack, if the model has several stacks
    noun: str = "head"  # ``head``, or ``key head`` for some circuits
    how_much: HowMuch = HowMuch()  # how much it differs

    @property
    def place(self) -> str:
        """Name of the head, such as ``layer 3 head 2`` or ``decoder layer 3 head 2``."""
        return place_name(self.layer, self.noun, self.head, stack=self.stack)

    @property
    def layer_name(self) -> str:
        """Name of the layer, such as ``decoder layer 3``."""
        return place_name(self.layer, stack=self.stack)

    def sentence(self) -> str:
        """Write the finding as one sentence."""
        statistic = SPECTRAL_STATISTICS[self.statistic]
        side, deviations = "above" if self.z_score > 0 else "below", f"{self.distance:.1f} standard deviations"
        far = f"{deviations}{' of its ln' if statistic.on_log_scale else ''} {side} the null's {self.null_mean:.4g}"
        far += f" ± {self.null_std:.2g}"
        if math.isnan(self.null_std):
            far = f"{side} the null's median {self.null_median:.4g}, as rare as {deviations} of a normal law"
            far += " (it has none of its own)"
        return (
            f"{self.place[0].upper()}{self.place[1:]}: {statistic.long_name} {self.observed:.4g}, {far} "
            f"(q {'≤' if self.at_floor else '='} {self.omnibus_q_value:.2g}; eigenvalues beyond "
            f"the null's edges: {self.outliers_above} above, {self.outliers_below} below)."
        )


@in_one_line
@dataclass(frozen=True)
class Summary:
    """Summary of the scores of a model."""

    n_heads: int  # heads that could be tested at ``level``
    findings: tuple[HeadFinding, ...]  # heads with an omnibus q-value under ``level``, by q-value, then by distance
    flagged: dict[str, int]  # heads with a q-value under ``level``, by statistic, if it tested any
    unscored: dict[str, Reason]  # reasons why some statistics tested no head, by statistic
    level: float  # false discovery rate
    warnings: tuple[str, ...]  # warnings recorded about the checkpoint
    layers: tuple[str, ...] = ()  # names of the layers, in order
    noun: str = "head"  # name of the scored objects: ``head``, or ``key head`` for some circuits
    not_testable: tuple[NotTestable, ...] = ()  # heads that could not be tested, each with its reason
    fewest: int = 1  # number of heads at the smallest p-value of the null's draws that are needed for any to be found
    against: str = "random heads"  # what the heads were compared with
    symbol: str = "W_QK"  # symbol of the matrix that was scored, such as ``W_QK``
    kinds: Mapping[Respect, int] = field(default_factory=dict)  # respects in which heads differ, and numbers of heads
    moved: Moved = field(default_factory=Moved)  # moved shares of the heads that differ
    related: Related = field(default_factory=Related)  # heads whose keys read what their queries read
    alike: tuple[str, ...] = ()  # names of the tested heads that do not differ

    def answer(self, cause: str = "") -> list[str]:
        """Say how many heads differ, how much, in which respect, by which ``cause``, and what could not be tested."""
        untested = untested_words(self.not_testable, self.n_heads + len(self.not_testable), self.noun)
        lines = [self.verdict(), *self.moved.sentences(), *self.kind(), *self.related.sentences()]
        return [*lines, *([cause] if cause else []), *([f"Not tested: {untested}."] if untested else [])]

    def sentences(self) -> list[str]:
        """Give the answer, then which heads differ, the statistics that flag them, and the farthest heads."""
        return self.answer() + self.details() + self.reasons()

    def details(self) -> list[str]:
        """List the heads that differ, how many each statistic flags by itself, and the statistics without a test."""
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.unscored.items() if self.n_heads else ():
            by_reason.setdefault(reason.words, []).append(SPECTRAL_STATISTICS[name].long_name)
        layers: dict[str, list[int]] = {}
        for finding in self.findings:
            layers.setdefault(finding.layer_name, []).append(finding.head)
        listed = [f"{name}: {_ranges(layers[name], self.noun)}" for name in self.layers if name in layers]
        return [
            *([f"Heads that differ, by layer: {'; '.join(listed)}."] if listed else []),
            *self.by_statistic(),
            *(f"Not tested by {', '.join(names)}: {reason}." for reason, names in by_reason.items()),
        ]

    def reasons(self) -> list[str]:
        """Describe the farthest heads, one sentence for each, and count the others."""
        lines = [finding.sentence() for finding in self.findings[:_NAMED]]
        if len(self.findings) > _NAMED:
            lines.append(f"The other {len(self.findings) - _NAMED} are in the table of {self.noun}s.")
        return lines

    def verdict(self) -> str:
        """Say how many heads differ from random ones."""
        noun, heads = self.noun, plural(self.n_heads, self.noun)
        if not self.n_heads:
            return f"Whether {noun}s differ from {self.against} cannot be told."
        testable = "testable " if self.not_testable else ""
        rate = f"(false discovery rate {self.level:.0%})"
        if self.findings:
            count = len(self.findings)
            others = f" Not told from them: {', '.join(self.alike)}." if 0 < len(self.alike) <= _FEW else ""
            differ = f"differ{'s' * (count == 1)} from {self.against} {rate}"
            return f"{count} of {self.n_heads} {testable}{heads} {differ}.{others}"
        none = f"None of the {self.n_heads} {testable}{heads} can"
        if self.n_heads == 1:
            none = f"The one {testable}{noun} cannot"
        least = f"{self.fewest} or more {plural(self.fewest, noun)} differ"
        few = f" With so few draws of the null none can be found unless {least}." if self.fewest > 1 else ""
        return f"{none} be told from {self.against} {rate}.{few}"

    @property
    def at_floor(self) -> int:
        """Number of heads with the smallest p-value that the null can show."""
        return sum(finding.at_floor for finding in self.findings)

    def kind(self) -> list[str]:
        """Say in which respects the heads differ, and how many heads."""
        if not self.findings:
            return []
        parts = [f"{respect.format(self.symbol)} ({count})" for respect, count in self.kinds.items()]
        if not parts:
            return ["Kind: not told; neither the moved share nor the norm differs by itself."]
        return [f"Kind (number of {self.noun}s, some in several): {', '.join(parts)} than {self.against}."]

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


def _ranges(numbers: list[int], noun: str) -> str:
    """List numbers, with runs of three or more abbreviated: 0-3, 5, 7."""
    ordered = np.sort(numbers)
    runs = [run.tolist() for run in np.split(ordered, np.flatnonzero(np.diff(ordered) != 1) + 1)]
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"{plural(len(numbers), noun)} {', '.join(parts)}"


class _Head(NamedTuple):
    place: tuple[int, int]
    name: str
    layer: int
    stack: str
    head: int
    p_value: float
    q_value: float
    reason: Reason  # why it cannot be tested
    amount: HowMuch


def _heads(tree: xr.DataTree, level: float) -> list[_Head]:
    """List every head of a scores tree, in the order of the model."""
    heads = tree["heads"].to_dataset().transpose("layer", "head", ...)
    p_value, q_value = (heads[name].values for name in ("omnibus_p_value", "omnibus_q_value"))
    noun, amounts, (_, floors) = circuit_of(tree.attrs).noun, how_much(tree), differences.layer_p_value_floors(tree)
    names, numbers, stacks, rows = layer_names(heads), layer_numbers(heads), layer_stacks(heads), []
    for place in differences.places_of(heads_present(heads)):
        layer, head = place[0], int(heads["head"].values[place[1]])
        floor, reason = float(floors[layer]), Reason()
        if np.isnan(p_value[place]):
            reason = Reason.read(heads["reason"].values[place]) or NOT_RECORDED
        elif floor >= level:
            reason = _too_few_draws(floor, level, 1)
        where = f"{names[layer]} {noun} {head}", int(numbers[layer]), stacks[layer], head
        rows.append(_Head(place, *where, float(p_value[place]), float(q_value[place]), reason, amounts[place]))
    return rows


def summarize_scores(tree: xr.DataTree, level: float = FALSE_DISCOVERY_RATE) -> Summary:
    """Find the heads that differ from the null, how far, and by which statistic.

    A head differs from the null if its omnibus q-value is under ``level``; the omnibus test combines all statistics and
    accounts for their correlations. The statistic named with a head is its farthest one. The summary is about W_QK; for
    another circuit, pass the tree from :func:`rmtbase.results.scores.circuit_scores`.
    """
    require_scores(tree, "tree")
    level = require_probability("level", level)
    heads = tree["heads"].to_dataset().transpose("layer", "head", "statistic", "probability", "index")
    rows, statistics, circuit = _heads(tree, level), heads["statistic"].values.tolist(), circuit_of(tree.attrs)
    noun, against = circuit.noun, null_noun(tree.attrs["null_entries"], circuit.noun)
    single, floors = differences.layer_p_value_floors(tree)
    names_of = {row.place: row.name for row in rows}
    differing, testable = [row for row in rows if row.q_value < level], [row for row in rows if not row.reason]
    differs = heads["omnibus_q_value"].values < level
    by_share = sorted(differing, key=lambda row: -row.amount.moved_share)
    amounts = tuple((row.name, row.amount) for row in by_share)
    moved = Moved(amounts, differences.upper_range(tree, differs), circuit.symbol, against)
    towards = Counter(amount.towards for _, amount in amounts)
    kinds = {Respect[side.name]: towards[side] for side in (Towards.FEWER, Towards.MORE, Towards.BOTH)}
    if "trace" in statistics:
        trace = heads.sel(statistic="trace")
        z_score = trace["z_score"].values[differs & (trace["q_value"].values < level)]
        kinds |= {Respect.LARGER: int((z_score > 0).sum()), Respect.SMALLER: int((z_score < 0).sum())}
    q_values = heads["q_value"].values
    known = np.isfinite(q_values)
    scored = np.asarray((known & (single < level)[:, None, None]).any(axis=(0, 1)))
    needed = 1
    if testable:
        smallest = min(floors[row.place[0]] for row in testable)
        needed = int(sum(math.isfinite(row.q_value) for row in rows) * smallest / level * (1 + 1e-9)) + 1
    return Summary(
        n_heads=len(testable),
        findings=tuple(_findings(heads, differing, floors, noun)),
        flagged={name: int((q_values[..., k] < level).sum()) for k, name in enumerate(statistics) if scored[k]},
        unscored={
            name: _too_few_draws(float(single.max()), level, 2) if known[..., k].any() else Reason("no_null")
            for k, name in enumerate(statistics)
            if not scored[k]
        },
        level=level,
        warnings=tuple(json.loads(tree.attrs["warnings"])),
        layers=tuple(layer_names(heads)),
        noun=noun,
        not_testable=tuple(NotTestable(row.name, row.reason) for row in rows if row.reason),
        fewest=needed,
        against=against,
        symbol=circuit.symbol,
        kinds={respect: count for respect, count in kinds.items() if count},
        moved=moved,
        related=Related(level=level) if "updates" in tree.attrs else differences.related_heads(heads, names_of, level),
        alike=tuple(row.name for row in testable if not row.q_value < level),
    )


def _findings(heads: xr.Dataset, differing: list[_Head], floors: np.ndarray, noun: str) -> list[HeadFinding]:
    statistics, distance = heads["statistic"].values.tolist(), np.abs(differences.farthest_distance(heads))
    median = heads["null_quantile"].sel(probability=0.5).values
    at_floor = differences.at_p_value_floor(heads["omnibus_p_value"].values, floors[:, None])
    findings = []
    for row in differing:
        farthest = str(heads["farthest_statistic"].values[row.place])
        at = (*row.place, statistics.index(farthest))
        outliers = ("outliers_above", "outliers_below")
        values: dict[str, Any] = {name: int(heads[name].values[row.place]) for name in outliers}
        for name in ("observed", "null_mean", "null_std", "z_score"):
            values[name] = float(heads[name].values[at])
        values |= {"distance": float(distance[row.place]), "omnibus_q_value": row.q_value, "how_much": row.amount}
        values |= {"at_floor": bool(at_floor[row.place]), "null_median": float(median[at])}
        findings.append(HeadFinding(row.layer, row.head, farthest, stack=row.stack, noun=noun, **values))
    return sorted(findings, key=lambda finding: (finding.omnibus_q_value, -finding.distance))


def head_records(tree: xr.DataTree, level: float = FALSE_DISCOVERY_RATE) -> list[dict[str, Any]]:
    """List every head of a scores tree as plain data, in the order of the model."""
    heads = tree["heads"].to_dataset().transpose("layer", "head", ...)
    related = heads.get("relation_q_value", xr.full_like(heads["omnibus_p_value"], np.nan)).values
    return [
        ({"stack": row.stack} if row.stack else {})
        | {
            "layer": row.layer,
            "head": row.head,
            "p_value": row.p_value,
            "q_value": row.q_value,
            "differs": None if row.reason else row.q_value < level,
            "moved_share": row.amount.moved_share,
            "moved_share_equal_axes": row.amount.moved_share_equal_axes,
            "towards": row.amount.towards.value,
            "relation": row.amount.relation,
            "relation_q_value": float(related[row.place]),
            "testable": not row.reason,
            "reason": row.reason.words,
        }
        for row in _heads(tree, level)
    ]


def _too_few_draws(floor: float, level: float, times: int) -> Reason:
    """Explain why a p-value of at least ``times`` / (draws + 1) cannot be below a level."""
    needed = int(times / level - 1 + 1e-9) + 1
    return Reason("too_few_draws", {"draws": round(times / floor) - 1, "floor": floor, "needed": needed})
