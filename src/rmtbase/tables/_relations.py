"""What the variables of a table owe to one another: true of every table as it was made, whatever its numbers.

Each function takes a dataset and gives what is found and what is expected, or None. Sums are compared up to rounding,
1e-9 of the largest number that goes into them: the moments of a table are sums in blocks, about the first block's mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import xarray as xr
from jaxtyping import Int, Real

from rmtbase.linalg import available_cores
from rmtbase.shown import quoted
from rmtbase.tables._digest import case_checksums
from rmtbase.tables._draws_schema import ELEMENT_FORMULAS

Fault = tuple[str, str] | None
Relation = Callable[[xr.Dataset], Fault]
Sample = Real[np.ndarray, " draw"]
Levels = Real[np.ndarray, " probability"]
Draws = Real[np.ndarray, "case _"]

_ROUNDING = 1e-9
_SORTED = 1 << 16  # draws up to which quantiles are computed again; of more the draws on either side are counted
_BLOCK = 1 << 15  # draws that stay in a core's cache while they are counted
_FEW = 1 << 18  # numbers below which threads cost more than they save


def heads_fit(table: xr.Dataset) -> Fault:
    """d_head ≤ d_model; of elements W_QK is d_model × d_model, and both are NaN for other matrices."""
    if "n_rows" in table:
        known = table["d_model"].notnull()
        if bool((known & ((table["n_rows"] != table["d_model"]) | (table["n_columns"] != table["d_model"]))).any()):
            return "d_model that is not n_rows and n_columns", "one that is"
    wrong = (table["d_head"] > table["d_model"]).values
    if not wrong.any():
        return None
    case = int(np.argmax(wrong))
    d_model, d_head = table["d_model"].values[case], table["d_head"].values[case]
    return f"d_head = {d_head} at d_model = {d_model}", "d_head of at most d_model"


def edges_enclose_bins(table: xr.Dataset) -> Fault:
    """One edge more than bins, whose centres lie in the middle."""
    bins, edges = table.sizes["bin"], table.sizes.get("edge", table.sizes["bin"] + 1)
    if edges != bins + 1:
        return f"{edges} edges of {bins} bins", f"{bins + 1} edges"
    if "bin_center" not in table:
        return None
    edge, center = table["bin_edge"].values, table["bin_center"].values
    wrong = np.abs(center - 0.5 * (edge[:, :-1] + edge[:, 1:])) > _ROUNDING * np.abs(edge).max(initial=0.0)
    return ("bin_center that is not the middle of its bin", "one that is") if wrong.any() else None


def moments_fit(table: xr.Dataset) -> Fault:
    """There is no mean where the first moment is infinite, no standard deviation where the second is.

    Of a table of W_QK there is one wherever the moment is finite.
    """
    order = table["moment_order"].values
    for name, needed in (("mean", 1), ("std", 2), ("standard_error", 2), ("std_standard_error", 4)):
        known = np.isfinite(table[name].values)
        if (known & (order <= needed)).any():
            return f"{name} of a statistic without that moment", "NaN, by moment_order"
        if table.attrs["kind"] == "baseline" and (~known & (order > needed)).any():
            return f"NaN in variable '{name}'", "a number, by moment_order"
    return None


def padded_from(rank: str) -> Relation:
    """Eigenvalues are there up to the rank, and padded with NaN from there on."""

    def padded(table: xr.Dataset) -> Fault:
        there = np.isfinite(table["eigenvalue_mean"].values)
        beyond = np.arange(there.shape[1]) >= table[rank].values[:, None]
        # Where the ensemble is any, small eigenvalues may be rounding, and NaN.
        wrong = there & beyond if rank == "rank" else there == beyond
        if not wrong.any():
            return None
        return f"eigenvalue_mean of another number of eigenvalues than {rank}", f"NaN from {rank} on"

    return padded


def draws_agree(table: xr.Dataset) -> Fault:
    """A sample has the draws of every case, and no case more than the attribute, the most of any, says."""
    most = int(table.attrs["draws"])
    counts = table["draws"].values if "draws" in table else np.array([most])
    if counts.max() > most:
        return f"{counts.max()} draws of a case", f"at most {most}, the attribute draws"
    held = table.sizes.get("draw", counts[0])
    wrong = counts[counts != held]
    return (
        (f"a sample of {held} draws", f"{wrong[0]}, the draws of its case")
        if "draw" in table.sizes and wrong.size
        else None
    )


def standard_error_fits(table: xr.Dataset) -> Fault:
    """standard_error = std / √draws."""
    draws = table["draws"].values[:, None] if "draws" in table else table.attrs["draws"]
    std, found = table["std"].values, table["standard_error"].values
    with np.errstate(invalid="ignore"):
        wrong = np.abs(found - std / np.sqrt(draws)) > _ROUNDING * std
    return ("standard_error that is not std / sqrt(draws)", "one that is") if wrong.any() else None


def density_is_one(table: xr.Dataset) -> Fault:
    """A density has a positive mass of at most 1, and of elements all but the share outside."""
    mass = (table["density"].values * np.diff(table["bin_edge"].values, axis=-1)).sum(axis=-1)
    outside = "share_outside" in table
    wrong = np.abs(mass + table["share_outside"].values - 1.0) > _ROUNDING if outside else mass > 1.0 + _ROUNDING
    if "d_head" in table and not outside:
        wrong |= mass <= 0.0
    if not wrong.any():
        return None
    expected = "1 - share_outside" if outside else "above 0 and at most 1"
    return f"a density of mass {mass[np.argmax(wrong)]:g}", expected


def formulas_fit(table: xr.Dataset) -> Fault:
    """Each statistic of elements has its own formula."""
    if "formula" not in table:
        return None
    pairs = zip(table["statistic"].values.tolist(), table["formula"].values.tolist(), strict=True)
    for name, formula in pairs:
        if name in ELEMENT_FORMULAS and ELEMENT_FORMULAS[name] != formula:
            return f"statistic {quoted(name)} with the formula {quoted(formula)}", quoted(ELEMENT_FORMULAS[name])
    return None


def trace_fits(table: xr.Dataset) -> Fault:
    """The expectation of the trace of W_QKᵀ W_QK, d² h σ_Q² σ_K², is that of the case's own shape and scale."""
    if "trace" not in table["statistic"].values:
        return None
    d, h = (table[name].values.astype(float) for name in ("d_model", "d_head"))
    known = d**2 * h * (table["sigma_q"] * table["sigma_k"]).values ** 2
    known = known / d if table.attrs["normalization"] == "sqrt_d" else known
    found = table["analytic_mean"].sel(statistic="trace").values
    wrong = ~(np.abs(found - known) <= _ROUNDING * known)
    if not wrong.any():
        return None
    case = int(np.argmax(wrong))
    return f"an analytic mean of the trace of {found[case]:g}", f"{known[case]:g}, of the case's own shape and sigma"


