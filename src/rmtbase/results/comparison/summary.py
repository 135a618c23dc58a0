"""Summary of a comparison in words."""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite, isnan
from typing import Any

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.reasons import NotTestable, Reason
from rmtbase.results.comparison._two_models import LEVEL
from rmtbase.results.comparison.schema import COMPARISON_SCHEMA
from rmtbase.results.trajectory.report import between_checkpoints
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import rows_of
from rmtbase.words import counted, listing, of_tested

_MOST_PAIRS = 10  # up to which each pair has sentences of its own
_ANSWER, _FIRST = 4, 2  # most sentences of the answer; pairs that it names
_SHOWN = 8  # most measures that are named
_INTERVAL = ("difference", "standard_error", "interval_low", "interval_high")

Row = dict[str, Any]


def summarize_comparison(comparison: xr.DataTree) -> list[str]:
    """Summarize pairs, groups and all models together in sentences, each with its null; the answer comes first."""
    return [line for lines in answer_and_others(comparison) for line in lines]


def answer_and_others(comparison: xr.DataTree) -> tuple[list[str], list[str]]:
    """Return the sentences of the answer, by groups, pairs, and the nearest published models, and all others."""
    if "models" not in comparison.children:
        raise ParameterError("comparison", list(comparison.children), "a comparison, with a group models")
    groups = {name: node.to_dataset() for name, node in comparison.subtree_with_keys if node.data_vars}
    lines = {name: list(say(groups[name])) if name in groups else [] for name, say in _SENTENCES.items()}
    answer = [*(lines["between"] or lines["groups"])[:2], *lines["along/between"], *lines["pairs"][:2]]
    answer = ([*answer, *lines["components"][:_FIRST]] or lines["findings"])[:_ANSWER]
    return answer, [line for of_group in lines.values() for line in of_group if line not in answer]


def rows_in(groups: Mapping[str, xr.Dataset], name: str, *dims: str, along: Sequence[str] = ()) -> list[Row]:
    """Return the rows of a group of a comparison; none if it lacks the group."""
    return rows_of(groups[name], COMPARISON_SCHEMA[f"/{name}"], *dims, along=along) if name in groups else []


def _of_pairs(pairs: xr.Dataset) -> Iterator[str]:
    rows = rows_of(pairs, COMPARISON_SCHEMA["/pairs"], "pair", along=("statistic",))
    statistics = pairs["statistic"].values.tolist()
    if len(rows) > 1:
        farthest = [_farthest(row, statistics) if row["omnibus_q_value"] < LEVEL else ("", 0.0) for row in rows]
        differ = sorted((k for k, (words, _) in enumerate(farthest) if words), key=lambda k: -abs(farthest[k][1]))
        p_value = [row["alignment_p_value"] for row in rows]
        related = [
            k
            for k, row in enumerate(rows)
            if row["duplicate"] or row["reordered"] or (not row["alignment_reason"] and p_value[k] < LEVEL / len(rows))
        ]
        related.sort(key=lambda k: p_value[k] if isfinite(p_value[k]) else 0.0)
        untested = [row for k, row in enumerate(rows) if row["alignment_reason"] and k not in related]
        missing = [NotTestable(row["pair"], row["reason"]) for row in rows if isnan(row["omnibus_q_value"])]
        unknown = [NotTestable(row["pair"], row["alignment_reason"]) for row in untested]
        most = [f"{_names(rows[k])} ({farthest[k][0]})" for k in differ]
        clearest = [f"{_names(rows[k])}: {_origin(rows[k])}" for k in related]
        different = f"have heads that differ (q < {LEVEL:g} over all pairs)"
        copies = f"are copies or have a common origin (p < {LEVEL:g}/{len(rows)})"
        for predicate, label, named, out in (
            (different, "Most", most, missing),
            (copies, "Clearest", clearest, unknown),
        ):
            count = of_tested(len(named), len(rows) - len(out), out, "pair of models", predicate)
            yield f"{count}. {label}: {'; '.join(named[:_FIRST])}." if named else f"{count}."
        if len(rows) > _MOST_PAIRS:
            yield from (f"{_names(rows[k])}: {_origin(rows[k])}." for k in related[_FIRST:_MOST_PAIRS])
    for row in rows if len(rows) <= _MOST_PAIRS else []:
        names = _names(row)
        yield f"{names}: {_origin(row)}."
        if isnan(row["omnibus_q_value"]):
            yield f"{names}: whether their heads differ cannot be tested: {row['reason'].words}."
            continue
        differ = "cannot be told apart by their distances from random ones"
        if row["omnibus_q_value"] < LEVEL:
            differ = f"differ ({_farthest(row, statistics)[0]})"
        yield (
            f"{names}: their heads {differ}: p = {row['omnibus_p_value']:.2g}, q = {row['omnibus_q_value']:.2g} over "
            f"all pairs, {counted(row['n_units'], 'key head')} {'paired by place' if row['paired'] else 'pooled'}."
        )


def _names(pair: Row) -> str:
    return f"{pair['first']} and {pair['second']}"


