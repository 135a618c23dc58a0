"""Comparison of training recipes, several seeds of each: measures of models, error bars and exact permutation tests."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from itertools import permutations as orders
from math import factorial, nan, prod
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from scipy.special import stdtr, stdtrit

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_positive_integer
from rmtbase.progress import Progress
from rmtbase.results.comparison._matrices import (
    SELECTION,
    TRANSMISSION,
    WEIBULL,
    ComparedModel,
    values_of,
    weibull_scales,
    weight_matrices,
)
from rmtbase.results.comparison._two_models import PERMUTATIONS, head_units, permutation_p_values
from rmtbase.results.comparison.schema import COMPARISON_SCHEMA
from rmtbase.results.trajectory.schema import FOR_GOOD, STEP, scores_at
from rmtbase.statistics import benjamini_hochberg
from rmtbase.tables import groups_of

_NPR = "normalized_participation_ratio"
HEADLINES = (
    *("transmission weibull_shape", "transmission scale", "selection weibull_shape", "selection scale"),
    *(f"median {_NPR}", "heads_departed", "departure_step"),
)
"""Measures that are shown first, also those that are followed by the name of a null."""

_ROUNDING = 1e-13  # relative; numbers closer than this differ only by rounding
_AT_ONCE = 1 << 21  # permuted statistics held in memory at a time

Columns = Float[np.ndarray, "model column"]
Column = Float[np.ndarray, " column"]
Labels = Int[np.ndarray, "permutation model"]
Permuted = Float[np.ndarray, "permutation column"]
Statistic = Callable[[Labels, Columns, Sequence[int]], Permuted]
Groups = Mapping[str, Sequence[Any]]
Measures = dict[str, float]


def measures_of(scores: xr.DataTree) -> Measures:
    """Measure a whole model: distances of key heads, NPR, heads that differ, and medians (scale: means) of matrices.

    A statistic of matrices is measured for each component, and for the classes: ``transmission``, and ``selection``,
    pooled over queries and keys, or over fused projections where these were not scored separately.
    """
    units, heads = head_units(scores), scores["heads"].to_dataset()
    mean = units.mean(axis=0) if len(units) else np.full(units.shape[1], np.nan)
    statistics = heads["statistic"].values.tolist()
    measures = dict(zip(statistics, mean.tolist(), strict=True))
    if _NPR in statistics:
        ratio = heads["observed"].sel(statistic=_NPR).values
        measures[f"median {_NPR}"] = _reduced(np.median, ratio[np.isfinite(ratio)])
    q_value = heads["omnibus_q_value"].values
    measures["heads_departed"] = _reduced(np.mean, (q_value < FOR_GOOD)[np.isfinite(q_value)])
    matrices = weight_matrices(scores)
    if matrices is None:
        return measures
    statistics, components = (matrices[name].values.tolist() for name in ("statistic", "component"))
    columns = {name: matrices["observed"].sel(statistic=name) for name in WEIBULL if name in statistics}
    if {"weibull_scale", "mean"} <= {*statistics}:
        columns["scale"] = weibull_scales(matrices)
    selection = [name for name in SELECTION[:2] if name in components] or SELECTION[2:]
    classes = {"transmission": TRANSMISSION, "selection": selection}
    for owner, members in (classes | {name: (name,) for name in components}).items():
        for column, values in columns.items():
            by_member = [values_of(matrices, values, member) for member in members]
            if column == "scale":  # mean over layers, then over components, as in the paper
                measure = _reduced(np.mean, np.array([member.mean() for member in by_member if member.size]))
            else:
                measure = _reduced(np.median, np.concatenate(by_member))
            if np.isfinite(measure):
                measures[f"{owner} {column}"] = measure
    return measures


def _reduced(reduce: Callable[[np.ndarray], Any], values: Float[np.ndarray, " value"]) -> float:
    return float(reduce(values)) if values.size else nan


class GroupTest(NamedTuple):
    paired: bool = False  # whether the k-th models of all groups share all that a seed decides
    permutations: int = PERMUTATIONS  # largest number of assignments of models to groups
    seed: int = 0  # of random assignments, if there are more


def require_groups(groups: Groups, paired: bool) -> None:
    """Require 2 or more disjoint groups of 2 or more models, of equal sizes if paired."""
    for first, second in combinations(groups, 2):
        if both := sorted(set(groups[first]) & set(groups[second])):
            raise ParameterError("groups", both, f"models in only one of {first} and {second}")
    if len(groups) < 2:
        raise ParameterError("groups", list(groups), "2 groups at least")
    sizes = {name: len(members) for name, members in groups.items()}
    for name, size in sizes.items():
        if size < 2:
            raise ParameterError(f"groups[{name!r}]", size, "2 models at least, to know how far seeds are apart")
    if paired and len(set(sizes.values())) > 1:
        expected = "the same number of models in each group, in the same order of seeds"
        raise ParameterError("paired", list(sizes.values()), expected)


def contrast_of(values: Columns, sizes: tuple[int, int], test: GroupTest) -> dict[str, Any]:
    """Compare two groups in each column; the first ``sizes[0]`` rows are the models of the first group.

    Welch's t, or t of the differences if paired, is compared with its values for all assignments of the models to the
    groups, or for random ones if these are too many. Under the null models are exchangeable, as seeds of one recipe
    are, if paired within each pair (B. L. Welch, 1947; P. H. Westfall and S. S. Young, 1993).
    """
    first, second = values[: sizes[0]], values[sizes[0] :]
    difference = second.mean(axis=0) - first.mean(axis=0)
    parts = [group.var(axis=0, ddof=1) / len(group) for group in (first, second)]
    with np.errstate(invalid="ignore", divide="ignore"):
        if test.paired:
            error, degrees = (second - first).std(axis=0, ddof=1) / np.sqrt(sizes[0]), np.array(sizes[0] - 1.0)
        else:
            error = np.sqrt(parts[0] + parts[1])
            degrees = error**4 / (parts[0] ** 2 / (sizes[0] - 1) + parts[1] ** 2 / (sizes[1] - 1))
        squares = sum((n - 1) * n * part for n, part in zip(sizes, parts, strict=True))
        seed_std = np.sqrt(squares / (sum(sizes) - 2))
        spread = error > _ROUNDING * np.abs(values).max(axis=0)  # otherwise no two seeds differ, and t is undefined
        half = np.where(spread, stdtrit(degrees, 0.975) * error, np.nan)
        t_p_value = np.where(spread, 2.0 * stdtr(degrees, -np.abs(difference / error)), np.nan)
    p_value, adjusted, smallest = _tested(values, sizes, _pair_t if test.paired else _welch, test)
    return {
        "first_mean": first.mean(axis=0),
        "second_mean": second.mean(axis=0),
        "difference": difference,
        "standard_error": error,
        "seed_std": seed_std,
        "interval_low": difference - half,
        "interval_high": difference + half,
        "t_p_value": np.where((difference == 0) & np.isfinite(p_value), 1.0, t_p_value),
        "p_value": p_value,
        "adjusted_p_value": adjusted,
        "smallest_p_value": smallest,
    }


def between_of(values: Columns, sizes: Sequence[int], test: GroupTest) -> dict[str, Any]:
    """Compare groups in each column by analysis of variance, without interaction of group and seed if paired.

    The rows are sorted by group. Labels are permuted within each seed if paired (M. J. Anderson and C. J. F. ter Braak,
    J. Stat. Comput. Simul. 73, 85, 2003).
    """
    n, k = sum(sizes), len(sizes)
    freedom = (k - 1) * (sizes[0] - 1) if test.paired else n - k
    effective = (n - sum(size**2 for size in sizes) / n) / (k - 1)
    ends = np.cumsum(sizes)[:-1]
    residuals = np.split(_centred(values, sizes, test.paired), ends)
    between = sum(len(group) * group.mean(axis=0) ** 2 for group in residuals) / (k - 1)
    within = sum(((group - group.mean(axis=0)) ** 2).sum(axis=0) for group in residuals) / freedom
    rounding = _ROUNDING**2 * (values**2).max(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        f_ratio = np.where(between > rounding, between / np.where(within > rounding, within, 0.0), 0.0)
    p_value, adjusted, smallest = _tested(values, sizes, _explained, test)
    return {
        "mean": np.stack([group.mean(axis=0) for group in np.split(values, ends)]),
        "seed_std": np.sqrt(within),
        "group_std": np.sqrt(np.maximum(between - within, 0.0) / effective),
        "f_ratio": np.where(np.isnan(between), np.nan, f_ratio),
        "p_value": p_value,
        "adjusted_p_value": adjusted,
        "smallest_p_value": smallest,
    }


def _tested(
    values: Columns, sizes: Sequence[int], statistic: Statistic, test: GroupTest
) -> tuple[Column, Column, float]:
    """p and adjusted p of a statistic of labelled models, and the smallest possible p."""
    complete = np.flatnonzero(np.isfinite(values).all(axis=0))
    residuals = _centred(values[:, complete], sizes, test.paired)
    spread = np.abs(residuals).max(axis=0)
    residuals /= np.where(spread > _ROUNDING * np.abs(values[:, complete]).max(axis=0), spread, np.inf)
    # All assignments of the models to the groups, or random ones if there are too many.
    permutations = require_positive_integer("permutations", test.permutations)
    n, k, rng = sizes[0], len(sizes), np.random.default_rng(test.seed)
    ways = factorial(k) ** n if test.paired else factorial(sum(sizes)) // prod(map(factorial, sizes))
    exhaustive, observed_labels = ways <= permutations, np.repeat(np.arange(k), sizes)
    if test.paired and exhaustive:
        labels = np.array([np.transpose(way).ravel() for way in product(orders(range(k)), repeat=n)])
    elif test.paired:
        groups = np.tile(np.arange(k), (permutations, n, 1))
        labels = rng.permuted(groups, axis=2).transpose(0, 2, 1).reshape(permutations, -1)
    elif exhaustive:
        labels = np.array(list(_divisions(sizes, tuple(range(sum(sizes))))))
    else:
        labels = rng.permuted(np.tile(observed_labels, (permutations, 1)), axis=1)
    p_value, adjusted = np.full((2, values.shape[1]), np.nan)
    if complete.size:
        observed = statistic(observed_labels[None], residuals, sizes)[0]
        portions = np.array_split(labels, -(-len(labels) * complete.size // _AT_ONCE))
        null = (statistic(portion, residuals, sizes) for portion in portions)
        p_value[complete], adjusted[complete] = permutation_p_values(observed, null, exhaustive)
    swaps = prod(factorial([*sizes].count(size)) for size in set(sizes))  # labels of equal groups swapped
    return p_value, adjusted, swaps / len(labels) if exhaustive else 1.0 / (len(labels) + 1)


def _centred(values: Columns, sizes: Sequence[int], paired: bool) -> Columns:
    """Subtract the mean, or that of each seed if row j of every group belongs to seed j."""
    if not paired:
        return values - values.mean(axis=0)
    cube = values.reshape(len(sizes), sizes[0], -1)
    return (cube - cube.mean(axis=0)).reshape(values.shape)


def _divisions(sizes: Sequence[int], free: tuple[int, ...], label: int = 0) -> Iterator[np.ndarray]:
    """Iterate over all divisions of the models into groups of these sizes, as a label for each model."""
    if label == len(sizes):
        yield np.empty(sum(sizes), dtype=int)
        return
    for members in combinations(free, sizes[label]):
        remaining = tuple(place for place in free if place not in members)
        for labels in _divisions(sizes, remaining, label + 1):
            labels[list(members)] = label
            yield labels


# The statistics are t² and F as shares of the total variation, t²/(t² + ν) and F/(F + ν₂/ν₁). They increase with t² and
# F in the same way in every column, lie between 0 and 1, and lose no digits where seeds hardly differ.


def _welch(labels: Labels, values: Columns, sizes: Sequence[int]) -> Permuted:
    """Share t²/(t² + ν) of Welch's t of two groups, with ν = n − 2."""
    moments = []
    for group, size in enumerate(sizes):
        members = (labels == group).astype(float)
        mean = members @ values / size
        moments.append((mean, np.maximum(members @ values**2 / size - mean**2, 0.0) / (size - 1)))
    (first_mean, first_error), (second_mean, second_error) = moments
    return _share((second_mean - first_mean) ** 2, (sum(sizes) - 2) * (first_error + second_error))


