"""Declaration of a file of signal and noise: its variables, codes and checks."""

from collections.abc import Mapping

import xarray as xr

from rmtbase.results.scores.schema import OF_HEADS
from rmtbase.shown import quoted
from rmtbase.tables import CIRCUITS, EVERY_FILE, Fault, Kind, Schema, Variable, register
from rmtbase.tables.domain import (
    ANY,
    COUNT_OR_NAN,
    FALLING,
    FLAG_OR_NAN,
    JSON_LIST,
    NON_NEGATIVE_OR_NAN,
    POSITIVE_OR_NAN,
    PROBABILITY,
    REASON,
    SIZE_OR_NAN,
    TEXT,
    Domain,
)

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
NO_NUMBER = TOO_FEW_LEFT, ALL_OF_THE_NORM, ZEROS_LEFT, NO_LAW_LEFT = (
    "too_few_left", "all_of_the_norm", "zeros_left", "no_law_left"
)  # fmt: skip
WITHIN_CHANCE = "within_chance"
NO_BOUND = (
    WITHIN_CHANCE, "product", "whole_matrix", "dependent_entries", "signs_not_random", "too_few_axes", "contradiction"
)  # fmt: skip

NEED_A_LAW = (
    "strength_low", "strength_high", "rest_p_value", "noise_floor", "noise_scale_std", "detectable_strength"
)  # fmt: skip
"""Variables that are NaN with sign flips: the scatter of eigenvalues and the test of the rest need a law."""


def _codes(*codes: str) -> Domain:
    return Domain("a code, or empty", kinds="OUT", choices=("", *codes))


OF_SPECTRUM: dict[str, tuple[str, Domain]] = {
    "n_directions": ("learned directions: at least this number, at confidence 1 - level", COUNT_OR_NAN),
    "first_p_value": ("p-value of no learned direction at all", PROBABILITY),
    "next_p_value": ("p-value of no further direction; the last that was tested", PROBABILITY),
    "rest_p_value": ("p-value of the other eigenvalues being those of noise", PROBABILITY),
    "noise_floor": ("1 where the rest is noise; 0 where it is not, or too few are left", FLAG_OR_NAN),
    "sigma": ("product of the factors' standard deviations, if W were only noise", NON_NEGATIVE_OR_NAN),
    "noise_scale": ("product of the factors' standard deviations, of the noise only", POSITIVE_OR_NAN),
    "noise_scale_std": ("standard error of noise_scale", POSITIVE_OR_NAN),
    "threshold": ("strength beyond which a further direction leaves the bulk", POSITIVE_OR_NAN),
    "detectable_strength": ("strength found with probability 1 - level", POSITIVE_OR_NAN),
    "signal_share": ("learned share of the squared norm, in the directions found", PROBABILITY),
    "raw_share": ("share of the squared norm in the directions found, noise included", PROBABILITY),
    "expected_error": ("expected squared error of the shrunken signal", NON_NEGATIVE_OR_NAN),
    "learned_share_bound": ("lower bound on the learned share of the matrix, rows at one norm", PROBABILITY),
    "reason": ("why no test could be made, or why n_directions is not known; empty elsewhere", REASON),
    "no_number": ("why n_directions is not known although directions were found; else empty", _codes(*NO_NUMBER)),
    "no_bound": ("why there is no learned_share_bound; empty where there is one", _codes(*NO_BOUND)),
}
"""Variables of each spectrum: long name and domain. Strengths and scales are in the units of the product W."""

OF_DIRECTION: dict[str, tuple[str, Domain]] = {
    "p_value": ("p-value of no more directions than those before it", PROBABILITY),
    "strength": ("singular value of the direction's part of the signal", POSITIVE_OR_NAN),
    "strength_low": (
        "lower confidence limit of the mean strength, over the noise of the other factors", NON_NEGATIVE_OR_NAN
    ),
    "strength_high": (
        "upper confidence limit of the mean strength, over the noise of the other factors", POSITIVE_OR_NAN
    ),
    "overlap_left": ("squared cosine with the direction, where written", PROBABILITY),
    "overlap_right": ("squared cosine with the direction, where read", PROBABILITY),
    "shrunken": ("singular value that brings W nearest to the signal", NON_NEGATIVE_OR_NAN),
}  # fmt: skip
"""Variables of each direction, NaN where there is no such direction or the number is not known."""

