"""What a scores file holds, group by group."""

from __future__ import annotations

from collections.abc import Mapping
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
_STATISTIC = ("layer", "head", "statistic")

SCORES_SCHEMA: dict[str, dict[str, Variable]] = {
    "heads": {
        "observed": Variable(_STATISTIC, "observed value, raw product W_Q^T W_K"),
        "null_mean": Variable(
            _STATISTIC,
            "mean of the null at the head's own sigma estimates; NaN where no null of the statistic is known",
        ),
        "null_std": Variable(
            _STATISTIC, "standard deviation of the null at the head's own sigma estimates", domain=SPREAD
        ),
        "null_quantile": Variable(
            (*_STATISTIC, "probability"), "quantile of the null at the head's own sigma estimates", domain=RISING
        ),
        "z_score": Variable(_STATISTIC, "(observed - null_mean) / null_std"),
        "p_value": Variable(_STATISTIC, "two-sided p-value against the null", domain=PROBABILITY),
        "q_value": Variable(
            _STATISTIC,
            "Benjamini-Hochberg q-value over all heads of the model, each statistic by itself",
            domain=PROBABILITY,
        ),
        "omnibus_p_value": Variable(
            _HEAD,
            "p-value of all statistics together: of the largest distance, against the null draws' own largest; where "
            "the null is analytic, the Cauchy combination of the statistics' p-values",
            domain=PROBABILITY,
        ),
        "farthest_statistic": Variable(
            _HEAD,
            "statistic with the largest distance from the null: |z|, of ln x where x > 0 has no upper bound",
            domain=TEXT,
        ),
        "omnibus_q_value": Variable(
            _HEAD, "Benjamini-Hochberg q-value of omnibus_p_value over all heads", domain=PROBABILITY
        ),
        "sigma_q": Variable(_HEAD, "estimate of sigma_Q, sqrt(|W_Q|_F^2 / (d h))", domain=NON_NEGATIVE),
        "sigma_k": Variable(_HEAD, "estimate of sigma_K, sqrt(|W_K|_F^2 / (d h))", domain=NON_NEGATIVE),
        "outliers_above": Variable(_HEAD, "eigenvalues above the null's upper edge quantile", domain=COUNT),
        "outliers_below": Variable(_HEAD, "eigenvalues below the null's lower edge quantile", domain=COUNT),
        "key_head": Variable(_HEAD, "index of the key head that the query head reads", domain=COUNT),
        "eigenvalue": Variable(
            (*_HEAD, "index"), "eigenvalues of W_QK^T W_QK, descending, raw product", domain=FALLING
        ),
    },
    "matrices": {
        "observed": Variable(("layer", "component", "statistic"), "observed value"),
        "null_mean": Variable(("layer", "component", "statistic"), "mean of the null"),
        "null_std": Variable(("layer", "component", "statistic"), "standard deviation of the null", domain=SPREAD),
        "z_score": Variable(("layer", "component", "statistic"), "(observed - null_mean) / null_std"),
        "p_value": Variable(
            ("layer", "component", "statistic"), "two-sided p-value against the null", domain=PROBABILITY
        ),
        "q_value": Variable(
            ("layer", "component", "statistic"),
            "Benjamini-Hochberg q-value over all matrices of the model, each statistic by itself",
            domain=PROBABILITY,
        ),
        "sigma": Variable(("layer", "component"), "standard deviation of the elements", domain=NON_NEGATIVE_OR_NAN),
        "n_rows": Variable(("layer", "component"), "rows (outputs)", domain=SIZE_OR_NAN),
        "n_columns": Variable(("layer", "component"), "columns (inputs)", domain=SIZE_OR_NAN),
    },
    "spectra": {
        "outliers_above": Variable(
            ("layer", "component"),
            "eigenvalues above the null's upper edge quantile",
            domain=COUNT_OR_NAN,
            part="spectra",
        ),
        "outliers_below": Variable(
            ("layer", "component"),
            "eigenvalues below the null's lower edge quantile",
            domain=COUNT_OR_NAN,
            part="spectra",
        ),
        "marchenko_pastur_distance": Variable(
            ("layer", "component"),
            "largest distance between the spectrum's distribution function and Marchenko-Pastur's",
            domain=PROBABILITY,
            part="spectra",
        ),
    },
    "null": {
        "eigenvalue_mean": Variable(
            ("index",), "mean ordered eigenvalue of the null, sigma = 1, raw product", domain=SPREAD
        ),
        "eigenvalue_quantile": Variable(
            ("index", "probability"),
            "quantile of the null's ordered eigenvalue, each draw at its own estimate of sigma, raw product; where the "
            "null is analytic, of a gamma law but for the extreme eigenvalues",
            domain=RISING,
        ),
        "bin_edge": Variable(("edge",), "edges of the histogram bins in lambda, sigma = 1, raw product", domain=EDGES),
        "density": Variable(
            ("bin",),
            "Monte Carlo density of the null's eigenvalues, bin average; where the null is analytic, density_free",
            "1/lambda",
            domain=NON_NEGATIVE_OR_NAN,
        ),
        "density_standard_error": Variable(
            ("bin",),
            "standard error of the Monte Carlo density; 0 where the null is analytic",
            "1/lambda",
            domain=NON_NEGATIVE_OR_NAN,
        ),
        "density_free": Variable(
            ("bin",), "bin average of the free-product density", "1/lambda", domain=NON_NEGATIVE_OR_NAN
        ),
        "edge_quantile_lower": Variable((), "edge quantile of the self-normalised smallest eigenvalue", domain=SPREAD),
        "edge_quantile_upper": Variable((), "edge quantile of the self-normalised largest eigenvalue", domain=SPREAD),
    },
    "own_null": {
        "eigenvalue_mean": Variable(
            (*_HEAD, "index"),
            "mean ordered eigenvalue of the head's own null, over its sigma_q^2 sigma_k^2, raw product",
            domain=SPREAD,
        ),
        "eigenvalue_quantile": Variable(
            (*_HEAD, "index", "probability"),
            "quantile of the ordered eigenvalue of the head's own null, over its sigma_q^2 sigma_k^2, raw product",
            domain=RISING,
        ),
        "edge_quantile_lower": Variable(
            _HEAD, "edge quantile of the smallest eigenvalue of the head's own null", domain=SPREAD
        ),
        "edge_quantile_upper": Variable(
            _HEAD, "edge quantile of the largest eigenvalue of the head's own null", domain=SPREAD
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
