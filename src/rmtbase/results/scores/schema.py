"""Schema of a scores file, group by group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from rmtbase.parameters import INITIALIZATIONS
from rmtbase.results.scores._scores_relations import circuit_group, circuits_whole, shapes_fit, sizes_known
from rmtbase.tables import CIRCUITS, EVERY_FILE, NORMALIZATION, QK, Circuit, Kind, Outline, Schema, Variable, register
from rmtbase.tables.domain import (
    AT_MOST_ONE_OR_NAN,
    COUNT,
    COUNT_OR_NAN,
    EDGES,
    FALLING,
    FINITE,
    JSON_LIST,
    NON_NEGATIVE_OR_NAN,
    NUMBERS_OF_LAYERS,
    PROBABILITY,
    RISING,
    SIZE,
    SIZE_OR_NAN,
    SPREAD,
    TEXT,
    Domain,
)

_HEAD = ("layer", "head")
_HEAD_STATISTIC = (*_HEAD, "statistic")
_MATRIX = ("layer", "component")
_density = partial(Variable, ("bin",), units="1/lambda")
_MATRIX_STATISTIC = (*_MATRIX, "statistic")
_NO_STD = "NaN where its fourth moment is infinite, without which draws do not tell it"
_Z = "(observed - null_mean) / null_std; without a null_std the z of a normal law that has the p-value"


_EQUAL_AXES = {
    "moved_share_equal_axes": Variable(
        _HEAD,
        "moved_share with each row of each factor scaled to one norm, against random heads treated alike; NaN where "
        "these are not known",
        PROBABILITY,
    )
}
_RELATION = {
    "relation": Variable(
        _HEAD,
        "(S - h/d) / (1 - h/d), S the share of |W_QK|_F^2 whose key side lies in the row space of W_Q; NaN where W_Q "
        "has no full rank, or queries and keys read different streams",
        AT_MOST_ONE_OR_NAN,
    ),
    "relation_upper": Variable(
        _HEAD, "95 % point of relation for row spaces of random orientation, at the head's spectrum", AT_MOST_ONE_OR_NAN
    ),
    "relation_p_value": Variable(
        _HEAD,
        "p-value of so large a relation for row spaces of random orientation, at the head's spectrum",
        PROBABILITY,
    ),
    "relation_q_value": Variable(_HEAD, "Benjamini-Hochberg q-value of relation_p_value over all heads", PROBABILITY),
}
_CHANCE = "95 % point of {} over random heads"


def _moved_schema(circuit: Circuit, dims: tuple[str, ...] = ()) -> dict[str, Variable]:
    """Return the variables of the null about moved shares of random heads."""
    names = ["moved_share", *(_EQUAL_AXES if circuit.head_axes else ())]
    points = {
        name: variable
        for each in names
        for name, variable in {
            f"{each}_upper": Variable(dims, _CHANCE.format(each) + "; NaN where it is not known", PROBABILITY),
            f"{each}_upper_standard_error": Variable(dims, f"standard error of {each}_upper", PROBABILITY),
        }.items()
    }
    if not circuit.head_axes:
        return points
    words = "mean ordered eigenvalue of random heads with each row of each factor scaled to norm 1; NaN if not known"
    return points | {"eigenvalue_mean_equal_axes": Variable((*dims, "index"), words, SPREAD)}


def heads_schema(circuit: Circuit) -> dict[str, Variable]:
    """Return the variables of the scores of all heads by one circuit, such as ``/heads``.

    A layer with fewer heads or a smaller rank than another is padded: with NaN, key_head with 0, names with "".
    """
    sigma = {
        one.sigma: Variable(
            _HEAD, f"estimate of sigma_{one.letter}, sqrt(|{one.symbol}|_F^2 / (d h))", NON_NEGATIVE_OR_NAN
        )
        for one in circuit.factors
    }
    shared = {"key_head": Variable(_HEAD, "index of the key head that the query head reads", COUNT)}
    key_head = shared if len(circuit.factors) > 1 else {}
    return {
        "observed": Variable(_HEAD_STATISTIC, f"observed value, {_raw(circuit)} {circuit.formula}"),
        "null_mean": Variable(
            _HEAD_STATISTIC,
            "mean of the null at the head's own sigma estimates; NaN where it is infinite, or no null of the statistic "
            "is known",
        ),
        "null_std": Variable(
            _HEAD_STATISTIC, f"standard deviation of the null at the head's own sigma estimates; {_NO_STD}", SPREAD
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
        "moved_share": Variable(
            _HEAD,
            "share of the sum of eigenvalues to move between the ordered ones to give the null's mean spectrum: half "
            "the sum of |difference of the shares|; NaN where the product is zero",
            PROBABILITY,
        ),
        "moved_towards_fewer": Variable(
            _HEAD,
            "what the strongest eigenvalues, at the most, hold beyond their share in the null's mean spectrum",
            PROBABILITY,
        ),
        "moved_towards_more": Variable(
            _HEAD,
            "what the weakest eigenvalues, at the most, hold beyond their share in the null's mean spectrum",
            PROBABILITY,
        ),
        **(_EQUAL_AXES if circuit.head_axes else {}),
        **(_RELATION if circuit == QK else {}),
        **sigma,
        "outliers_above": Variable(_HEAD, "eigenvalues above the null's upper edge quantile", COUNT_OR_NAN),
        "outliers_below": Variable(_HEAD, "eigenvalues below the null's lower edge quantile", COUNT_OR_NAN),
        "reason": Variable(_HEAD, "why the head cannot be tested; empty where it was tested", TEXT),
        **key_head,
        "eigenvalue": Variable(
            (*_HEAD, "index"),
            f"eigenvalues of {circuit.symbol}^T {circuit.symbol}, descending, {_raw(circuit)}",
            FALLING,
        ),
    }


def null_schema(circuit: Circuit, several: bool = False) -> dict[str, Variable]:
    """Return the variables of the null of all heads by one circuit, such as ``/null``.

    If the heads of a model have several shapes, each shape has a null, and each variable a first dimension ``shape``.
    """
    raw = _raw(circuit)
    of_one = {
        "eigenvalue_mean": Variable(("index",), f"mean ordered eigenvalue of the null, sigma = 1, {raw}", SPREAD),
        "eigenvalue_quantile": Variable(
            ("index", "probability"),
            f"quantile of the null's ordered eigenvalue, each draw at its own estimate of sigma, {raw}; where the "
            "null is analytic, of a gamma law but for the extreme eigenvalues",
            RISING,
        ),
        "bin_edge": Variable(("edge",), f"edges of the histogram bins in lambda, sigma = 1, {raw}", EDGES),
        "density": _density(
            "Monte Carlo density of the null's eigenvalues, bin average; where the null is analytic, density_free",
            NON_NEGATIVE_OR_NAN,
        ),
        "density_standard_error": _density(
            "standard error of the Monte Carlo density; 0 where the null is analytic", NON_NEGATIVE_OR_NAN
        ),
        "density_free": _density(
            f"bin average of the {'free-product' if len(circuit.factors) > 1 else 'Marchenko-Pastur'} density",
            NON_NEGATIVE_OR_NAN,
        ),
        "edge_quantile_lower": Variable((), "edge quantile of the self-normalised smallest eigenvalue", SPREAD),
        "edge_quantile_upper": Variable((), "edge quantile of the self-normalised largest eigenvalue", SPREAD),
        **_moved_schema(circuit),
    }
    if not several:
        return of_one
    shape = ("shape",)
    return {
        **{name: replace(one, dims=(*shape, *one.dims)) for name, one in of_one.items()},
        **{name: Variable(shape, f"{name} of the shape", SIZE) for name in circuit.dims},
        "layer_shape": Variable(("layer",), "place of the layer's shape along the dimension shape", COUNT),
        "null_draws": Variable(shape, "number of null draws; 0 where the null is analytic", COUNT),
        "p_value_floor": Variable(shape, "smallest p-value of one statistic", PROBABILITY),
        "null_source": Variable(shape, "where the null came from", TEXT),
    }


def own_null_schema(circuit: Circuit) -> dict[str, Variable]:
    """Return the variables of ``/null`` if each head has its own null."""
    raw, scale = _raw(circuit), " ".join(f"{factor.sigma}^2" for factor in circuit.factors)
    return {
        "eigenvalue_mean": Variable(
            (*_HEAD, "index"), f"mean ordered eigenvalue of the head's own null, over its {scale}, {raw}", SPREAD
        ),
        "eigenvalue_quantile": Variable(
            (*_HEAD, "index", "probability"),
            f"quantile of the ordered eigenvalue of the head's own null, over its {scale}, {raw}",
            RISING,
        ),
        "edge_quantile_lower": Variable(
            _HEAD, "edge quantile of the smallest eigenvalue of the head's own null", SPREAD
        ),
        "edge_quantile_upper": Variable(
            _HEAD, "edge quantile of the largest eigenvalue of the head's own null", SPREAD
        ),
        **_moved_schema(circuit, _HEAD),
    }


def _raw(circuit: Circuit) -> str:
    return "raw product" if len(circuit.factors) > 1 else "raw matrix"


_ELEMENTS: dict[str, Variable] = {
    "histogram": Variable(
        (*_MATRIX, "bin"),
        "density of the elements, less their mean and over their standard deviation; what lies beyond is in no bin",
        NON_NEGATIVE_OR_NAN,
    ),
    "log_magnitude_histogram": Variable(
        (*_MATRIX, "magnitude_bin"),
        "density of log10 of the elements' magnitudes; what lies beyond, zeros among it, is in no bin",
        NON_NEGATIVE_OR_NAN,
    ),
    "bin": Variable(("bin",), "(w - mean) / std, centre of the bin", EDGES),
    "magnitude_bin": Variable(("magnitude_bin",), "log10 |w|, centre of the bin", EDGES),
    "reason": Variable(_MATRIX, "why statistics of the elements are missing; empty where none is", TEXT),
}
"""Variables of the elements of each matrix, other than their statistics."""

_MATRICES: dict[str, dict[str, Variable]] = {
    "matrices": {
        "observed": Variable(_MATRIX_STATISTIC, "observed value"),
        "null_mean": Variable(_MATRIX_STATISTIC, "mean of the null; NaN where it is infinite"),
        "null_std": Variable(_MATRIX_STATISTIC, f"standard deviation of the null; {_NO_STD}", SPREAD),
        "z_score": Variable(_MATRIX_STATISTIC, _Z),
        "p_value": Variable(_MATRIX_STATISTIC, "two-sided p-value against the null", PROBABILITY),
        "q_value": Variable(
            _MATRIX_STATISTIC,
            "Benjamini-Hochberg q-value over all matrices of the model, each statistic by itself; over those that hold "
            "queries, keys and values together by themselves",
            PROBABILITY,
        ),
        "sigma": Variable(_MATRIX, "standard deviation of the elements", NON_NEGATIVE_OR_NAN),
        "n_rows": Variable(_MATRIX, "rows (outputs)", SIZE_OR_NAN),
        "n_columns": Variable(_MATRIX, "columns (inputs)", SIZE_OR_NAN),
        **_ELEMENTS,
        "tail_reason": Variable(
            _MATRIX,
            "why the largest elements cannot be compared with a tail; empty where they were, or the matrix is of parts",
            TEXT,
        ),
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
}


def experts_schema(spectra: bool = True) -> dict[str, Variable]:
    """Return the variables of ``/experts``: those of ``/matrices`` for each expert, with or without spectra."""
    of_experts = _with_axes({"layer": ("layer", "expert")}, _MATRICES["matrices"])
    of_experts |= _with_axes({"layer": ("layer", "expert")}, _MATRICES["spectra"]) if spectra else {}
    words = "Benjamini-Hochberg q-value over all matrices of experts, each statistic by itself"
    return of_experts | {"q_value": replace(of_experts["q_value"], long_name=words)}


def _with_axes(axes: Mapping[str, tuple[str, ...]], schema: Mapping[str, Variable]) -> dict[str, Variable]:
    """Replace some dimensions of the variables by others."""
    return {
        name: replace(one, dims=tuple(new for dim in one.dims for new in axes.get(dim, (dim,))))
        for name, one in schema.items()
    }


def head_elements_schema() -> dict[str, Variable]:
    """Return the variables of ``/heads/elements``: those of ``/matrices``, for W_Q, W_K, W_V, W_O, W_QK of heads."""
    axes = {"layer": _HEAD, "statistic": ("element_statistic",)}
    of_heads = _with_axes(axes, {name: one for name, one in _MATRICES["matrices"].items() if name != "tail_reason"})
    words = "Benjamini-Hochberg q-value over all heads of the model, each component and statistic by itself"
    dependent = "two-sided p-value against the null; that of W_QK knows that elements of a row or column are dependent"
    return of_heads | {
        "p_value": replace(of_heads["p_value"], long_name=dependent),
        "q_value": replace(of_heads["q_value"], long_name=words),
    }


_SUPER_WEIGHT = ("super_weight",)
_of_any = "log10 of the probability that any of the matrix's elements is so large"

SUPER_WEIGHTS_SCHEMA: dict[str, Variable] = {
    "layer": Variable(_SUPER_WEIGHT, "layer; -1 outside the layers", NUMBERS_OF_LAYERS),
    "stack": Variable(_SUPER_WEIGHT, "stack of the layer", TEXT),
    "component": Variable(_SUPER_WEIGHT, "weight matrix", TEXT),
    "expert": Variable(_SUPER_WEIGHT, "expert of a mixture; -1 where it is of none", NUMBERS_OF_LAYERS),
    "row": Variable(_SUPER_WEIGHT, "row (output) of the element", COUNT),
    "column": Variable(_SUPER_WEIGHT, "column (input) of the element", COUNT),
    "value": Variable(_SUPER_WEIGHT, "the element w", FINITE),
    "magnitude_over_core": Variable(
        _SUPER_WEIGHT, "|w| over the standard deviation of the normal law fitted to the matrix's core", SPREAD
    ),
    "isolation_p_value": Variable(
        _SUPER_WEIGHT,
        "p-value of the gap below it or below a smaller one, in an exponential or a power's tail",
        PROBABILITY,
    ),
    "log10_core_tail_probability": Variable(_SUPER_WEIGHT, f"{_of_any}, under the normal law of the core"),
    "log10_tail_probability": Variable(_SUPER_WEIGHT, f"{_of_any}, under the Weibull law of the body (trim 0.1)"),
    "pool": Variable(_SUPER_WEIGHT, "what the matrix is pooled with: components of a kind, in all layers", TEXT),
    "log10_pooled_tail_probability": Variable(
        _SUPER_WEIGHT,
        "log10 of the probability that any element of the pool is so large, under the mixture of its matrices' core "
        "normal laws",
    ),
}
"""Variables of ``/super_weights``: isolated extremes of the scored matrices, the least probable first."""

_TESTED = ("layer", "head", "test")

WHY_SCHEMA: dict[str, Variable] = {
    "p_value": Variable(_TESTED, "p-value of all statistics of the test together", PROBABILITY),
    "q_value": Variable(
        _TESTED,
        "Benjamini-Bogomolov q-value in one family of all heads and tests: the expected share of heads with a wrong "
        "cause among those with a named cause; tests that name no cause are a family of the heads without one",
        PROBABILITY,
    ),
    "yekutieli_q_value": Variable(_TESTED, "the same, whatever heads have in common", PROBABILITY),
    "holm_p_value": Variable(
        _TESTED, "Holm's p-value in the family: the chance that any claim is wrong is no larger", PROBABILITY
    ),
    "rejected": Variable(_TESTED, "1 if q_value < 0.05, 0 if not; NaN if not testable, or with too few draws"),
    "named": Variable(_TESTED, "1 if the test names a cause of the head", COUNT),
    "detectable": Variable(_TESTED, "smallest effect that a test at level 0.05 finds with probability 0.95"),
    "p_value_floor": Variable(_TESTED, "smallest possible p-value of the test, by the draws of the head", PROBABILITY),
    "verdict": Variable(_HEAD, "causes named, or unresolved, or not testable", TEXT),
    "meaning": Variable(("test",), "null hypothesis of the test", TEXT),
    "effect": Variable(("test",), "effect that detectable is the size of", TEXT),
}
"""Variables of ``/why``: tests of the causes of each head's difference from random heads."""