OF_TAIL: dict[str, tuple[str, Domain]] = {
    "power_law_exponent": ("exponent of the power law fitted to the eigenvalues, at the best x_min", POSITIVE_OR_NAN),
    "power_law_tail": ("number of eigenvalues from that x_min on", SIZE_OR_NAN),
    "exponent_p_value": ("p-value of an exponent as small in noise", PROBABILITY),
    "exponent_goodness": ("p-value of the power law, for independent values", PROBABILITY),
    "null_exponent": ("median of the fitted exponents of noise", POSITIVE_OR_NAN),
    "null_exponent_low": ("2.5 % quantile of the fitted exponents of noise", POSITIVE_OR_NAN),
    "null_exponent_high": ("97.5 % quantile of the fitted exponents of noise", POSITIVE_OR_NAN),
    "path_depth": ("depth of the likeliest residual path", SIZE_OR_NAN),
    **{f"{name}_p_value": (f"p-value of {VERDICTS[name]}, by its own draws", PROBABILITY) for name in CANDIDATES},
    **{
        f"{name}_log_likelihood": (f"log-likelihood of {VERDICTS[name]}, with Schwarz's penalty", ANY)
        for name in CANDIDATES
    },
    "tail_verdict": ("verdict on the spectrum, by one likelihood of all its eigenvalues", _codes(*VERDICTS)),
    "tail_reason": ("why the tail was not tested; empty where it was", REASON),
}
"""Variables of each spectrum whose tail was tested."""


def spectrum_schema(*dims: str) -> Schema:
    """Return the schema of spectra: ``layer, head`` for heads, ``layer, component`` for matrices."""
    return {
        **{name: Variable(dims, *declared) for name, declared in OF_SPECTRUM.items()},
        **{name: Variable((*dims, "direction"), *declared) for name, declared in OF_DIRECTION.items()},
        "eigenvalue": Variable((*dims, "index"), "eigenvalues of the product's square, padded with NaN", FALLING),
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
                PROBABILITY,
            ),
        }
        for name in ("qk", "ov")
    },
    "/matrices": {
        **spectrum_schema("layer", "component"),
        "n_rows": Variable(("layer", "component"), "rows (outputs)", SIZE_OR_NAN),
        "n_columns": Variable(("layer", "component"), "columns (inputs)", SIZE_OR_NAN),
    },
}
"""Groups of a file of signal and noise; a group without contents is left out.

``/circuits/qk/groups`` holds heads that share a key head, taken as one: [W_Q1 ... W_Qg]ᵀ W_K, with every W_Qi scaled to
their common σ̂; ``ov`` likewise for heads that share values.
"""


def _has_spectra(groups: Mapping[str, xr.Dataset]) -> Fault:
    return None if SIGNAL_SCHEMA.keys() & groups.keys() else ("neither heads nor matrices", "a group of either")


def _directions_fit(groups: Mapping[str, xr.Dataset]) -> Fault:
    for name in (name for name in SIGNAL_SCHEMA if name in groups):
        if (groups[name]["n_directions"].values > groups[name].sizes["direction"]).any():
            return f"more n_directions in {quoted(name)} than there is room for", "an entry of direction for each"
    return None


register(
    Kind(
        "signal",
        {"": {}, **SIGNAL_SCHEMA},
        EVERY_FILE | {"model": TEXT, "level": PROBABILITY},
        {
            **OF_HEADS,
            **dict.fromkeys(("notes", "warnings", "folded", "updates"), JSON_LIST),
            **dict.fromkeys(("revision", "family", "initialization"), TEXT),
        },
        frozenset(SIGNAL_SCHEMA),
        relations=(_has_spectra, _directions_fit),
    )
)
