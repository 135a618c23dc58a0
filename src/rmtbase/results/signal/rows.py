"""Signal and noise of a model as rows and in summary, the source of printed tables and JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.errors import ParameterError
from rmtbase.reasons import NOT_RECORDED, NotTestable, Reason, listed_reasons
from rmtbase.results.signal.schema import OF_DIRECTION, OF_TAIL, SIGNAL_SCHEMA, VERDICTS
from rmtbase.shown import in_one_line
from rmtbase.statistics import benjamini_hochberg
from rmtbase.tables import CIRCUITS, Variable, groups_of, rows_of
from rmtbase.tables.domain import NON_NEGATIVE
from rmtbase.words import counted, of_tested, place_name


@in_one_line
@dataclass(frozen=True)
class SignalRow:
    """Signal and noise of one circuit of a head, of heads that share a key head, or of one matrix.

    A spectrum with ``no_number`` was tested; only the number of its directions, and with it their share, is unknown.
    """

    stack: str  # "" if the model has only one
    layer: int
    what: str  # name of the circuit or the component
    head: int | None  # number of the head, or of the shared key head; None for a matrix
    # by the names of ``SIGNAL_SCHEMA``, and ``squared_norm``, ‖W‖_F²; NaN, or None for counts, where there is none
    numbers: dict[str, Any]
    directions: list[dict[str, Any]]  # numbers of each direction by the names of ``SIGNAL_SCHEMA``, the strongest first
    reason: Reason  # why no test could be made, or why the number of directions is not known
    tails: dict[str, Any]  # numbers of heavy tails by the names of ``SIGNAL_SCHEMA``; empty if these were not computed
    no_number: str  # code of the reason why the number is not known although directions were found; or ""
    no_bound: str  # code of the reason why there is no ``learned_share_bound``; or ""

    @property
    def place(self) -> str:
        """Name of the spectrum: ``layer 3 qk head 2``, ``layer 3 mlp_in``."""
        return self.named("head")

    def named(self, unit: str) -> str:
        """Name the spectrum, with the unit that its number counts."""
        return place_name(self.layer, self.what, *([] if self.head is None else [unit, self.head]), stack=self.stack)

    @property
    def testable(self) -> bool:
        """True if the hypothesis of no direction could be tested."""
        return not np.isnan(self.numbers["first_p_value"])


def signal_rows(tree: xr.DataTree) -> list[SignalRow]:
    """List every circuit of every head, then every matrix, in the order of the model; groups of heads are left out."""
    if not isinstance(tree, xr.DataTree) or tree.attrs.get("kind") != "signal":
        expected = "a tree of signal and noise, as rmtbase.results.signal.signal makes"
        raise ParameterError("tree", type(tree).__name__, expected)
    groups = groups_of(tree)
    rows = [row for circuit in CIRCUITS for row in _rows(groups, f"/circuits/{circuit}/heads", "head", circuit)]
    return rows + _rows(groups, "/matrices", "component")


def signal_groups(tree: xr.DataTree) -> list[SignalRow]:
    """List what heads that share a key head, or values, have learned together; none if heads do not share.

    Each direction has ``head_share``, the share of each head of the group.
    """
    groups = groups_of(tree)
    return [row for circuit in CIRCUITS for row in _rows(groups, f"/circuits/{circuit}/groups", "key_head", circuit)]


def _rows(groups: Mapping[str, xr.Dataset], path: str, dim: str, circuit: str = "") -> list[SignalRow]:
    if path not in groups:
        return []
    dims = "layer", dim
    group = groups[path].assign(squared_norm=(dims, np.nansum(groups[path]["eigenvalue"].values, axis=-1)))
    schema = {**SIGNAL_SCHEMA[path], "squared_norm": Variable(dims, "‖W‖_F²", NON_NEGATIVE)}
    of_direction = [name for name in (*OF_DIRECTION, "head_share") if name in group]
    rows = []
    for numbers in rows_of(group, schema, *dims, along=("direction", "member")):
        place = numbers.pop("stack", ""), numbers.pop("layer")
        name = numbers.pop(dim)
        columns = {variable: numbers.pop(variable) for variable in of_direction}
        if "head_share" in columns:
            columns["head_share"] = [
                [share for share in shares if not np.isnan(share)] for shares in columns["head_share"]
            ]
        count = numbers["n_directions"] or 0
        directions = [{variable: column[k] for variable, column in columns.items()} for k in range(count)]
        what, head = (circuit, name) if circuit else (name, None)
        tails = {variable: numbers.pop(variable) for variable in OF_TAIL if variable in numbers}
        reasons = {variable: numbers.pop(variable) for variable in ("reason", "no_number", "no_bound")}
        rows.append(SignalRow(*place, what, head, numbers, directions, tails=tails, **reasons))
    return rows


def discoveries(rows: Sequence[SignalRow], level: float) -> int:
    """Count the testable spectra in which something was learned, at a false discovery rate of ``level``."""
    return int((benjamini_hochberg(_column(rows, "first_p_value")) < level).sum())


def not_testable(rows: Sequence[SignalRow], unit: str = "head") -> list[NotTestable]:
    """List the spectra that could not be tested, each with its reason."""
    return [NotTestable(row.named(unit), row.reason or NOT_RECORDED) for row in rows if not row.testable]


def signal_headline(rows: Sequence[SignalRow], level: float) -> str:
    """Say in how many of the testable spectra a learned direction was found, and why others could not be tested."""
    tested = [row for row in rows if row.testable]
    numbered = [row for row in tested if not row.no_number]
    no_floor = sum(row.numbers["noise_floor"] is False for row in numbered)
    words = f"have a learned direction at a false discovery rate of {100 * level:g} %"
    if no_floor:
        base = "" if len(numbered) == len(tested) else f" of the {len(numbered)} with a number"
        words += f" (in {no_floor}{base} the rest does not look like noise)"
    learned = discoveries(rows, level)
    single = sum(row.numbers["first_p_value"] <= level for row in tested)
    if single and not learned:
        chance = f"{level * len(tested):.0f}"
        words += f" ({single} have one at {100 * level:g} % by themselves, where chance gives {chance})"
    numberless = _no_number_words(rows, "spectrum")
    return f"{of_tested(learned, len(tested), not_testable(rows), 'spectrum', words)}{numberless}."


def groups_headline(groups: Sequence[SignalRow]) -> str:
    """Say in how many of the testable groups of heads, each taken as one, a direction was found."""
    tested = [row for row in groups if row.testable]
    learned = sum(row.numbers["n_directions"] != 0 for row in tested)
    untested = not_testable(groups, "heads of key head")
    return of_tested(learned, len(tested), untested, "group", "have a direction") + _no_number_words(groups, "group")


def _no_number_words(rows: Sequence[SignalRow], noun: str) -> str:
    reasons = [Reason(row.no_number) for row in rows if row.no_number]
    if not reasons:
        return ""
    verb = "has" if len(reasons) == 1 else "have"
    count = f"{len(reasons)} of {counted(len(rows), noun)}"
    return f"; {count} {verb} no number of directions: {listed_reasons(reasons)}"


def summarize_signal(rows: Sequence[SignalRow]) -> list[dict[str, Any]]:
    """Summarize each circuit and component, in their order: counts, and medians that are NaN if they are unknown."""
    summaries = []
    for what in dict.fromkeys(row.what for row in rows):
        of_part = [row for row in rows if row.what == what]
        tested = [row for row in of_part if row.testable]
        number, share, floor = (_column(tested, name) for name in ("n_directions", "signal_share", "noise_floor"))
        bound, unknown = _column(of_part, "learned_share_bound"), int(np.isnan(number).sum())
        no_floor = ((floor == 0) & ~np.isnan(number)).sum()
        summary = {
            "what": what,
            "spectra": len(of_part),
            "testable": len(tested),
            "without": int((number == 0).sum()),  # a direction
            "no_floor": np.nan if np.isnan(floor).all() else int(no_floor),  # NaN if this was tested for none
            "unknown": unknown,  # spectra with at least one direction, but an unknown number of them
            "median": _median(number),
            "most": max(np.nanmax(number, initial=0.0), unknown > 0) if tested else np.nan,  # at least, if some unknown
            "share": _median(share),
            "bounded": int((~np.isnan(bound)).sum()),
            "bound": -_median(-bound),  # spectra without a bound are below all others
            "unbounded": Counter(row.no_bound for row in of_part if row.no_bound),
        }
        summaries.append(summary)
    return summaries


def _column(rows: Sequence[SignalRow], name: str) -> Float[np.ndarray, " spectrum"]:
    return np.array([row.numbers[name] for row in rows], dtype=float)


def _median(values: Float[np.ndarray, " spectrum"]) -> float:
    """Compute the median, with unknown values above all others; NaN if it falls on an unknown one."""
    median = float(np.median(np.nan_to_num(values, nan=np.inf))) if values.size else np.nan
    return median if np.isfinite(median) else np.nan


class TailSummary(NamedTuple):
    """Tails of the spectra of one circuit or component."""

    what: str  #: name of the circuit or component
    spectra: int  #: number of spectra that have numbers
    exponent: float  #: median of the fitted exponents
    null_low: float  #: median of the lower ends of the bands that hold 95 % of the exponents of noise
    null_high: float  #: median of their upper ends
    heavier: int  #: number of spectra whose exponent is smaller than by chance, at the level
    verdicts: dict[str, int]  #: number of spectra with each of ``VERDICTS``


def summarize_tails(rows: Sequence[SignalRow], level: float) -> list[TailSummary]:
    """Summarize each circuit and component with tails, in their order."""
    of_parts: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row.tails.get("tail_verdict"):
            of_parts.setdefault(row.what, []).append(row.tails)
    summaries = []
    for what, tails in of_parts.items():
        names = ("power_law_exponent", "null_exponent_low", "null_exponent_high")
        exponent, low, high = (float(np.median([tail[name] for tail in tails])) for name in names)
        heavier = sum(tail["exponent_p_value"] <= level for tail in tails)
        verdicts = dict.fromkeys(VERDICTS, 0) | Counter(tail["tail_verdict"] for tail in tails)
        summaries.append(TailSummary(what, len(tails), exponent, low, high, heavier, verdicts))
    return summaries
