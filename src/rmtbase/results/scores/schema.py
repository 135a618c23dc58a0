"""Schema of a scores file, group by group."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import xarray as xr

from rmtbase.parameters import INITIALIZATIONS
from rmtbase.shown import quoted
from rmtbase.tables import (
    CIRCUITS,
    EVERY_FILE,
    NORMALIZATION,
    QK,
    Circuit,
    Fault,
    Kind,
    Outline,
    Schema,
    Variable,
    register,
)
from rmtbase.tables.domain import (
    AT_MOST_ONE_OR_NAN,
    COUNT,
    COUNT_OR_NAN,
    EDGES,
    FALLING,
    FINITE,
    FLAG_OR_NAN,
    JSON_LIST,
    NON_NEGATIVE_OR_NAN,
    NUMBERS_OF_LAYERS,
    PROBABILITY,
    REASON,
    RISING,
    SIZE,
    SIZE_OR_NAN,
    SPREAD,
    TEXT,
    Domain,
)

_HEAD, _MATRIX = ("layer", "head"), ("layer", "component")
_head, _matrix = partial(Variable, _HEAD), partial(Variable, _MATRIX)
_head_statistic = partial(Variable, (*_HEAD, "statistic"))
_matrix_statistic = partial(Variable, (*_MATRIX, "statistic"))
_spectral = partial(Variable, _MATRIX, part="spectra")
_density = partial(Variable, ("bin",), domain=NON_NEGATIVE_OR_NAN, units="1/lambda")
_super_weight, _test = partial(Variable, ("super_weight",)), partial(Variable, ("layer", "head", "test"))

_NO_STD = "NaN where its fourth moment is infinite, without which draws do not tell it"
_Z = "(observed - null_mean) / null_std; without a null_std the z of a normal law that has the p-value"
_OVER_ALL = "Benjamini-Hochberg q-value over all {}, each statistic by itself"
_OUTLIERS = {side: f"eigenvalues {side} the null's edge quantile on that side" for side in ("above", "below")}
_ANY = "log10 of the probability that any of the matrix's elements is so large, under the"

_RELATION = {
    "relation": _head(
        "(S - h/d) / (1 - h/d), S the share of |W_QK|_F^2 whose key side lies in the row space of W_Q; NaN where W_Q "
        "has no full rank, or queries and keys read different streams",
        AT_MOST_ONE_OR_NAN,
    ),
    "relation_upper": _head("95 % point of relation for random row spaces, at the head's spectrum", AT_MOST_ONE_OR_NAN),
    "relation_p_value": _head("p-value of so large a relation for random row spaces, at its spectrum", PROBABILITY),
    "relation_q_value": _head("Benjamini-Hochberg q-value of relation_p_value over all heads", PROBABILITY),
}


def _moved_schema(circuit: Circuit, dims: tuple[str, ...] = ()) -> dict[str, Variable]:
    schema = {}
    for name in ("moved_share", "moved_share_equal_axes")[: 1 + circuit.head_axes]:
        words = f"95 % point of {name} over random heads; NaN where it is not known"
        schema[f"{name}_upper"] = Variable(dims, words, PROBABILITY)
        schema[f"{name}_upper_standard_error"] = Variable(dims, f"standard error of {name}_upper", PROBABILITY)
    if circuit.head_axes:
        words = "mean ordered eigenvalue of random heads with each row of each factor scaled to norm 1; NaN if unknown"
        schema["eigenvalue_mean_equal_axes"] = Variable((*dims, "index"), words, SPREAD)
    return schema


def heads_schema(circuit: Circuit) -> dict[str, Variable]:
    """Return the variables of the scores of all heads by one circuit, such as ``/heads``.

    A layer with fewer heads or a smaller rank than another is padded: with NaN, key_head with 0, names with "".
    """
    own = "of the null at the head's own sigma estimates"
    sigmas = {
        factor.sigma: f"estimate of sigma_{factor.letter}, sqrt(|{factor.symbol}|_F^2 / (d h))"
        for factor in circuit.factors
    }
    schema = {
        "observed": _head_statistic(f"observed value, {_raw(circuit)} {circuit.formula}"),
        "null_mean": _head_statistic(f"mean {own}; NaN where it is infinite, or no null of the statistic is known"),
        "null_std": _head_statistic(f"standard deviation {own}; {_NO_STD}", SPREAD),
        "null_quantile": Variable((*_HEAD, "statistic", "probability"), f"quantile {own}", RISING),
        "z_score": _head_statistic(_Z),
        "p_value": _head_statistic("two-sided p-value against the null", PROBABILITY),
        "q_value": _head_statistic(_OVER_ALL.format("heads of the model"), PROBABILITY),
        "omnibus_p_value": _head(
            "p-value of all statistics together: of the largest distance, against the null draws' own largest; where "
            "the null is analytic, the Cauchy combination of the statistics' p-values",
            PROBABILITY,
        ),
        "farthest_statistic": _head(
            "statistic with the largest distance from the null: |z|, of ln x where x > 0 has no upper bound", TEXT
        ),
        "omnibus_q_value": _head("Benjamini-Hochberg q-value of omnibus_p_value over all heads", PROBABILITY),
        "moved_share": _head(
            "share of the sum of eigenvalues to move between the ordered ones to give the null's mean spectrum: half "
            "the sum of |difference of the shares|; NaN where the product is zero",
            PROBABILITY,
        ),
        "moved_towards_fewer": _head(
            "what the strongest eigenvalues, at the most, hold beyond their share in the null's mean", PROBABILITY
        ),
        "moved_towards_more": _head(
            "what the weakest eigenvalues, at the most, hold beyond their share in the null's mean", PROBABILITY
        ),
        "moved_share_equal_axes": _head(
            "moved_share with each row of each factor scaled to one norm, against random heads treated alike; NaN "
            "where these are not known",
            PROBABILITY,
        ),
        **(_RELATION if circuit == QK else {}),
        **{name: _head(words, NON_NEGATIVE_OR_NAN) for name, words in sigmas.items()},
        **{f"outliers_{side}": _head(words, COUNT_OR_NAN) for side, words in _OUTLIERS.items()},
        "reason": _head("why the head cannot be tested; empty where it was tested", REASON),
        "key_head": _head("index of the key head that the query head reads", COUNT),
        "eigenvalue": Variable(
            (*_HEAD, "index"),
            f"eigenvalues of {circuit.symbol}^T {circuit.symbol}, descending, {_raw(circuit)}",
            FALLING,
        ),
    }
    unmeasured = {"moved_share_equal_axes": not circuit.head_axes, "key_head": len(circuit.factors) == 1}
    return {name: variable for name, variable in schema.items() if not unmeasured.get(name)}


def null_schema(circuit: Circuit, several: bool = False) -> dict[str, Variable]:
    """Return the variables of the null of all heads by one circuit, such as ``/null``.

    If the heads of a model have several shapes, each shape has a null, and each variable a first dimension ``shape``.
    """
    raw, law = _raw(circuit), "free-product" if len(circuit.factors) > 1 else "Marchenko-Pastur"
    schema = {
        "eigenvalue_mean": Variable(("index",), f"mean ordered eigenvalue of the null, sigma = 1, {raw}", SPREAD),
        "eigenvalue_quantile": Variable(
            ("index", "probability"),
            f"quantile of the null's ordered eigenvalue, each draw at its own estimate of sigma, {raw}; where the "
            "null is analytic, of a gamma law but for the extreme eigenvalues",
            RISING,
        ),
        "bin_edge": Variable(("edge",), f"edges of the histogram bins in lambda, sigma = 1, {raw}", EDGES),
        "density": _density("Monte Carlo density of the null's eigenvalues, bin average; density_free if analytic"),
        "density_standard_error": _density("standard error of the Monte Carlo density; 0 where the null is analytic"),
        "density_free": _density(f"bin average of the {law} density"),
        "edge_quantile_lower": Variable((), "edge quantile of the self-normalised smallest eigenvalue", SPREAD),
        "edge_quantile_upper": Variable((), "edge quantile of the self-normalised largest eigenvalue", SPREAD),
        **_moved_schema(circuit),
    }
    if not several:
        return schema
    of_shape = partial(Variable, ("shape",))
    return {
        **{name: replace(variable, dims=("shape", *variable.dims)) for name, variable in schema.items()},
        **{name: of_shape(f"{name} of the shape", SIZE) for name in circuit.dims},
        "layer_shape": Variable(("layer",), "place of the layer's shape along the dimension shape", COUNT),
        "null_draws": of_shape("number of null draws; 0 where the null is analytic", COUNT),
        "p_value_floor": of_shape("smallest p-value of one statistic", PROBABILITY),
        "null_source": of_shape("where the null came from", TEXT),
    }


def own_null_schema(circuit: Circuit) -> dict[str, Variable]:
    """Return the variables of ``/null`` if each head has its own null."""
    scale = " ".join(f"{factor.sigma}^2" for factor in circuit.factors)
    words = f"ordered eigenvalue of the head's own null, over its {scale}, {_raw(circuit)}"
    return {
        "eigenvalue_mean": Variable((*_HEAD, "index"), f"mean {words}", SPREAD),
        "eigenvalue_quantile": Variable((*_HEAD, "index", "probability"), f"quantile of the {words}", RISING),
        "edge_quantile_lower": _head("edge quantile of the smallest eigenvalue of the head's own null", SPREAD),
        "edge_quantile_upper": _head("edge quantile of the largest eigenvalue of the head's own null", SPREAD),
        **_moved_schema(circuit, _HEAD),
    }


def _raw(circuit: Circuit) -> str:
    return "raw product" if len(circuit.factors) > 1 else "raw matrix"


_MATRICES: dict[str, Variable] = {
    "observed": _matrix_statistic("observed value"),
    "null_mean": _matrix_statistic("mean of the null; NaN where it is infinite"),
    "null_std": _matrix_statistic(f"standard deviation of the null; {_NO_STD}", SPREAD),
    "z_score": _matrix_statistic(_Z),
    "p_value": _matrix_statistic("two-sided p-value against the null", PROBABILITY),
    "q_value": _matrix_statistic(
        f"{_OVER_ALL.format('matrices of the model')}; over those of queries, keys and values together by themselves",
        PROBABILITY,
    ),
    "sigma": _matrix("standard deviation of the elements", NON_NEGATIVE_OR_NAN),
    "n_rows": _matrix("rows (outputs)", SIZE_OR_NAN),
    "n_columns": _matrix("columns (inputs)", SIZE_OR_NAN),
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
    "reason": _matrix("why statistics of the elements are missing; empty where none is", REASON),
}
_TAILS: dict[str, Variable] = {
    "tail_reason": _matrix(
        "why the largest elements cannot be compared with a tail; empty where they were, or the matrix is of parts",
        REASON,
    ),
    "heavy_tail": _matrix(
        "1 where the tail is heavier than a normal law's, so that only a gap can show a super-weight; NaN without tail",
        FLAG_OR_NAN,
    ),
}
_SPECTRA: dict[str, Variable] = {
    **{f"outliers_{side}": _spectral(words, COUNT_OR_NAN) for side, words in _OUTLIERS.items()},
    "marchenko_pastur_distance": _spectral(
        "largest distance between the spectrum's distribution function and Marchenko-Pastur's", PROBABILITY
    ),
}


def matrices_schema(spectra: bool = True, experts: bool = False) -> dict[str, Variable]:
    """Return the variables of ``/matrices``, or of ``/experts`` for each expert, with or without spectra."""
    schema = _MATRICES | _TAILS | (_SPECTRA if spectra else {})
    if not experts:
        return schema
    q_value = replace(schema["q_value"], long_name=_OVER_ALL.format("matrices of experts"))
    return _with_axes({"layer": ("layer", "expert")}, schema | {"q_value": q_value})


def _with_axes(axes: Mapping[str, tuple[str, ...]], schema: Mapping[str, Variable]) -> dict[str, Variable]:
    return {
        name: replace(variable, dims=tuple(new for dim in variable.dims for new in axes.get(dim, (dim,))))
        for name, variable in schema.items()
    }


def head_elements_schema() -> dict[str, Variable]:
    """Return the variables of ``/heads/elements``: those of ``/matrices``, for W_Q, W_K, W_V, W_O, W_QK of heads."""
    words = {
        "p_value": "two-sided p-value against the null; that of W_QK knows that elements of a row or column depend",
        "q_value": "Benjamini-Hochberg q-value over all heads of the model, each component and statistic by itself",
    }
    renamed = {name: replace(_MATRICES[name], long_name=long_name) for name, long_name in words.items()}
    return _with_axes({"layer": _HEAD, "statistic": ("element_statistic",)}, _MATRICES | renamed)


SUPER_WEIGHTS_SCHEMA: dict[str, Variable] = {
    "layer": _super_weight("layer; -1 outside the layers", NUMBERS_OF_LAYERS),
    "stack": _super_weight("stack of the layer", TEXT),
    "component": _super_weight("weight matrix", TEXT),
    "expert": _super_weight("expert of a mixture; -1 where it is of none", NUMBERS_OF_LAYERS),
    "row": _super_weight("row (output) of the element", COUNT),
    "column": _super_weight("column (input) of the element", COUNT),
    "value": _super_weight("the element w", FINITE),
    "magnitude_over_core": _super_weight("|w| over the standard deviation of the matrix's core normal law", SPREAD),
    "isolation_p_value": _super_weight(
        "p-value of the gap below it or below a smaller one, in an exponential or a power's tail", PROBABILITY
    ),
    "log10_core_tail_probability": _super_weight(f"{_ANY} normal law of the core"),
    "log10_tail_probability": _super_weight(f"{_ANY} Weibull law of the body (trim 0.1)"),
    "pool": _super_weight("what the matrix is pooled with: components of a kind, in all layers", TEXT),
    "log10_pooled_tail_probability": _super_weight(
        "log10 of the probability that any element of the pool is so large, under the mixture of its matrices' core "
        "normal laws"
    ),
}
"""Variables of ``/super_weights``: isolated extremes of the scored matrices, the least probable first."""

WHY_SCHEMA: dict[str, Variable] = {
    "p_value": _test("p-value of all statistics of the test together", PROBABILITY),
    "q_value": _test(
        "Benjamini-Bogomolov q-value in one family of all heads and tests: the expected share of heads with a wrong "
        "cause among those with a named cause; tests that name no cause are a family of the heads without one",
        PROBABILITY,
    ),
    "yekutieli_q_value": _test("the same, whatever heads have in common", PROBABILITY),
    "holm_p_value": _test("Holm's p-value in the family: the chance of any wrong claim is no larger", PROBABILITY),
    "rejected": _test("1 if q_value < 0.05, 0 if not; NaN if not testable, or with too few draws"),
    "named": _test("1 if the test names a cause of the head", COUNT),
    "detectable": _test("smallest effect that a test at level 0.05 finds with probability 0.95"),
    "p_value_floor": _test("smallest possible p-value of the test, by the draws of the head", PROBABILITY),
    "verdict": _head("causes named, or unresolved, or not testable", TEXT),
    "meaning": Variable(("test",), "null hypothesis of the test", TEXT),
    "effect": Variable(("test",), "effect that detectable is the size of", TEXT),
}
"""Variables of ``/why``: tests of the causes of each head's difference from random heads."""