def _origin(pair: Row) -> str:
    if pair["duplicate"]:
        return "duplicates: the same queries and keys, to the bit"
    if pair["reordered"]:
        return "the same heads, in another order: their eigenvalues agree to a part in a thousand"
    if pair["alignment_reason"]:
        return f"a common origin cannot be tested: {pair['alignment_reason'].words}"
    numbers = f"r = {pair['alignment']:.3f} (p = {pair['alignment_p_value']:.2g})"
    if pair["alignment_p_value"] < LEVEL:
        return f"of common origin: heads of equal place are alike, {numbers}"
    return f"a common origin is not shown: {numbers}"


def _farthest(pair: Row, statistics: Sequence[str]) -> tuple[str, float]:
    """Describe the statistic with the smallest p-value, of equal ones that with the largest difference."""
    p_value, difference = np.array(pair["adjusted_p_value"]), np.array(pair["difference"])
    at = int(np.argmax(np.where(p_value == np.nanmin(p_value), np.abs(difference), -1.0)))
    name, side = SPECTRAL_STATISTICS[statistics[at]].long_name, "higher" if difference[at] > 0 else "lower"
    size = f"{abs(difference[at]):.3g} standard deviations of random heads"
    return f"{name} {size} {side} in {pair['second']}", float(difference[at])


def _too_few(p_value: float) -> str:
    return f"so few models cannot differ at 5 %; the smallest possible p is {p_value:.2g}."


def _of_all_groups(between: xr.Dataset) -> Iterator[str]:
    groups = zip(between["group"].values, between["n_models"].values, strict=True)
    sizes, smallest = ", ".join(f"{name} ({n})" for name, n in groups), between["smallest_p_value"].item()
    if between.sizes["group"] < 3:
        return
    if smallest >= LEVEL:
        yield f"Between {between.sizes['group']} groups, {sizes}: {_too_few(smallest)}"
        return
    p_value = between["adjusted_p_value"].values
    differ = between["measure"].values[p_value < LEVEL].tolist()
    tested = int(np.isfinite(p_value).sum())
    names = f" ({listing(differ, _SHOWN)})" if differ else ""
    missing = between.sizes["measure"] - tested
    untested = f" {missing} more cannot be tested: {Reason('missing_values').words}." if missing else ""
    yield (
        f"Between {between.sizes['group']} groups, {sizes}: {len(differ)} of {tested} measures differ{names} by more "
        "than seeds do: F test with models put into groups at random, adjusted for all measures "
        f"(p < {LEVEL:g}; the smallest possible is {smallest:.2g}).{untested}"
    )


def _of_groups(groups: xr.Dataset) -> Iterator[str]:
    few: dict[float, list[str]] = {}
    measures = groups["measure"].values
    for row in rows_of(groups, COMPARISON_SCHEMA["/groups"], "contrast", along=("measure",)):
        names = f"{row['first_group']} ({row['n_first']}) against {row['second_group']} ({row['n_second']})"
        p_value, smallest = np.array(row["adjusted_p_value"]), row["smallest_p_value"]
        tested = int(np.isfinite(p_value).sum())
        if not tested:
            yield f"{names}: no measure can be tested: none has a value for every model."
            continue
        differ, n_exact = np.flatnonzero(np.array(row["t_q_value"]) < LEVEL), int((p_value < LEVEL).sum())
        first = []
        for k in differ[:3].tolist():
            difference, error, low, high = (row[name][k] for name in _INTERVAL)
            interval = "" if isnan(low) else f" (95 % {low:+.3g} to {high:+.3g})"
            first.append(f"{measures[k]} {difference:+.3g} ± {error:.2g}{interval}")
        if first:
            by_t = f"by t, q < {LEVEL:g} over all groups and measures"
            yield f"{names}: {differ.size} of {tested} measures differ ({by_t}): {'; '.join(first)}."
        if smallest >= LEVEL:
            few.setdefault(smallest, []).append(names)
        elif n_exact or not differ.size:
            count = f"{counted(n_exact, 'measure')} differ{'s' * (n_exact == 1)}" if n_exact else "no measure differs"
            least = f"smallest p {np.nanmin(p_value):.2g}"
            yield f"{names}: {count} by permutation, adjusted for all of them ({least})."
    for smallest, pairs in few.items():
        yield (
            f"{', '.join(pairs)}: so few models cannot differ at 5 % whatever the law of their numbers; the smallest "
            f"possible p is {smallest:.2g}."
        )


def _of_steps(between: xr.Dataset) -> Iterator[str]:
    smallest, steps = between["smallest_p_value"].item(), between["step"].values.tolist()
    if smallest >= LEVEL:
        yield f"Along {len(steps)} steps: {_too_few(smallest)}"
        return
    p_value = between["adjusted_p_value"].transpose("step", "measure").values
    when = []
    for k in np.flatnonzero(between["headline"].values == 1).tolist():
        lasting = np.logical_and.accumulate((p_value[:, k] < LEVEL)[::-1])[::-1]
        if lasting.any():
            stays = np.flatnonzero(p_value[:, k] >= LEVEL)
            before = steps[stays[-1]] if stays.size else None
            name = between["measure"].values[k]
            when.append(f"{name} {between_checkpoints(before, steps[int(np.argmax(lasting))], steps[0])}")
    tested = int(np.isfinite(p_value[0]).sum())
    at_start = f"they differ in {int((p_value[0] < LEVEL).sum())} of {tested} measures"
    yield (
        f"Along {len(steps)} steps, adjusted for all of them and all measures: groups came to differ to the end in "
        f"{', '.join(when) if when else 'none of the measures that are shown first'}; at step {steps[0]} "
        f"{at_start if tested else 'no measure can be tested'}."
    )