SCORES_SCHEMA: dict[str, dict[str, Variable]] = {
    "heads": heads_schema(QK),
    **_MATRICES,
    "null": null_schema(QK),
    "own_null": own_null_schema(QK),
    "head_elements": head_elements_schema(),
    "super_weights": SUPER_WEIGHTS_SCHEMA,
    "why": WHY_SCHEMA,
}
"""Variables of each group of a scores file. The groups of heads are those of W_QK in a model with one shape of heads;
further circuits (``tables.CIRCUITS``) have groups of the same kind, such as ``/circuits/ov/heads``.
``spectra`` are further variables of ``/matrices``, present if requested. ``/experts`` is present if experts were
scored, and has the variables of :func:`experts_schema`. ``own_null`` replaces ``null`` if each head has its own null
(``null_method`` is ``"resampled"``). ``head_elements`` is ``/heads/elements``, present if requested.
``/super_weights`` is present if matrices were scored, and ``/why`` if requested. All others are always present."""

_CIRCUIT_OF = {circuit_group(circuit): circuit for circuit in CIRCUITS.values()}
_HEADS = {
    f"{group}/{name}": schema
    for group, circuit in _CIRCUIT_OF.items()
    for name, schema in (("heads", heads_schema(circuit)), ("null", null_schema(circuit)))
}
OF_HEADS = {
    **dict.fromkeys(("d_model", "d_query", "d_head", "d_key", "d_value", "d_output"), SIZE),
    **dict.fromkeys(("n_heads", "n_key_heads"), SIZE),
    **dict.fromkeys(("p_value_floor", "edge_level"), PROBABILITY),
    **dict.fromkeys(("null", "table"), TEXT),
    "null_draws": COUNT,
    "null_method": Domain("a null", kinds="OUT", choices=("analytic", "simulated", "resampled")),
    "circuit": Domain("a circuit", kinds="OUT", choices=tuple(CIRCUITS)),
}
"""Attributes of groups of heads."""


