"""Summary of a comparison in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.results.comparison._common_origin import CommonOrigin
from rmtbase.results.trajectory.summary import between_checkpoints
from rmtbase.shown import shown
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import NotTestable, headline, recorded

_LEVEL = 0.05
_MOST_PAIRS = 10  # up to which each pair has sentences of its own
_ANSWER, _FIRST = 4, 2  # most sentences of the answer; pairs that it names
_SHOWN = 8  # most measures that are named


def summarize_comparison(comparison: xr.DataTree) -> list[str]:
    """Summarize pairs, groups and all models together in sentences, each with its null; the answer comes first."""
    answer, rest = answer_and_rest(comparison)
    return answer + rest


def answer_and_rest(comparison: xr.DataTree) -> tuple[list[str], list[str]]:
    """Return the sentences of the answer, and all others.

    The answer says how many groups or pairs differ and which most, and what is nearest to published models.
    """
    if "models" not in comparison.children:
        raise ParameterError("comparison", list(comparison.children), "a comparison, with a group models")
    held = {name: node.to_dataset() for name, node in comparison.subtree_with_keys if node.data_vars}
    each = {name: list(of(held[name])) if name in held else [] for name, of in _SENTENCES.items()}
    first = [*(each["between"] or each["groups"])[:2], *each["along/between"], *each["pairs"][:2]]
    first = [*first, *each["components"][:_FIRST]] or each["findings"]
    answer = first[:_ANSWER]
    return answer, [line for lines in each.values() for line in lines if line not in answer]


def _of_pairs(pairs: xr.Dataset) -> Iterator[str]:
    each = [pairs.isel(pair=place) for place in range(pairs.sizes["pair"])]
    if len(each) > 1:
        yield from _of_several_pairs(each)
    for one in each if len(each) <= _MOST_PAIRS else []:
        names = _names(one)
        yield f"{names}: {_origin(one).words}."
        p, q = one["omnibus_p_value"].item(), one["omnibus_q_value"].item()
        if np.isnan(q):
            yield f"{names}: whether their heads differ cannot be tested: {recorded(one['reason'].item())}."
            continue
        differ = (
            f"differ ({_farthest(one)[0]})"
            if q < _LEVEL
            else "cannot be told apart by their distances from random ones"
        )
        how = "paired by place" if one["paired"].item() else "pooled"
        numbers = f"p = {p:.2g}, q = {q:.2g} over all pairs, {one['n_units'].item()} key heads {how}"
        yield f"{names}: their heads {differ}: {numbers}."


def _of_several_pairs(each: Sequence[xr.Dataset]) -> Iterator[str]:
    """Count the pairs whose heads differ, and those that are copies or have a common origin, and name the clearest."""
    origins = [_origin(one) for one in each]
    alike = [
        k
        for k, origin in enumerate(origins)
        if origin.duplicate or origin.reordered or (not origin.reason and origin.p_value < _LEVEL / len(each))
    ]
    alike.sort(key=lambda k: origins[k].p_value if np.isfinite(origins[k].p_value) else 0.0)
    q = np.array([one["omnibus_q_value"].item() for one in each])
    differ = sorted(np.flatnonzero(q < _LEVEL).tolist(), key=lambda k: -abs(_farthest(each[k])[1]))
    tests = {
        f"have heads that differ (q < {_LEVEL:g} over all pairs)": (
            "Most",
            [f"{_names(each[k])} ({_farthest(each[k])[0]})" for k in differ],
            [(k, recorded(each[k]["reason"].item())) for k in np.flatnonzero(np.isnan(q)).tolist()],
        ),
        f"are copies or have a common origin (p < {_LEVEL:g}/{len(each)})": (
            "Clearest",
            [f"{_names(each[k])}: {origins[k].words}" for k in alike],
            [(k, origins[k].reason) for k in range(len(each)) if k not in alike and origins[k].reason],
        ),
    }
    for words, (first, found, untested) in tests.items():
        left_out = [NotTestable(str(each[k]["pair"].item()), reason) for k, reason in untested]
        count = headline(len(found), len(each) - len(left_out), left_out, "pair of models", words)
        yield " ".join([f"{count}.", *([f"{first}: {'; '.join(found[:_FIRST])}."] if found else [])])
    if len(each) > _MOST_PAIRS:
        yield from (f"{_names(each[k])}: {origins[k].words}." for k in alike[_FIRST:_MOST_PAIRS])


def _names(pair: xr.Dataset) -> str:
    return f"{pair['first'].item()} and {pair['second'].item()}"


def _origin(pair: xr.Dataset) -> CommonOrigin:
    reordered = "reordered" in pair and bool(pair["reordered"].item())
    alignment, p_value = (pair[name].item() for name in ("alignment", "alignment_p_value"))
    reason = str(pair["alignment_reason"].item())
    if np.isnan(alignment):
        reason = recorded(reason)
    return CommonOrigin(bool(pair["duplicate"].item()), alignment, p_value, reordered, reason)


def _farthest(pair: xr.Dataset) -> tuple[str, float]:
    """Name the statistic with the smallest p-value, of equal ones that with the largest difference; and return that."""
    p, difference = pair["adjusted_p_value"].values, pair["difference"].values
    finite = np.flatnonzero(np.isfinite(p))
    least = finite[p[finite] == p[finite].min()]
    at = least[np.argmax(np.abs(difference[least]))]
    how = "higher" if difference[at] > 0 else "lower"
    name = str(pair["statistic"].values[at])
    known = SPECTRAL_STATISTICS.get(name)  # None in a file by a later version
    words = f"{known.long_name if known else shown(name)} {abs(difference[at]):.3g} standard deviations of random heads"
    return f"{words} {how} in {pair['second'].item()}", float(difference[at])


def _of_all_groups(between: xr.Dataset) -> Iterator[str]:
    if between.sizes["group"] < 3:
        return
    of = " ".join(f"{name} ({n})" for name, n in zip(between["group"].values, between["n_models"].values, strict=True))
    p = between["adjusted_p_value"].values
    differ = between["measure"].values[p < _LEVEL].tolist()
    known = int(np.isfinite(p).sum())
    begin = (
        f"Between {between.sizes['group']} groups, {of.replace(') ', '), ')}: {len(differ)} of {known} measures differ"
    )
    smallest = between["smallest_p_value"].item()
    if smallest >= _LEVEL:
        yield (
            f"Between {between.sizes['group']} groups, {of.replace(') ', '), ')}: so few models cannot differ at 5 %; "
            f"the smallest possible p is {smallest:.2g}."
        )
        return
    further = ", …" if len(differ) > _SHOWN else ""
    names = f" ({', '.join(differ[:_SHOWN])}{further})" if differ else ""
    lacking = between.sizes["measure"] - known
    untested = f" {lacking} more cannot be tested: not all models have a value." if lacking else ""
    yield (
        f"{begin}{names} by more than seeds do: F test with models put into groups at random, adjusted for all "
        f"measures (p < {_LEVEL:g}; the smallest possible is {smallest:.2g}).{untested}"
    )


def _of_groups(groups: xr.Dataset) -> Iterator[str]:
    """Sentences about the measures that differ between each pair of groups, by t if available and by permutation."""
    by_t = "t_q_value" in groups
    few: dict[float, list[str]] = {}
    counted = (("first_group", "n_first"), ("second_group", "n_second"))
    for place in range(groups.sizes["contrast"]):
        one = groups.isel(contrast=place)
        names = " against ".join(f"{one[name].item()} ({one[size].item()})" for name, size in counted)
        p, floor = one["adjusted_p_value"].values, one["smallest_p_value"].item()
        measures = one["measure"].values
        if not np.isfinite(p).any():
            yield f"{names}: no measure can be tested: none has a value for every model."
            continue
        exact = measures[p < _LEVEL].tolist()
        differ = measures[one["t_q_value"].values < _LEVEL].tolist() if by_t else exact
        if differ:
            shown = "; ".join(_difference(one.sel(measure=name)) for name in differ[:3])
            how = f"by t, q < {_LEVEL:g} over all groups and measures" if by_t else "by permutation"
            yield f"{names}: {len(differ)} of {int(np.isfinite(p).sum())} measures differ ({how}): {shown}."
        if floor >= _LEVEL:
            few.setdefault(floor, []).append(names)
        elif exact or not differ:
            found = f"{len(exact)} measures differ" if exact else "no measure differs"
            least = np.nanmin(p) if np.isfinite(p).any() else float("nan")
            yield f"{names}: {found} by permutation, adjusted for all of them (smallest p {least:.2g})."
    for floor, pairs in few.items():
        yield (
            f"{', '.join(pairs)}: so few models cannot differ at 5 % whatever the law of their numbers; the smallest "
            f"possible p is {floor:.2g}."
        )


def _difference(one: xr.Dataset) -> str:
    """Format a measure with its difference, error and interval."""
    interval = ""
    if "interval_low" in one and np.isfinite(one["interval_low"].item()):
        interval = f" (95 % {one['interval_low'].item():+.3g} to {one['interval_high'].item():+.3g})"
    return f"{one['measure'].item()} {one['difference'].item():+.3g} ± {one['standard_error'].item():.2g}{interval}"


def _of_steps(between: xr.Dataset) -> Iterator[str]:
    """Sentence about the steps between which groups came to differ to the end, for the headline measures."""
    smallest = between["smallest_p_value"].item()
    if smallest >= _LEVEL:
        yield (
            f"Along {between.sizes['step']} steps: so few models cannot differ at 5 %; the smallest possible p is "
            f"{smallest:.2g}."
        )
        return
    steps, names = between["step"].values.tolist(), between["measure"].values[between["headline"].values == 1].tolist()
    p_value = between["adjusted_p_value"].transpose("step", "measure")
    headlines = p_value.sel(measure=names).values
    for_good = np.logical_and.accumulate((headlines < _LEVEL)[::-1])[::-1]
    when = []
    for name, column, p in zip(names, for_good.T, headlines.T, strict=True):
        if column.any():
            stays = np.flatnonzero(p >= _LEVEL)
            before = steps[stays[-1]] if stays.size else None
            when.append(f"{name} {between_checkpoints(before, steps[int(np.argmax(column))], steps[0])}")
    at_start = p_value.values[0]
    tested = int(np.isfinite(at_start).sum())
    begin = (
        f"at step {steps[0]} they differ in {int((at_start < _LEVEL).sum())} of {tested} measures"
        if tested
        else f"at step {steps[0]} no measure can be tested"
    )
    yield (
        f"Along {len(steps)} steps, adjusted for all of them and all measures: groups came to differ to the end in "
        f"{', '.join(when) if when else 'none of the measures that are shown first'}; {begin}."
    )


def _of_components(components: xr.Dataset) -> Iterator[str]:
    """Sentence about the nearest published components of each model, with how near untrained matrices come."""
    if "nearest_q_value" not in components:
        return
    for name in components["model"].values.tolist():
        own = components.sel(model=name)
        tested = own.isel(component=np.isfinite(own["nearest_p_value"].values))
        if not tested.sizes["component"]:
            yield f"{name}: none of its components can be compared with a published one."
            continue
        nearer = tested.isel(component=tested["nearest_q_value"].values < _LEVEL)
        named = nearer if nearer.sizes["component"] else tested
        one = named.isel(component=int(named["nearest_distance"].values.argmin()))
        count = f"{nearer.sizes['component'] or 'none'} of {tested.sizes['component']}"
        yield (
            f"{name}: {count} components lie nearer to a published one than untrained matrices of their sizes and σ do "
            f"(q < {_LEVEL:g} over all models and components); {'of these ' if nearer.sizes['component'] else ''}"
            f"the nearest is {one['component'].item()}, to that of {one['nearest_model'].item()}: distance "
            f"{one['nearest_distance'].item():.2g}, of untrained matrices {one['nearest_random_median'].item():.2g}; "
            f"{one['nearest_between_published'].item():.0%} of the published models have another one as near."
        )


def _error(value: float) -> str:
    return " (no error with so few models)" if np.isnan(value) else f" ± {value:.2g}"


def _of_all(findings: xr.Dataset) -> Iterator[str]:
    value = {str(name): one.item() for name, one in findings.data_vars.items()}
    if "band_variation" in value:
        yield (
            f"The models' median shapes k of the Transmission Class lie from {value['band_low']:.4g} to "
            f"{value['band_high']:.4g}, CV {100 * value['band_variation']:.2g} %; untrained matrices of these sizes "
            f"have a CV of {100 * value['band_null_variation']:.2g} % on average and in 95 % of cases under "
            f"{100 * value['band_null_variation_95']:.2g} % (p = {value['band_p_value']:.2g})."
        )
    if "scale_law_slope" in value:
        yield (
            f"λ against √(η/λ_wd): slope through the origin {value['scale_law_slope']:.3g}, R² about the mean "
            f"{value['scale_law_r_squared']:.2g}; r = {value['scale_law_correlation']:.2g} (p = "
            f"{value['scale_law_p_value']:.2g}), with the intercept {value['scale_law_intercept']:.3g}"
            f"{_error(value['scale_law_intercept_error'])}; exponent {value['scale_law_exponent']:.2g}"
            f"{_error(value['scale_law_exponent_error'])}."
        )
    if "paired_growth_correlation" in value:
        yield (
            f"ln λ of attention_output and mlp_out: r = {value['paired_growth_correlation']:.3g}, of which "
            f"{value['paired_growth_built_in']:.2g} is built in by what they share before training ("
            f"{value['paired_growth_n_initial']} of the models; 95 % of random pairings of the others under "
            f"{value['paired_growth_built_in_95']:.2g}; p = {value['paired_growth_p_value']:.2g})."
        )


_SENTENCES = {
    "between": _of_all_groups,
    "groups": _of_groups,
    "along/between": _of_steps,
    "pairs": _of_pairs,
    "components": _of_components,
    "findings": _of_all,
}


def not_testable_of(comparison: xr.DataTree) -> list[NotTestable]:
    """List the tests of a comparison that could not be made, each with its reason."""
    held = {name: node.to_dataset() for name, node in comparison.subtree_with_keys if node.data_vars}
    return [one for name, of in _NOT_TESTABLE.items() if name in held for one in of(held[name])]


def _heads_left_out(models: xr.Dataset) -> Iterator[NotTestable]:
    for name, count in zip(models["model"].values.tolist(), models["n_untested_heads"].values.tolist(), strict=True):
        if count:
            yield NotTestable(f"{name}: {count} heads", "their scores have no p-value; the scores file says why")


def _matrices_left_out(components: xr.Dataset) -> Iterator[NotTestable]:
    lacking = (components["n_matrices"] - components["n_tested"]).transpose("model", "component")
    for row, column in np.argwhere(lacking.values > 0).tolist():
        model, component = components["model"].values[row], components["component"].values[column]
        yield NotTestable(
            f"{model}: {int(lacking[row, column])} {component}",
            "no Weibull law can be fitted; the scores file says why",
        )


def _pairs_left_out(pairs: xr.Dataset) -> Iterator[NotTestable]:
    for what, variable in (("common origin", "alignment_reason"), ("heads", "reason")):
        for name, reason in zip(pairs["pair"].values.tolist(), pairs[variable].values.tolist(), strict=True):
            if reason:
                yield NotTestable(f"{name}: {what}", str(reason))


def _measures_left_out(groups: xr.Dataset) -> Iterator[NotTestable]:
    for contrast in groups["contrast"].values.tolist():
        one = groups.sel(contrast=contrast)
        smallest = one["smallest_p_value"].item()
        if smallest >= _LEVEL:
            reason = f"so few models give no p-value below {smallest:.2g}"
            yield NotTestable(f"{contrast}: every measure by permutation", reason)
        for name in one["measure"].values[np.isnan(one["adjusted_p_value"].values)].tolist():
            yield NotTestable(f"{contrast}: {name}", "not all models have a value")


_NOT_TESTABLE = {
    "models": _heads_left_out,
    "components": _matrices_left_out,
    "pairs": _pairs_left_out,
    "groups": _measures_left_out,
}
