"""What a scores file holds, group by group."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rmtbase.tables._domain import (
    COUNT,
    COUNT_OR_NAN,
    EDGES,
    FALLING,
    NON_NEGATIVE,
    NON_NEGATIVE_OR_NAN,
    PROBABILITY,
    RISING,
    SIZE_OR_NAN,
    SPREAD,
    TEXT,
)
from rmtbase.tables._schema import Variable

_HEAD = ("layer", "head")
_HEAD_STATISTIC = (*_HEAD, "statistic")
_MATRIX = ("layer", "component")
_density = partial(Variable, ("bin",), units="1/lambda")
_MATRIX_STATISTIC = (*_MATRIX, "statistic")
_NO_STD = "NaN where its fourth moment is infinite, without which draws do not tell it"
_Z = "(observed - null_mean) / null_std; without a null_std the z of a normal law that has the p-value"

SCORES_SCHEMA: dict[str, dict[str, Variable]] = {
    "heads": {
        "observed": Variable(_HEAD_STATISTIC, "observed value, raw product W_Q^T W_K"),
        "null_mean": Variable(
            _HEAD_STATISTIC,
            "mean of the null at the head's own sigma estimates; NaN where it is infinite, or no null of the statistic "
            "is known",
        ),
        "null_std": Variable(
            _HEAD_STATISTIC,
            f"standard deviation of the null at the head's own sigma estimates; {_NO_STD}",
            SPREAD,
        ),
        "null_quantile": Variable(
            (*_HEAD_STATISTIC, "probability"), "quantile of the null at the head's own sigma estimates", RISING
        ),
        "z_score": Variable(_HEAD_STATISTIC, _Z),
        "p_value": Variable(_HEAD_STATISTIC, "two-sided p-value against the null", PROBABILITY),
        "q_value": Variable(
            _HEAD_STATISTIC,
            "Benjamini-Hochberg q-value over all heads of the model, each statistic by itself",
            PROBABILITY,
        ),
        "omnibus_p_value": Variable(
            _HEAD,
            "p-value of all statistics together: of the largest distance, against the null draws' own largest; where "
            "the null is analytic, the Cauchy combination of the statistics' p-values",
            PROBABILITY,
        ),
        "farthest_statistic": Variable(
            _HEAD,
            "statistic with the largest distance from the null: |z|, of ln x where x > 0 has no upper bound",
            TEXT,
        ),
        "omnibus_q_value": Variable(_HEAD, "Benjamini-Hochberg q-value of omnibus_p_value over all heads", PROBABILITY),
        "sigma_q": Variable(_HEAD, "estimate of sigma_Q, sqrt(|W_Q|_F^2 / (d h))", NON_NEGATIVE),
        "sigma_k": Variable(_HEAD, "estimate of sigma_K, sqrt(|W_K|_F^2 / (d h))", NON_NEGATIVE),
        "outliers_above": Variable(_HEAD, "eigenvalues above the null's upper edge quantile", COUNT),
        "outliers_below": Variable(_HEAD, "eigenvalues below the null's lower edge quantile", COUNT),
        "key_head": Variable(_HEAD, "index of the key head that the query head reads", COUNT),
        "eigenvalue": Variable((*_HEAD, "index"), "eigenvalues of W_QK^T W_QK, descending, raw product", FALLING),
    },
    "matrices": {
        "observed": Variable(_MATRIX_STATISTIC, "observed value"),
        "null_mean": Variable(_MATRIX_STATISTIC, "mean of the null; NaN where it is infinite"),
        "null_std": Variable(_MATRIX_STATISTIC, f"standard deviation of the null; {_NO_STD}", SPREAD),
        "z_score": Variable(_MATRIX_STATISTIC, _Z),
        "p_value": Variable(_MATRIX_STATISTIC, "two-sided p-value against the null", PROBABILITY),
        "q_value": Variable(
            _MATRIX_STATISTIC,
            "Benjamini-Hochberg q-value over all matrices of the model, each statistic by itself",
            PROBABILITY,
        ),
        "sigma": Variable(_MATRIX, "standard deviation of the elements", NON_NEGATIVE_OR_NAN),
        "n_rows": Variable(_MATRIX, "rows (outputs)", SIZE_OR_NAN),
        "n_columns": Variable(_MATRIX, "columns (inputs)", SIZE_OR_NAN),
    },
    "spectra": {
        "outliers_above": Variable(
            _MATRIX, "eigenvalues above the null's upper edge quantile", COUNT_OR_NAN, part="spectra"
        ),
        "outliers_below": Variable(
            _MATRIX, "eigenvalues below the null's lower edge quantile", COUNT_OR_NAN, part="spectra"
        ),
        "marchenko_pastur_distance": Variable(
            _MATRIX,
            "largest distance between the spectrum's distribution function and Marchenko-Pastur's",
            PROBABILITY,
            part="spectra",
        ),
    },
    "null": {
        "eigenvalue_mean": Variable(("index",), "mean ordered eigenvalue of the null, sigma = 1, raw product", SPREAD),
        "eigenvalue_quantile": Variable(
            ("index", "probability"),
            "quantile of the null's ordered eigenvalue, each draw at its own estimate of sigma, raw product; where the "
            "null is analytic, of a gamma law but for the extreme eigenvalues",
            RISING,
        ),
        "bin_edge": Variable(("edge",), "edges of the histogram bins in lambda, sigma = 1, raw product", EDGES),
        "density": _density(
            "Monte Carlo density of the null's eigenvalues, bin average; where the null is analytic, density_free",
            NON_NEGATIVE_OR_NAN,
        ),
        "density_standard_error": _density(
            "standard error of the Monte Carlo density; 0 where the null is analytic", NON_NEGATIVE_OR_NAN
        ),
        "density_free": _density("bin average of the free-product density", NON_NEGATIVE_OR_NAN),
        "edge_quantile_lower": Variable((), "edge quantile of the self-normalised smallest eigenvalue", SPREAD),
        "edge_quantile_upper": Variable((), "edge quantile of the self-normalised largest eigenvalue", SPREAD),
    },
    "own_null": {
        "eigenvalue_mean": Variable(
            (*_HEAD, "index"),
            "mean ordered eigenvalue of the head's own null, over its sigma_q^2 sigma_k^2, raw product",
            SPREAD,
        ),
        "eigenvalue_quantile": Variable(
            (*_HEAD, "index", "probability"),
            "quantile of the ordered eigenvalue of the head's own null, over its sigma_q^2 sigma_k^2, raw product",
            RISING,
        ),
        "edge_quantile_lower": Variable(
            _HEAD, "edge quantile of the smallest eigenvalue of the head's own null", SPREAD
        ),
        "edge_quantile_upper": Variable(
            _HEAD, "edge quantile of the largest eigenvalue of the head's own null", SPREAD
        ),
    },
}
"""The variables of each group of a scores file. ``spectra`` are further variables of ``/matrices``, present where
asked for; ``own_null`` stands in the place of ``null`` where each head has a null of its own (``null_method`` is
``"resampled"``); all else is always there."""


def null_method(attributes: Mapping[Any, Any]) -> str:
    """How the null of a scores file is known: ``"analytic"``, ``"simulated"`` or ``"resampled"``, each head's its own.

    ``"simulated"`` where the file does not say.
    """
    return str(attributes.get("null_method", "simulated"))