def circuit_group(circuit: Circuit) -> str:
    """Return the group that holds ``heads`` and ``null`` of a circuit; for W_QK the root, ""."""
    return "" if circuit == QK else f"/circuits/{circuit.name}"


def circuits_whole(groups: Mapping[str, xr.Dataset]) -> Fault:
    """Check that each further circuit has heads, a null, and an attribute that names it."""
    for place, circuit in _CIRCUIT_OF.items():
        needed = [place, f"{place}/heads", f"{place}/null"]
        if not place or not set(needed) & set(groups):
            continue
        if lacking := [quoted(name) for name in needed if name not in groups]:
            return f"no group {', '.join(lacking)}", f"all of {', '.join(needed)}"
        if groups[place].attrs.get("circuit") != circuit.name:
            return f"no attribute circuit = {circuit.name} of {quoted(place)}", "the name of its group"
    return None


def sizes_known(groups: Mapping[str, xr.Dataset]) -> Fault:
    """Check that each size of a circuit's matrices is an attribute, or a coordinate of its heads if layers differ."""
    for circuit, heads, _, attributes in _scored_circuits(groups):
        for name in circuit.dims:
            names = ["d_model", name] if circuit == QK and name != "d_head" else [name]
            if not (set(names) & set(attributes) or name in heads.coords):
                return f"no attribute {' nor '.join(sorted(names))}", f"{name} of {circuit.symbol}, or a coordinate"
    return None


