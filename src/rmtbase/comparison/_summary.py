"""What a comparison says, in words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr

from rmtbase.comparison._common_origin import CommonOrigin
from rmtbase.errors import ParameterError

_LEVEL = 0.05


def summarize_comparison(comparison: xr.DataTree) -> list[str]:
    """Plain sentences: of every two models, of groups, and of all together, each with the null beside it.

    Raises:
        ParameterError: it is no comparison.
    """
    if "models" not in comparison.children:
        raise ParameterError("comparison", list(comparison.children), "a comparison, with a group models")
    held = {name: node.to_dataset() for name, node in comparison.children.items()}
    return [line for name, of in _SENTENCES.items() if name in held for line in of(held[name])]


def _of_pairs(pairs: xr.Dataset) -> Iterator[str]:
    for place in range(pairs.sizes["pair"]):
        one = pairs.isel(pair=place)
        names = f"{one['first'].item()} and {one['second'].item()}"
        origin = CommonOrigin(bool(one["duplicate"].item()), one["alignment"].item(), one["alignment_p_value"].item())
        yield f"{names}: {origin.words}."
        p, q = one["omnibus_p_value"].item(), one["omnibus_q_value"].item()
        if np.isnan(p):
            continue
        differ = f"differ ({_farthest(one)})" if q < _LEVEL else "cannot be told apart by their distances from the null"
        how = "paired by place" if one["paired"].item() else "pooled"
        numbers = f"p = {p:.2g}, q = {q:.2g} over all pairs, {one['n_units'].item()} key heads {how}"
        yield f"{names}: their heads {differ}: {numbers}."


def _farthest(pair: xr.Dataset) -> str:
    """The statistic with the smallest p-value, and of these with the largest difference."""
    p, difference = pair["adjusted_p_value"].values, pair["difference"].values
    known = np.flatnonzero(np.isfinite(p))
    least = known[p[known] == p[known].min()]
    at = least[np.argmax(np.abs(difference[least]))]
    return f"{pair['statistic'].values[at]} by {difference[at]:+.3g} standard deviations of the null"


def _of_groups(groups: xr.Dataset) -> Iterator[str]:
    for place in range(groups.sizes["contrast"]):
        one = groups.isel(contrast=place)
        names = " against ".join(f"{one[name].item()} ({one[size].item()})" for name, size in _GROUPS)
        p, floor = one["adjusted_p_value"].values, one["smallest_p_value"].item()
        differ = [str(name) for name, value in zip(one["measure"].values, p, strict=True) if value < _LEVEL]
        if differ:
            yield f"{names}: they differ in {', '.join(differ)}."
        elif floor >= _LEVEL:
            yield f"{names}: so few models cannot differ at 5 %; the smallest p that there can be is {floor:.2g}."
        else:
            yield f"{names}: no measure differs, adjusted for all of them (smallest p {np.nanmin(p):.2g})."


_GROUPS = (("first_group", "n_first"), ("second_group", "n_second"))


def _of_all(findings: xr.Dataset) -> Iterator[str]:
    value = {str(name): one.item() for name, one in findings.data_vars.items()}
    if "band_variation" in value:
        yield (
            f"The models' median shapes k of the Transmission Class lie from {value['band_low']:.4g} to "
            f"{value['band_high']:.4g}, CV {100 * value['band_variation']:.2g} %; of untrained matrices of these sizes "
            f"{100 * value['band_null_variation']:.2g} % on average, 95 % of them under "
            f"{100 * value['band_null_variation_95']:.2g} % (p = {value['band_p_value']:.2g})."
        )
    if "scale_law_slope" in value:
        yield (
            f"λ against √(η/λ_wd): slope through the origin {value['scale_law_slope']:.3g}, R² about the mean "
            f"{value['scale_law_r_squared']:.2g}; r = {value['scale_law_correlation']:.2g} (p = "
            f"{value['scale_law_p_value']:.2g}), which has the intercept {value['scale_law_intercept']:.3g} ± "
            f"{value['scale_law_intercept_error']:.2g}; exponent {value['scale_law_exponent']:.2g} ± "
            f"{value['scale_law_exponent_error']:.2g}."
        )
    if "paired_growth_correlation" in value:
        yield (
            f"ln λ of attention_output and mlp_out: r = {value['paired_growth_correlation']:.3g}, of which "
            f"{value['paired_growth_built_in']:.2g} is built in by what they share before training ("
            f"{value['paired_growth_n_initial']} of the models; 95 % of random pairings of the others under "
            f"{value['paired_growth_built_in_95']:.2g}; p = {value['paired_growth_p_value']:.2g})."
        )


_SENTENCES = {"pairs": _of_pairs, "groups": _of_groups, "findings": _of_all}
