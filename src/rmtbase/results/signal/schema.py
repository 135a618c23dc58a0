"""Schema of a file of signal and noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import xarray as xr

from rmtbase.results.scores.schema import OF_HEADS
from rmtbase.results.signal._learned_bound import NO_BOUND
from rmtbase.results.signal._sequential_count import NO_NUMBER
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
    SIZE_OR_NAN,
    TEXT,
    Domain,
)

TAIL_NUMBERS = (
    "power_law_exponent", "power_law_tail", "exponent_p_value", "exponent_goodness", "hill_exponent", "hill_p_value",
    "null_exponent", "null_exponent_low", "null_exponent_high", "path_depth", "noise_p_value", "spikes_p_value",
    "power_law_p_value", "depth_p_value", "noise_log_likelihood", "spikes_log_likelihood", "power_law_log_likelihood",
    "depth_log_likelihood",
)  # fmt: skip
"""Numbers of one spectrum, by their names in the file."""

TAIL_TEXTS = ("tail_verdict", "tail_reason")

TAIL_VERDICTS = ("noise", "spikes", "power law", "effective depth", "not told apart", "none of them")
"""Verdicts on a spectrum: one of the four candidates, several of them, or none."""

NEED_A_LAW = (
    "strength_low", "strength_high", "rest_p_value", "noise_floor", "noise_scale_std", "detectable_strength"
)  # fmt: skip
"""Variables that are NaN with sign flips: the scatter of eigenvalues and the test of the rest need a law."""

_TAILS = "heavy_tails"
_NO_NUMBER = Domain("a reason, or empty", kinds="OUT", choices=("", *NO_NUMBER))
_NO_BOUND = Domain("a reason, or empty", kinds="OUT", choices=("", *NO_BOUND))
_VERDICT = Domain("a verdict, or empty", kinds="OUT", choices=("", *TAIL_VERDICTS))


_OF_TAILS = (
    ("power_law_exponent", "exponent of the power law fitted to the eigenvalues, at the best x_min", POSITIVE_OR_NAN),
    ("power_law_tail", "number of eigenvalues from that x_min on", SIZE_OR_NAN),
    ("exponent_p_value", "p-value of an exponent as small in noise", PROBABILITY),
    ("exponent_goodness", "p-value of the power law, for independent values", PROBABILITY),
    ("hill_exponent", "Hill's exponent of the largest tenth of the eigenvalues", POSITIVE_OR_NAN),
    ("hill_p_value", "p-value of a Hill's exponent as small in noise", PROBABILITY),
    ("null_exponent", "median of the fitted exponents of noise", POSITIVE_OR_NAN),
    ("null_exponent_low", "2.5 % quantile of the fitted exponents of noise", POSITIVE_OR_NAN),
    ("null_exponent_high", "97.5 % quantile of the fitted exponents of noise", POSITIVE_OR_NAN),
    ("tail_verdict", "verdict on the spectrum, by one likelihood of all its eigenvalues", _VERDICT),
    ("path_depth", "depth of the likeliest residual path", SIZE_OR_NAN),
    *(
        (f"{name}_{what}", f"{words} {of}", domain)
        for name, of in (
            ("noise", "noise"), ("spikes", "spikes on a bulk"), ("power_law", "a power law"), ("depth", "that path")
        )
        for what, words, domain in (
            ("p_value", "p-value, by its own draws, of", PROBABILITY),
            ("log_likelihood", "log-likelihood, with Schwarz's penalty, of", ANY),
        )
    ),
    ("tail_reason", "why the tail was not tested; empty where it was", TEXT),
)  # fmt: skip
"""Variables of spectra whose tails were tested: name, long name, domain."""


def _signal_schema(*of_spectrum: str) -> Schema:
    """Make the schema of spectra with these dimensions: ``layer, head`` for heads, ``layer, component`` for matrices.

    Strengths, scales and singular values are in the units of the product W. Numbers are NaN where the number of
    directions is not known, and where there is no such direction.
    """

    def of(name: str, words: str, domain: object, *further: str, part: str = "") -> tuple[str, Variable]:
        return name, Variable((*of_spectrum, *further), words, domain, part=part)  # type: ignore[arg-type]

    return dict(
        [
            of("n_directions", "learned directions: at least this number, at confidence 1 - level", COUNT_OR_NAN),
            of("first_p_value", "p-value of no learned direction at all", PROBABILITY),
            of("next_p_value", "p-value of no further direction; the last that was tested", PROBABILITY),
            of("rest_p_value", "p-value of the other eigenvalues being those of noise", PROBABILITY),
            of("noise_floor", "1 where the rest is noise; 0 where it is not, or too few are left", FLAG_OR_NAN),
            of("sigma", "product of the factors' standard deviations, if W were only noise", NON_NEGATIVE_OR_NAN),
            of("noise_scale", "product of the factors' standard deviations, of the noise only", POSITIVE_OR_NAN),
            of("noise_scale_std", "standard error of noise_scale", POSITIVE_OR_NAN),
            of("threshold", "strength beyond which a further direction leaves the bulk", POSITIVE_OR_NAN),
            of("detectable_strength", "strength found with probability 1 - level", POSITIVE_OR_NAN),
            of("signal_share", "learned share of the squared norm, in the directions found", PROBABILITY),
            of("raw_share", "share of the squared norm in the directions found, noise included", PROBABILITY),
            of("expected_error", "expected squared error of the shrunken signal", NON_NEGATIVE_OR_NAN),
            of("reason", "why no test could be made, or why n_directions is not known; empty elsewhere", TEXT),
            of("no_number", "why n_directions is not known although directions were found; else empty", _NO_NUMBER),
            of("learned_share_bound", "lower bound on the learned share of the matrix, rows at one norm", PROBABILITY),
            of("no_bound", "why there is no learned_share_bound; empty where there is one", _NO_BOUND),
            of("p_value", "p-value of no more directions than those before it", PROBABILITY, "direction"),
            of("strength", "singular value of the direction's part of the signal", POSITIVE_OR_NAN, "direction"),
            of(
                "strength_low",
                "lower confidence limit of the mean strength, over the noise of the other factors",
                NON_NEGATIVE_OR_NAN,
                "direction",
            ),
            of(
                "strength_high",
                "upper confidence limit of the mean strength, over the noise of the other factors",
                POSITIVE_OR_NAN,
                "direction",
            ),
            of("overlap_left", "squared cosine with the direction, where written", PROBABILITY, "direction"),
            of("overlap_right", "squared cosine with the direction, where read", PROBABILITY, "direction"),
            of("shrunken", "singular value that brings W nearest to the signal", NON_NEGATIVE_OR_NAN, "direction"),
            of("eigenvalue", "eigenvalues of the product's square, padded with NaN", FALLING, "index"),
            *(of(name, words, domain, part=_TAILS) for name, words, domain in _OF_TAILS),
        ]
    )


SIGNAL_SCHEMA: dict[str, Schema] = {
    **{f"/circuits/{name}/heads": _signal_schema("layer", "head") for name in CIRCUITS},
    **{
        f"/circuits/{name}/groups": {
            **_signal_schema("layer", "key_head"),
            "head_share": Variable(
                ("layer", "key_head", "direction", "member"),
                "share of each head of the group in the square of the singular value",
                PROBABILITY,
            ),
        }
        for name in ("qk", "ov")
    },
    "/matrices": {
        **_signal_schema("layer", "component"),
        "n_rows": Variable(("layer", "component"), "rows (outputs)", SIZE_OR_NAN),
        "n_columns": Variable(("layer", "component"), "columns (inputs)", SIZE_OR_NAN),
    },
}
"""Groups of a file of signal and noise; a group without contents is left out.

``/circuits/qk/groups`` holds heads that share a key head, taken as one: [W_Q1 ... W_Qg]ᵀ W_K, with every W_Qi scaled to
their common σ̂; ``ov`` likewise for heads that share values.
"""


def _signals_whole(groups: Mapping[str, xr.Dataset]) -> Fault:
    """Check that there are heads or matrices."""
    return None if any(True for _ in _each(groups)) else ("neither heads nor matrices", "a group of either")


def _directions_held(groups: Mapping[str, xr.Dataset]) -> Fault:
    """Check that each direction of each spectrum has an entry."""
    for name, group in _each(groups):
        if (group["n_directions"].values > group.sizes["direction"]).any():
            return f"more n_directions in {quoted(name)} than there is room for", "an entry of direction for each"
    return None


def _each(groups: Mapping[str, xr.Dataset]) -> Iterator[tuple[str, xr.Dataset]]:
    for name in SIGNAL_SCHEMA:
        if name in groups:
            yield name, groups[name]


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
        relations=(_signals_whole, _directions_held),
    )
)