def shapes_fit(groups: Mapping[str, xr.Dataset]) -> Fault:
    """Check that each layer has a shape with a null, if heads have several shapes."""
    for _, heads, null, _ in _scored_circuits(groups):
        if "layer_shape" not in null:
            continue
        shapes, layers = null["layer_shape"].values, heads.sizes["layer"]
        if shapes.size != layers:
            return f"layer_shape of {shapes.size} layers", f"{layers}, as /heads has"
        if (shapes >= null.sizes["shape"]).any():
            return f"layer_shape {shapes.max()} of {null.sizes['shape']} shapes", "the place of a shape"
    return None


def _scored_circuits(groups: Mapping[str, xr.Dataset]) -> Iterator[tuple[Circuit, xr.Dataset, xr.Dataset, Mapping]]:
    for place, circuit in _CIRCUIT_OF.items():
        if f"{place}/heads" in groups:
            yield circuit, groups[f"{place}/heads"], groups[f"{place}/null"], groups[place].attrs


_CIRCUIT_OF = {circuit_group(circuit): circuit for circuit in CIRCUITS.values()}
_HEADS = {
    f"{group}/{name}": schema
    for group, circuit in _CIRCUIT_OF.items()
    for name, schema in (("heads", heads_schema(circuit)), ("null", null_schema(circuit)))
}
_OTHERS = {
    "/matrices": matrices_schema(),
    "/experts": matrices_schema(experts=True),
    "/heads/elements": head_elements_schema(),
    "/super_weights": SUPER_WEIGHTS_SCHEMA,
    "/why": WHY_SCHEMA,
}
RESAMPLINGS = ("signs", "axes")
"""Nulls made from each head's own matrices."""