def _of_components(components: xr.Dataset) -> Iterator[str]:
    if "nearest_q_value" not in components:
        return
    rows = rows_of(components, COMPARISON_SCHEMA["/components"], "model", "component")
    for name in components["model"].values.tolist():
        tested = [row for row in rows if row["model"] == name and isfinite(row["nearest_p_value"])]
        if not tested:
            yield f"{name}: none of its components can be compared with a published one."
            continue
        nearer = [row for row in tested if row["nearest_q_value"] < LEVEL]
        row = min(nearer or tested, key=lambda row: row["nearest_distance"])
        yield (
            f"{name}: {len(nearer) or 'none'} of {len(tested)} components lie nearer to a published one than untrained "
            f"matrices of their sizes and σ do (q < {LEVEL:g} over all models and components); "
            f"{'of these ' if nearer else ''}the nearest is {row['component']}, to that of {row['nearest_model']}: "
            f"distance {row['nearest_distance']:.2g}, of untrained matrices {row['nearest_random_median']:.2g}; "
            f"{row['nearest_between_published']:.0%} of the published models have another one as near."
        )


_OF_ALL = {
    "band_low": "The models' median shapes k of the Transmission Class lie from {band_low:.4g} to {band_high:.4g}, CV "
    "{band_variation_percent:.2g} %; untrained matrices of these sizes have a CV of {band_null_variation_percent:.2g} "
    "% on average and in 95 % of cases under {band_null_variation_95_percent:.2g} % (p = {band_p_value:.2g}).",
    "scale_law_slope": "λ against √(η/λ_wd): slope through the origin {scale_law_slope:.3g}, R² about the mean "
    "{scale_law_r_squared:.2g}; r = {scale_law_correlation:.2g} (p = {scale_law_p_value:.2g}), with the "
    "intercept {scale_law_intercept:.3g}{scale_law_intercept_error}; "
    "exponent {scale_law_exponent:.2g}{scale_law_exponent_error}.",
    "paired_growth_built_in": "ln λ of attention_output and mlp_out: r = {paired_growth_correlation:.3g}, of which "
    "{paired_growth_built_in:.2g} is built in by what they share before training ({paired_growth_n_initial} of the "
    "models; 95 % of random pairings of the others under {paired_growth_built_in_95:.2g}; p = "
    "{paired_growth_p_value:.2g}).",
}
"""Sentence about each finding that has a variable."""


def _of_all(findings: xr.Dataset) -> Iterator[str]:
    values = {str(name): value.item() for name, value in findings.data_vars.items()}
    values |= {f"{name}_percent": 100.0 * value for name, value in values.items() if name.startswith("band_")}
    for name in ("scale_law_intercept_error", "scale_law_exponent_error"):
        error = values.get(name, np.nan)
        values[name] = " (no error with so few models)" if isnan(error) else f" ± {error:.2g}"
    for variable, sentence in _OF_ALL.items():
        if variable in values:
            yield sentence.format(**values)


_SENTENCES = {
    "between": _of_all_groups,
    "groups": _of_groups,
    "along/between": _of_steps,
    "pairs": _of_pairs,
    "components": _of_components,
    "findings": _of_all,
}


def not_testable_of(comparison: xr.DataTree) -> list[NotTestable]:
    """List the tests that could not be made."""
    groups = {name: node.to_dataset() for name, node in comparison.subtree_with_keys if node.data_vars}
    untested = []
    for row in rows_in(groups, "models", "model"):
        if row["n_untested_heads"]:
            place = f"{row['model']}: {counted(row['n_untested_heads'], 'head')}"
            untested.append(NotTestable(place, Reason("heads_in_scores")))
    for row in rows_in(groups, "components", "model", "component"):
        if missing := row["n_matrices"] - row["n_tested"]:
            place = f"{row['model']}: {missing} {row['component']}"
            untested.append(NotTestable(place, Reason("matrices_in_scores")))
    for test, name in (("common origin", "alignment_reason"), ("heads", "reason")):
        pairs = rows_in(groups, "pairs", "pair")
        untested += [NotTestable(f"{row['pair']}: {test}", row[name]) for row in pairs if row[name]]
    for row in rows_in(groups, "groups", "contrast", along=("measure",)):
        if row["smallest_p_value"] >= LEVEL:
            reason = Reason("few_models", {"p_value": row["smallest_p_value"]})
            untested.append(NotTestable(f"{row['contrast']}: every measure by permutation", reason))
        names = groups["groups"]["measure"].values[np.isnan(row["adjusted_p_value"])].tolist()
        untested += [NotTestable(f"{row['contrast']}: {name}", Reason("missing_values")) for name in names]
    return untested
