"""Declaration of a file of signal and noise: its variables, codes and checks."""

from collections.abc import Mapping

import xarray as xr

from rmtbase.results.scores.schema import OF_HEADS
from rmtbase.shown import quoted
from rmtbase.tables import CIRCUITS, EVERY_FILE, Fault, Kind, Schema, Variable, domain, register

CANDIDATES = ("noise", "spikes", "power_law", "depth")  # for a spectrum, in the order of every axis of candidates

VERDICTS = {
    "noise": "noise",
    "spikes": "spikes",
    "power_law": "power law",
    "depth": "effective depth",
    "undecided": "not told apart",
    "neither": "none of them",
}
"""Verdicts on a spectrum and their words: one of the candidates, several of them, or none."""

# codes of the reasons why a spectrum with directions has no number of them, and why a learned share has no bound
TOO_FEW_LEFT, ALL_OF_THE_NORM, ZEROS_LEFT, NO_LAW_LEFT = "too_few_left", "all_of_the_norm", "zeros_left", "no_law_left"
NO_NUMBER = (TOO_FEW_LEFT, ALL_OF_THE_NORM, ZEROS_LEFT, NO_LAW_LEFT)
WITHIN_CHANCE = "within_chance"
NO_BOUND = (
    WITHIN_CHANCE, "product", "whole_matrix", "dependent_entries", "signs_not_random", "too_few_axes", "contradiction"
)  # fmt: skip

NEED_A_LAW = (
    "strength_low", "strength_high", "rest_p_value", "noise_floor", "noise_scale_std", "detectable_strength"
)  # fmt: skip
"""Variables that are NaN with sign flips: the scatter of eigenvalues and the test of the rest need a law."""

_NO_NUMBER, _NO_BOUND, _VERDICT = (
    domain.Domain("a code, or empty", kinds="OUT", choices=("", *codes)) for codes in (NO_NUMBER, NO_BOUND, VERDICTS)
)

OF_SPECTRUM: dict[str, tuple[str, domain.Domain]] = {
    "n_directions": ("learned directions: at least this number, at confidence 1 - level", domain.COUNT_OR_NAN),
    "first_p_value": ("p-value of no learned direction at all", domain.PROBABILITY),
    "next_p_value": ("p-value of no further direction; the last that was tested", domain.PROBABILITY),
    "rest_p_value": ("p-value of the other eigenvalues being those of noise", domain.PROBABILITY),
    "noise_floor": ("1 where the rest is noise; 0 where it is not, or too few are left", domain.FLAG_OR_NAN),
    "sigma": ("product of the factors' standard deviations, if W were only noise", domain.NON_NEGATIVE_OR_NAN),
    "noise_scale": ("product of the factors' standard deviations, of the noise only", domain.POSITIVE_OR_NAN),
    "noise_scale_std": ("standard error of noise_scale", domain.POSITIVE_OR_NAN),
    "threshold": ("strength beyond which a further direction leaves the bulk", domain.POSITIVE_OR_NAN),
    "detectable_strength": ("strength found with probability 1 - level", domain.POSITIVE_OR_NAN),
    "signal_share": ("learned share of the squared norm, in the directions found", domain.PROBABILITY),
    "raw_share": ("share of the squared norm in the directions found, noise included", domain.PROBABILITY),
    "expected_error": ("expected squared error of the shrunken signal", domain.NON_NEGATIVE_OR_NAN),
    "learned_share_bound": ("lower bound on the learned share of the matrix, rows at one norm", domain.PROBABILITY),
    "reason": ("why no test could be made, or why n_directions is not known; empty elsewhere", domain.REASON),
    "no_number": ("why n_directions is not known although directions were found; else empty", _NO_NUMBER),
    "no_bound": ("why there is no learned_share_bound; empty where there is one", _NO_BOUND),
}
"""Variables of each spectrum: long name and domain. Strengths and scales are in the units of the product W."""

OF_DIRECTION: dict[str, tuple[str, domain.Domain]] = {
    "p_value": ("p-value of no more directions than those before it", domain.PROBABILITY),
    "strength": ("singular value of the direction's part of the signal", domain.POSITIVE_OR_NAN),
    "strength_low": (
        "lower confidence limit of the mean strength, over the noise of the other factors", domain.NON_NEGATIVE_OR_NAN
    ),
    "strength_high": (
        "upper confidence limit of the mean strength, over the noise of the other factors", domain.POSITIVE_OR_NAN
    ),
    "overlap_left": ("squared cosine with the direction, where written", domain.PROBABILITY),
    "overlap_right": ("squared cosine with the direction, where read", domain.PROBABILITY),
    "shrunken": ("singular value that brings W nearest to the signal", domain.NON_NEGATIVE_OR_NAN),
}  # fmt: skip
"""Variables of each direction, NaN where there is no such direction or the number is not known."""