def scales_fit(table: xr.Dataset) -> Fault:
    """Each draw's estimate of σ is about σ: its mean over n draws within 10 of its standard errors σ/√(2 d h n)."""
    if "draw" not in table.sizes:
        return None
    size = (table["d_model"] * table["d_head"]).values.astype(float)
    for name in ("sigma_q", "sigma_k"):
        sigma, found = table[name].values, table[f"{name}_estimate"].values.mean(axis=1)
        bias, error = sigma / (4.0 * size), sigma / np.sqrt(2.0 * size * table.sizes["draw"])
        wrong = np.abs(found - sigma) > 2.0 * bias + 10.0 * error
        if wrong.any():
            case = int(np.argmax(wrong))
            return f"{name}_estimate of mean {found[case]:g}", f"about {sigma[case]:g}, the {name} of its case"
    return None


def checksums_fit(atlas: xr.Dataset) -> Fault:
    """Every case of an atlas has the checksum of its contents."""
    wrong = atlas["checksum"].values != case_checksums(atlas)
    return ("contents that do not fit their checksum", "an atlas as it was written") if wrong.any() else None


def draws_differ(table: xr.Dataset) -> Fault:
    """Random draws are not all the same."""
    same = (table["std"].values == 0).all(axis=-1)
    return ("a case all of whose draws are the same", "random draws") if same.any() else None


def sample_fits(table: xr.Dataset) -> Fault:
    """The sample has the mean, std and quantile beside it, and its statistics fit one another."""
    if "sample" not in table:
        return None
    values, levels = table["sample"].values, table["probability"].values
    summaries = [table[name].values for name in ("mean", "std", "quantile")]
    places, order = list(np.ndindex(*values.shape[:2])), table["moment_order"].values

    def row(place: tuple[int, ...]) -> str | None:
        mean, std, quantile = (summary[place] for summary in summaries)
        return _row_fault(values[place], mean, std, quantile, levels, order[place])

    threads = available_cores() if values.size > _FEW else 1
    with ThreadPoolExecutor(threads) as pool:
        faults = list(pool.map(row, places)) if threads > 1 else [row(place) for place in places]
    for (case, k), fault in zip(places, faults, strict=True):
        if fault is not None:
            name = quoted(str(table["statistic"].values[k]))
            return f"a sample of {name}, case {case}, that has not the {fault} beside it", "one that has"
    return statistics_fit(table)


def _row_fault(sample: Sample, mean: float, std: float, quantile: Levels, levels: Levels, order: float) -> str | None:
    low, high = sample.min(), sample.max()
    if not (np.isfinite(low) and np.isfinite(high)):
        return "mean" if np.isfinite(mean) else None
    slack = _ROUNDING * max(abs(low), abs(high))
    centre = sample.mean()
    if order > 1 and not abs(centre - mean) <= slack:
        return "mean"
    deviation = sample - centre
    if order > 2 and not abs(np.sqrt(deviation @ deviation / (sample.size - 1)) - std) <= slack:
        return "std"
    return None if _quantiles_fit(sample, quantile, levels, slack) else "quantile"