OF_HEADS = {
    **dict.fromkeys(("d_model", "d_query", "d_head", "d_key", "d_value", "d_output"), SIZE),
    **dict.fromkeys(("n_heads", "n_key_heads"), SIZE),
    **dict.fromkeys(("p_value_floor", "edge_level"), PROBABILITY),
    **dict.fromkeys(("null", "table"), TEXT),
    "null_draws": COUNT,
    "null_method": Domain("a null", kinds="OUT", choices=("analytic", "simulated", "resampled")),
    "null_entries": Domain("a law", kinds="OUT", choices=(*INITIALIZATIONS, "kurtosis", *RESAMPLINGS)),
    "circuit": Domain("a circuit", kinds="OUT", choices=tuple(CIRCUITS)),
}
"""Attributes of groups of heads. ``null`` describes the null for people, ``null_method`` is how it is known, and
``null_entries`` the law of its entries (``"kurtosis"``: each head's own), or how heads are resampled."""


def _schema_of(group: str, groups: Mapping[str, Outline]) -> Schema:
    """Return the schema of a group; a null's depends on the number of shapes, and on whether heads share it."""
    if not group.endswith("/null"):
        return SCORES.groups[group]
    circuit = _CIRCUIT_OF[group.removesuffix("/null")]
    if groups[""].attrs.get("null_method") == "resampled":
        return own_null_schema(circuit)
    return null_schema(circuit, several="shape" in groups[group].sizes)


# Variables of spectra, ``/heads/elements``, ``/why`` and circuits are there if requested, ``/super_weights`` and
# ``/experts`` if matrices and experts were scored.
SCORES = register(
    Kind(
        "scores",
        {"": {}, **_HEADS, **_OTHERS},
        EVERY_FILE
        | dict.fromkeys(("model", "family"), TEXT)
        | {name: OF_HEADS[name] for name in ("null", "table", "null_method", "null_entries")},
        {
            **NORMALIZATION,
            **OF_HEADS,
            **dict.fromkeys(("notes", "warnings", "folded", "updates"), JSON_LIST),
            "n_layers": SIZE,
            "revision": TEXT,
            "initialization": Domain("an initialisation", kinds="OUT", choices=INITIALIZATIONS),
        },
        frozenset({*_OTHERS, *_HEADS} - {"/heads", "/null"}),
        relations=(circuits_whole, sizes_known, shapes_fit),
        described=frozenset(_CIRCUIT_OF),
        schema_of=_schema_of,
    )
)