def _pair_t(labels: Labels, values: Columns, sizes: Sequence[int]) -> Permuted:
    """Share t²/(t² + ν) of the differences within pairs, with signs given by the labels and ν = n − 1."""
    d = values[sizes[0] :] - values[: sizes[0]]
    explained = (np.where(labels[:, : sizes[0]] == 0, 1.0, -1.0) @ d) ** 2 / sizes[0]
    return _share(explained, (d**2).sum(axis=0) - explained)


def _explained(labels: Labels, values: Columns, sizes: Sequence[int]) -> Permuted:
    sums = [((labels == group).astype(float) @ values) ** 2 / size for group, size in enumerate(sizes)]
    between = np.sum(sums, axis=0)
    return _share(between, (values**2).sum(axis=0) - between)


def _share(explained: np.ndarray, unexplained: np.ndarray) -> Permuted:
    total = explained + np.maximum(unexplained, 0.0)
    return explained / np.where(total > 0, total, 1.0)


def grouped_tables(
    models: Sequence[ComparedModel], groups: Groups, test: GroupTest, progress: Progress, warnings: list[str]
) -> dict[str, xr.Dataset]:
    """Make the tables of groups at the end, and under ``/along`` at each common step."""
    by_name = {model.name: model for model in models}
    members = [by_name[name] for names in groups.values() for name in names]
    runs = [model.trajectory for model in members if model.trajectory is not None]
    if len(runs) < len(members):
        if runs:
            warnings.append("groups are compared only at the end: not all of their models are trajectories")
        return _tables([[measures_of(model.scores)] for model in members], groups, test)
    steps_of_runs = [groups_of(run)["/heads"][STEP].values.tolist() for run in runs]
    steps = [step for step in steps_of_runs[0] if all(step in others for others in steps_of_runs)]
    advance = progress.bar("measuring", len(runs))
    along: list[list[Measures]] = []
    at_end: list[list[Measures]] = []
    for run in runs:
        departures = groups_of(run)["/departures"].transpose(STEP, "null", "layer", "head", ...)
        nulls, departed = departures["null"].values.tolist(), departures["omnibus_q_value"].sel({STEP: steps})
        of_run = []
        for step, by_null in zip(steps, departed.values, strict=True):
            measures = measures_of(scores_at(run, step))
            del measures["heads_departed"]  # for the first null; added below under its name
            for null, q_value in zip(nulls, by_null, strict=True):
                differs = (q_value < FOR_GOOD)[np.isfinite(q_value)]
                measures[f"heads_departed {null}"] = _reduced(np.mean, differs)
            of_run.append(measures)
        along.append(of_run)
        # exp ⟨ln(1 + step)⟩ − 1 of the departure for good; the last step scored of a head that has not departed
        tested, lasting = np.isfinite(departures["omnibus_q_value"].values[-1]), departures["lasting_step"].values
        logs = np.log1p(np.where(np.isnan(lasting), float(departures[STEP].values[-1]), lasting))
        last = {
            f"departure_step {null}": _reduced(lambda values: np.expm1(values.mean()), log[mask])
            for null, log, mask in zip(nulls, logs, tested, strict=True)
        }
        at_end.append([measures | last for measures in of_run[-1:]])
        advance(1)
    if any(steps_of_run != steps for steps_of_run in steps_of_runs):
        warnings.append(f"groups are compared at the {len(steps)} steps that all of their trajectories have")
        at_end = [[measures_of(model.scores)] for model in members]
    tables = _tables(at_end, groups, test)
    return tables | (_tables(along, groups, test, steps) if len(steps) > 1 else {})