OF_TAIL: dict[str, tuple[str, domain.Domain]] = {
    "power_law_exponent": (
        "exponent of the power law fitted to the eigenvalues, at the best x_min",
        domain.POSITIVE_OR_NAN,
    ),
    "power_law_tail": ("number of eigenvalues from that x_min on", domain.SIZE_OR_NAN),
    "exponent_p_value": ("p-value of an exponent as small in noise", domain.PROBABILITY),
    "exponent_goodness": ("p-value of the power law, for independent values", domain.PROBABILITY),
    "null_exponent": ("median of the fitted exponents of noise", domain.POSITIVE_OR_NAN),
    "null_exponent_low": ("2.5 % quantile of the fitted exponents of noise", domain.POSITIVE_OR_NAN),
    "null_exponent_high": ("97.5 % quantile of the fitted exponents of noise", domain.POSITIVE_OR_NAN),
    "path_depth": ("depth of the likeliest residual path", domain.SIZE_OR_NAN),
    **{
        f"{name}_p_value": (f"p-value of {VERDICTS[name]}, by its own draws", domain.PROBABILITY) for name in CANDIDATES
    },
    **{
        f"{name}_log_likelihood": (f"log-likelihood of {VERDICTS[name]}, with Schwarz's penalty", domain.ANY)
        for name in CANDIDATES
    },
    "tail_verdict": ("verdict on the spectrum, by one likelihood of all its eigenvalues", _VERDICT),
    "tail_reason": ("why the tail was not tested; empty where it was", domain.REASON),
}
"""Variables of each spectrum whose tail was tested."""


def spectrum_schema(*dims: str) -> Schema:
    """Return the schema of spectra by their dimensions."""
    return {
        **{name: Variable(dims, *declared) for name, declared in OF_SPECTRUM.items()},
        **{name: Variable((*dims, "direction"), *declared) for name, declared in OF_DIRECTION.items()},
        "eigenvalue": Variable(
            (*dims, "index"), "eigenvalues of the product's square, padded with NaN", domain.FALLING
        ),
        **{name: Variable(dims, *declared, part="heavy_tails") for name, declared in OF_TAIL.items()},
    }


SIGNAL_SCHEMA: dict[str, Schema] = {
    **{f"/circuits/{name}/heads": spectrum_schema("layer", "head") for name in CIRCUITS},
    **{
        f"/circuits/{name}/groups": {
            **spectrum_schema("layer", "key_head"),
            "head_share": Variable(
                ("layer", "key_head", "direction", "member"),
                "share of each head of the group in the square of the singular value",
                domain.PROBABILITY,
            ),
        }
        for name in ("qk", "ov")
    },
    "/matrices": {
        **spectrum_schema("layer", "component"),
        "n_rows": Variable(("layer", "component"), "rows (outputs)", domain.SIZE_OR_NAN),
        "n_columns": Variable(("layer", "component"), "columns (inputs)", domain.SIZE_OR_NAN),
    },
}
"""Groups of a file of signal and noise; ``groups`` are heads that share a key head, or values, taken as one."""


def _spectra_fit(groups: Mapping[str, xr.Dataset]) -> Fault:
    spectra = {name: group for name, group in groups.items() if name in SIGNAL_SCHEMA}
    for name, group in spectra.items():
        if (group["n_directions"].values > group.sizes["direction"]).any():
            return f"more n_directions in {quoted(name)} than there is room for", "an entry of direction for each"
    return None if spectra else ("neither heads nor matrices", "a group of either")


register(
    Kind(
        "signal",
        {"": {}, **SIGNAL_SCHEMA},
        EVERY_FILE | {"model": domain.TEXT, "level": domain.PROBABILITY},
        {
            **OF_HEADS,
            **dict.fromkeys(("notes", "warnings", "folded", "updates"), domain.JSON_LIST),
            **dict.fromkeys(("revision", "family", "initialization"), domain.TEXT),
        },
        frozenset(SIGNAL_SCHEMA),
        relations=(_spectra_fit,),
    )
)