def _schema_of(group: str, groups: Mapping[str, Outline]) -> Schema:
    """Return the schema of a group; a null's depends on the number of shapes, and on whether heads share it."""
    if not group.endswith("/null"):
        return SCORES.groups[group]
    circuit = _CIRCUIT_OF[group.removesuffix("/null")]
    if groups[""].attrs.get("null_method") == "resampled":
        return own_null_schema(circuit)
    return null_schema(circuit, several="shape" in groups[group].sizes)


SCORES = register(
    Kind(
        "scores",
        {
            "": {},
            **_HEADS,
            "/matrices": SCORES_SCHEMA["matrices"] | SCORES_SCHEMA["spectra"],
            "/experts": experts_schema(),
            "/heads/elements": head_elements_schema(),
            "/super_weights": SUPER_WEIGHTS_SCHEMA,
            "/why": WHY_SCHEMA,
        },
        EVERY_FILE
        | dict.fromkeys(("model", "family", "null", "table"), TEXT)
        | {"null_method": OF_HEADS["null_method"]},
        {
            **NORMALIZATION,
            **OF_HEADS,
            **dict.fromkeys(("notes", "warnings", "folded", "updates"), JSON_LIST),
            "n_layers": SIZE,
            "revision": TEXT,
            "initialization": Domain("an initialisation", kinds="OUT", choices=INITIALIZATIONS),
        },
        frozenset(
            {"/matrices", "/experts", "/heads/elements", "/super_weights", "/why", *_HEADS} - {"/heads", "/null"}
        ),
        relations=(circuits_whole, sizes_known, shapes_fit),
        described=frozenset(_CIRCUIT_OF),
        schema_of=_schema_of,
    )
)