def _tables(
    measured: Sequence[Sequence[Measures]], groups: Groups, test: GroupTest, steps: Sequence[int] = ()
) -> dict[str, xr.Dataset]:
    """Test the measures of each model, with p-values adjusted for all measures, and steps, together."""
    names = list(dict.fromkeys(name for row in measured for measures in row for name in measures))
    first_names = [name for start in HEADLINES for name in names if name == start or name.startswith(f"{start} ")]
    names = list(dict.fromkeys([*first_names, *names]))
    columns = [[measures.get(name, nan) for measures in row for name in names] for row in measured]
    values = np.array(columns)  # the columns run over (step and) measure
    sizes = [len(members) for members in groups.values()]
    rows = dict(zip(groups, np.split(np.arange(len(values)), np.cumsum(sizes)[:-1]), strict=True))
    contrasts = []
    for first, second in combinations(groups, 2):
        both, n_first, n_second = np.concatenate([rows[first], rows[second]]), len(groups[first]), len(groups[second])
        contrasts.append(
            contrast_of(values[both], (n_first, n_second), test)
            | {"paired": int(test.paired), "first_group": first, "second_group": second}
            | {"n_first": n_first, "n_second": n_second}
        )
    stacked = {name: np.stack([contrast[name] for contrast in contrasts]) for name in contrasts[0]}
    stacked["t_q_value"] = benjamini_hochberg(stacked["t_p_value"])
    headline = (np.arange(len(names)) < len(first_names)).astype(int)
    between = between_of(values, sizes, test) | {"n_models": sizes, "headline": headline}
    group_of = [group for group, members in groups.items() for _ in members]
    model_names = [name for members in groups.values() for name in members]
    parts: tuple[tuple[str, str, list[str], Mapping[str, Any]], ...] = (
        ("/members", "model", model_names, {"value": values, "group_of": group_of}),
        ("/between", "group", list(groups), between),
        ("/groups", "contrast", [" | ".join(pair) for pair in combinations(groups, 2)], stacked),
    )
    tables = {}
    for name, dim, labels, numbers in parts:
        path, variables = f"/along{name}" if steps else name, {}
        for variable, array in numbers.items():
            dims = COMPARISON_SCHEMA[path][variable].dims
            if STEP in dims:
                array = np.moveaxis(np.reshape(array, (*np.shape(array)[:-1], len(steps), -1)), -2, 0)
            variables[variable] = dims, array
        coordinates = {dim: labels, "measure": names} | ({STEP: list(steps)} if steps else {})
        tables[path] = xr.Dataset(variables, coordinates)
    return tables
