"""Signal and noise of a model as rows, the source of printed tables, JSON and CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.errors import ParameterError
from rmtbase.results.signal._sequential_count import NO_NUMBER
from rmtbase.results.signal._spectral_signal import DIRECTION_FIELDS
from rmtbase.results.signal.schema import TAIL_NUMBERS, TAIL_TEXTS
from rmtbase.statistics import benjamini_hochberg
from rmtbase.tables import CIRCUITS, NotTestable, headline, layer_numbers, layer_stacks, plural, recorded

_NUMBERS = (
    "n_directions", "first_p_value", "next_p_value", "rest_p_value", "noise_floor", "sigma", "noise_scale",
    "noise_scale_std", "threshold", "detectable_strength", "signal_share", "raw_share", "expected_error",
    "learned_share_bound",
)  # fmt: skip


class SignalRow(NamedTuple):
    """Signal and noise of one circuit of a head, or of one matrix.

    ``testable`` says whether the hypothesis of no direction could be tested. A spectrum with ``no_number`` was tested;
    only the number of its directions, and with it their share, is unknown.
    """

    # stack, layer: place of the spectrum; the stack is "" if the model has only one
    stack: str
    layer: int
    what: str  # name of the circuit or the component
    head: int | None  # number of the head; None for a matrix
    # numbers by the names of ``SIGNAL_SCHEMA``, and ``squared_norm``, ‖W‖_F²; NaN where there is none
    numbers: dict[str, float]
    # numbers of each direction by the names of ``SIGNAL_SCHEMA``, the strongest first
    directions: list[dict[str, float]]
    reason: str  # why no test could be made, or why the number of directions is not known, in words; or ""
    tails: dict[str, Any]  # numbers of heavy tails by the names of ``SIGNAL_SCHEMA``; empty if these were not computed
    no_number: str  # why the number is not known although directions were found, a key of ``NO_NUMBER``; or ""
    no_bound: str  # why there is no ``learned_share_bound``, a key of ``NO_BOUND``; or ""

    @property
    def place(self) -> str:
        """Name of the spectrum: ``layer 3 qk head 2``, ``layer 3 mlp_in``."""
        head = "" if self.head is None else f" head {self.head}"
        return f"{self.stack} layer {self.layer} {self.what}{head}".lstrip()

    @property
    def testable(self) -> bool:
        """True if the hypothesis of no direction could be tested."""
        return not np.isnan(self.numbers["first_p_value"])


def signal_rows(tree: xr.DataTree) -> list[SignalRow]:
    """List every circuit of every head, then every matrix, in the order of the model; groups of heads are left out."""
    if not isinstance(tree, xr.DataTree) or tree.attrs.get("kind") != "signal":
        raise ParameterError(
            "tree", type(tree).__name__, "a tree of signal and noise, as rmtbase.results.signal.signal makes"
        )
    rows = [row for name, group in _held(tree, "heads") for row in _rows(group, "head", name)]
    if "matrices" in tree.children:
        rows += _rows(tree["matrices"].to_dataset(), "component", "")
    return rows


class GroupRow(NamedTuple):
    """Heads that share a key head, or values, in one circuit."""

    row: SignalRow  # what they have learned together; its ``head`` is the number of the shared key head
    head_share: list[list[float]]  # share of each head in each direction


def signal_groups(tree: xr.DataTree) -> list[GroupRow]:
    """List every group of heads of every circuit, in the order of the model; none if heads do not share."""
    found = []
    for name, group in _held(tree, "groups"):
        share = group["head_share"].values[group["sigma"].notnull().values]
        for row, of in zip(_rows(group, "key_head", name), share, strict=True):
            own = of[: len(row.directions)]
            found.append(GroupRow(row, [one[~np.isnan(one)].tolist() for one in own]))
    return found


def _held(tree: xr.DataTree, what: str) -> list[tuple[str, xr.Dataset]]:
    """List the circuits that the tree has, each with the dataset of its heads, or of their groups."""
    held = tree.children["circuits"].children if "circuits" in tree.children else {}
    return [(name, held[name][what].to_dataset()) for name in CIRCUITS if name in held and what in held[name].children]


def _rows(group: xr.Dataset, of: str, circuit: str) -> Iterator[SignalRow]:
    layers, stacks, names = layer_numbers(group), layer_stacks(group), group[of].values.tolist()
    numbers = {name: group[name].values for name in _NUMBERS}
    directions = {name: group[name].values for name in DIRECTION_FIELDS}
    looked = "tail_verdict" in group
    tails = {name: group[name].values for name in (*TAIL_NUMBERS, *TAIL_TEXTS) if looked}
    norms = np.nansum(group["eigenvalue"].values, axis=-1)
    for i, j in np.argwhere(group["sigma"].notnull().values).tolist():
        number = numbers["n_directions"][i, j]
        count = 0 if np.isnan(number) else int(number)
        yield SignalRow(
            stacks[i],
            layers[i],
            circuit or str(names[j]),
            names[j] if circuit else None,
            {name: float(whole[i, j]) for name, whole in numbers.items()} | {"squared_norm": float(norms[i, j])},
            [{name: float(whole[i, j, k]) for name, whole in directions.items()} for k in range(count)],
            str(group["reason"].values[i, j]),
            {name: str(whole[i, j]) if name in TAIL_TEXTS else float(whole[i, j]) for name, whole in tails.items()},
            str(group["no_number"].values[i, j]),
            str(group["no_bound"].values[i, j]),
        )


class SignalSummary(NamedTuple):
    """Summary of the spectra of one circuit, or of one component."""

    what: str  # name of the circuit or the component
    spectra: int  # number of spectra
    testable: int  # number of spectra that could be tested; all further numbers are over these
    without: int  # number of spectra in which no direction was found
    # number of spectra with a number of directions and without a noise floor; NaN if this was tested for none
    no_floor: float
    unknown: int  # number of spectra with at least one direction, but an unknown number of them
    median: float  # median number of directions; NaN if the median falls on an unknown one
    most: float  # largest number of directions, a lower bound if some are unknown; NaN if none could be tested
    share: float  # median learned share of the squared norm; NaN if the median falls on an unknown one
    bounded: int  # number of spectra with a lower bound on the learned share
    bound: float  # median of these bounds, with spectra without one below all others; NaN if it falls on one of those
    unbounded: dict[str, int]  # reasons why there is no bound, keys of ``NO_BOUND``, with their numbers of spectra


def discoveries(rows: Sequence[SignalRow], level: float) -> int:
    """Count the testable spectra in which something was learned, at a false discovery rate of ``level``."""
    q_value = benjamini_hochberg(np.array([row.numbers["first_p_value"] for row in rows]))
    return int((q_value < level).sum())


def signal_not_testable(rows: Sequence[SignalRow]) -> list[NotTestable]:
    """List the spectra that could not be tested, each with its reason."""
    return [NotTestable(row.place, recorded(row.reason)) for row in rows if not row.testable]


def signal_headline(rows: Sequence[SignalRow], level: float) -> str:
    """Say in how many of the testable spectra a learned direction was found, and why others could not be tested."""
    left_out, tested = signal_not_testable(rows), [row for row in rows if row.testable]
    known = [row for row in tested if not row.no_number]
    floors = sum(row.numbers["noise_floor"] == 0 for row in known)
    which = f"in {floors}" if len(known) == len(tested) else f"in {floors} of the {len(known)} with a number"
    without = f" ({which} the rest does not look like noise)" if floors else ""
    found, words = discoveries(rows, level), f"have a learned direction at a false discovery rate of {100 * level:g} %"
    alone = sum(row.numbers["first_p_value"] <= level for row in tested)
    if alone and not found:
        without += (
            f" ({alone} have one at {100 * level:g} % by themselves, where chance gives {level * len(tested):.0f})"
        )
    lacking = no_number_words(rows, "spectrum")
    return f"{headline(found, len(tested), left_out, 'spectrum', words + without)}{lacking and f'; {lacking}'}."


def no_number_words(rows: Sequence[SignalRow], noun: str) -> str:
    """Say how many of the spectra have directions and no number of them, and why; "" if none."""
    counts = Counter(row.no_number for row in rows if row.no_number)
    if not counts:
        return ""
    count, single = counts.total(), len(counts) == 1
    reasons = "; ".join(NO_NUMBER[why] + ("" if single else f" ({number})") for why, number in counts.most_common())
    have = "has" if count == 1 else "have"
    return f"{count} of {len(rows)} {plural(len(rows), noun)} {have} no number of directions: {reasons}"


def groups_not_testable(groups: Sequence[GroupRow]) -> list[NotTestable]:
    """List the groups of heads that could not be tested as one, each with its reason."""
    return [
        NotTestable(one.row.place.replace(" head ", " heads of key head "), recorded(one.row.reason))
        for one in groups
        if not one.row.testable
    ]


def groups_headline(groups: Sequence[GroupRow]) -> str:
    """Say in how many of the testable groups of heads, each taken as one, a direction was found."""
    tested = [one.row for one in groups if one.row.testable]
    found = sum(bool(row.directions) or np.isnan(row.numbers["n_directions"]) for row in tested)
    lacking = no_number_words([group.row for group in groups], "group")
    words = headline(found, len(tested), groups_not_testable(groups), "group", "have a direction")
    return f"{words}{lacking and f'; {lacking}'}"


def summarize_signal(rows: Sequence[SignalRow]) -> list[SignalSummary]:
    """Summarize each circuit and component, in their order."""
    found = []
    for what in dict.fromkeys(row.what for row in rows):
        own = [row for row in rows if row.what == what]
        tested = [row for row in own if row.testable]
        number, share, floor = (
            np.array([row.numbers[name] for row in tested]) for name in ("n_directions", "signal_share", "noise_floor")
        )
        bound = np.array([row.numbers["learned_share_bound"] for row in own])
        unknown = int(np.isnan(number).sum())
        found.append(
            SignalSummary(
                what,
                len(own),
                len(tested),
                int((number == 0).sum()),
                float("nan") if np.isnan(floor).all() else float(((floor == 0) & ~np.isnan(number)).sum()),
                unknown,
                _median(number),
                max(float(np.nanmax(number, initial=0.0)), float(unknown > 0)) if tested else float("nan"),
                _median(share),
                int((~np.isnan(bound)).sum()),
                -_median(-bound),
                dict(Counter(row.no_bound for row in own if row.no_bound)),
            )
        )
    return found


def _median(values: Float[np.ndarray, " spectrum"]) -> float:
    """Compute the median, with unknown values above all others; NaN if it falls on an unknown one."""
    median = float(np.median(np.nan_to_num(values, nan=np.inf))) if values.size else np.nan
    return median if np.isfinite(median) else float("nan")