def _quantiles_fit(sample: Sample, quantile: Levels, levels: Levels, slack: float) -> bool:
    if sample.size <= _SORTED:
        return bool((np.abs(np.quantile(sample, levels) - quantile) <= slack).all())
    # The quantile at p lies between the draws of ranks r = ⌊p (n - 1)⌋ and r + 1, counted from 0: r + 1 draws are below
    # it, or with the next one in its place r + 2. More may be only where draws are equal.
    rank = np.floor(levels * (sample.size - 1)).astype(int)
    at_most = _counts(sample, quantile + slack, np.less_equal)
    more = at_most > rank + 2
    below = _counts(sample, quantile[more] - slack, np.less)
    return bool((at_most > rank).all() and (below <= rank[more] + 1).all())


def _counts(sample: Sample, limits: Real[np.ndarray, " limit"], compare: np.ufunc) -> Int[np.ndarray, " limit"]:
    """How many draws compare so with each limit."""
    counts = np.zeros(limits.size, dtype=np.int64)
    for start in range(0, sample.size if limits.size else 0, _BLOCK):
        block = sample[start : start + _BLOCK]
        counts += [np.count_nonzero(compare(block, limit)) for limit in limits]
    return counts


Known = Callable[[Mapping[str, Draws], Draws], Draws | tuple[Draws, Draws]]

_OF_EACH_OTHER: dict[str, tuple[tuple[str, ...], Known]] = {
    "participation_ratio": (("trace", "trace_of_square"), lambda of, _: of["trace"] ** 2 / of["trace_of_square"]),
    "condition_number": (
        ("largest_eigenvalue", "smallest_eigenvalue"),
        lambda of, _: of["largest_eigenvalue"] / of["smallest_eigenvalue"],
    ),
    "stable_rank": (("trace", "largest_eigenvalue"), lambda of, _: of["trace"] / of["largest_eigenvalue"]),
    "effective_rank": (("spectral_entropy_singular",), lambda of, _: np.exp(of["spectral_entropy_singular"])),
    "condition_number_singular": (("condition_number",), lambda of, _: np.sqrt(of["condition_number"])),
    "participation_ratio_singular": (
        ("stable_rank_singular", "stable_rank"),
        lambda of, _: of["stable_rank_singular"] ** 2 / of["stable_rank"],
    ),
    "normalized_participation_ratio": (("participation_ratio",), lambda of, h: of["participation_ratio"] / h),
    "normalized_participation_ratio_singular": (
        ("participation_ratio_singular",),
        lambda of, h: of["participation_ratio_singular"] / h,
    ),
    "spectral_entropy": (("participation_ratio",), lambda of, h: (np.log(of["participation_ratio"]), np.log(h))),
    "spectral_entropy_singular": (
        ("participation_ratio_singular",),
        lambda of, h: (np.log(of["participation_ratio_singular"]), np.log(h)),
    ),
    "log_determinant": (
        ("trace", "smallest_eigenvalue"),
        lambda of, h: (h * np.log(of["smallest_eigenvalue"]), h * np.log(of["trace"] / h)),
    ),
}
"""Statistics of one spectrum of h eigenvalues that follow from others, or the two values between which they lie.

(Σλ)²/Σλ², λ_1/λ_h, Σλ/λ_1, exp S, √κ, and with Σs = r_s s_1 (Σs)²/Σλ. Rényi's entropies fall with their order, and a
geometric mean is at most the arithmetic one."""

_FOLLOWS = 1e-6  # relatively: statistics are rounded each by itself
_LOOKED_AT = 1 << 16  # draws, at even distances: enough to tell one statistic from another


def statistics_fit(table: xr.Dataset) -> Fault:
    """The statistics of each draw's spectrum fit one another, and so do their names."""
    names = table["statistic"].values.tolist()
    rank = next((table[name].values[:, None] for name in ("d_head", "rank") if name in table), None)
    if "trace" not in names or rank is None:  # of elements: none follows from the others
        return None
    sample = table["sample"].values[..., :: -(-table.sizes["draw"] // _LOOKED_AT)]
    of = {name: sample[:, k] for k, name in enumerate(names)}
    with np.errstate(all="ignore"):  # NaN and infinities compare with nothing
        for name, (needed, known) in _OF_EACH_OTHER.items():
            if {name, *needed} <= set(of):
                value = known(of, rank)
                low, high = value if isinstance(value, tuple) else (value, value)
                slack = _FOLLOWS * (np.abs(low) + np.abs(high))
                if ((of[name] < low - slack) | (of[name] > high + slack)).any():
                    how, expected = ("does not follow from", "does") if low is high else ("cannot be beside", "can")
                    return f"a sample of {name} that {how} {' and '.join(needed)}", f"one that {expected}"
    return None
