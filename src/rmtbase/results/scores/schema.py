"""Schema of a scores file, group by group."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import xarray as xr

from rmtbase import tables
from rmtbase.parameters import INITIALIZATIONS
from rmtbase.shown import quoted
from rmtbase.tables import CIRCUITS, QK, Circuit, Fault, Schema, Variable, domain
from rmtbase.tables.domain import Domain

_HEAD, _MATRIX = ("layer", "head"), ("layer", "component")
_head, _matrix = partial(Variable, _HEAD), partial(Variable, _MATRIX)
_head_statistic = partial(Variable, (*_HEAD, "statistic"))
_matrix_statistic = partial(Variable, (*_MATRIX, "statistic"))
_spectral = partial(Variable, _MATRIX, part="spectra")
_density = partial(Variable, ("bin",), domain=domain.NON_NEGATIVE_OR_NAN, units="1/lambda")
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
        domain.AT_MOST_ONE_OR_NAN,
    ),
    "relation_upper": _head(
        "95 % point of relation for random row spaces, at the head's spectrum", domain.AT_MOST_ONE_OR_NAN
    ),
    "relation_p_value": _head(
        "p-value of so large a relation for random row spaces, at its spectrum", domain.PROBABILITY
    ),
    "relation_q_value": _head("Benjamini-Hochberg q-value of relation_p_value over all heads", domain.PROBABILITY),
}


def _moved_schema(circuit: Circuit, dims: tuple[str, ...] = ()) -> dict[str, Variable]:
    schema = {}
    for name in ("moved_share", "moved_share_equal_axes")[: 1 + circuit.head_axes]:
        words = f"95 % point of {name} over random heads; NaN where it is not known"
        schema[f"{name}_upper"] = Variable(dims, words, domain.PROBABILITY)
        schema[f"{name}_upper_standard_error"] = Variable(dims, f"standard error of {name}_upper", domain.PROBABILITY)
    if circuit.head_axes:
        words = "mean ordered eigenvalue of random heads with each row of each factor scaled to norm 1; NaN if unknown"
        schema["eigenvalue_mean_equal_axes"] = Variable((*dims, "index"), words, domain.SPREAD)
    return schema


def heads_schema(circuit: Circuit) -> dict[str, Variable]:
    """Return the variables of ``/heads`` of a circuit; absent heads and ranks are NaN, in key_head 0, in names ""."""
    own = "of the null at the head's own sigma estimates"
    words = "estimate of sigma_{0.letter}, sqrt(|{0.symbol}|_F^2 / (d h))"
    schema = {
        "observed": _head_statistic(f"observed value, {_raw(circuit)} {circuit.formula}"),
        "null_mean": _head_statistic(f"mean {own}; NaN where it is infinite, or no null of the statistic is known"),
        "null_std": _head_statistic(f"standard deviation {own}; {_NO_STD}", domain.SPREAD),
        "null_quantile": Variable((*_HEAD, "statistic", "probability"), f"quantile {own}", domain.RISING),
        "z_score": _head_statistic(_Z),
        "p_value": _head_statistic("two-sided p-value against the null", domain.PROBABILITY),
        "q_value": _head_statistic(_OVER_ALL.format("heads of the model"), domain.PROBABILITY),
        "omnibus_p_value": _head(
            "p-value of all statistics together: of the largest distance, against the null draws' own largest; where "
            "the null is analytic, the Cauchy combination of the statistics' p-values",
            domain.PROBABILITY,
        ),
        "farthest_statistic": _head(
            "statistic with the largest distance from the null: |z|, of ln x where x > 0 has no upper bound",
            domain.TEXT,
        ),
        "omnibus_q_value": _head("Benjamini-Hochberg q-value of omnibus_p_value over all heads", domain.PROBABILITY),
        "moved_share": _head(
            "share of the sum of eigenvalues to move between the ordered ones to give the null's mean spectrum: half "
            "the sum of |difference of the shares|; NaN where the product is zero",
            domain.PROBABILITY,
        ),
        "moved_towards_fewer": _head(
            "what the strongest eigenvalues, at the most, hold beyond their share in the null's mean",
            domain.PROBABILITY,
        ),
        "moved_towards_more": _head(
            "what the weakest eigenvalues, at the most, hold beyond their share in the null's mean", domain.PROBABILITY
        ),
        "moved_share_equal_axes": _head(
            "moved_share with each row of each factor scaled to one norm, against random heads treated alike; NaN "
            "where these are not known",
            domain.PROBABILITY,
        ),
        **(_RELATION if circuit == QK else {}),
        **{factor.sigma: _head(words.format(factor), domain.NON_NEGATIVE_OR_NAN) for factor in circuit.factors},
        **{f"outliers_{side}": _head(words, domain.COUNT_OR_NAN) for side, words in _OUTLIERS.items()},
        "reason": _head("why the head cannot be tested; empty where it was tested", domain.REASON),
        "key_head": _head("index of the key head that the query head reads", domain.COUNT),
        "eigenvalue": Variable(
            (*_HEAD, "index"),
            f"eigenvalues of {circuit.symbol}^T {circuit.symbol}, descending, {_raw(circuit)}",
            domain.FALLING,
        ),
    }
    unmeasured = {"moved_share_equal_axes": not circuit.head_axes, "key_head": len(circuit.factors) == 1}
    return {name: variable for name, variable in schema.items() if not unmeasured.get(name)}


def null_schema(circuit: Circuit, several: bool = False) -> dict[str, Variable]:
    """Return the variables of ``/null`` of a circuit, of several shapes with a first dimension ``shape``."""
    raw, law = _raw(circuit), "free-product" if len(circuit.factors) > 1 else "Marchenko-Pastur"
    schema = {
        "eigenvalue_mean": Variable(
            ("index",), f"mean ordered eigenvalue of the null, sigma = 1, {raw}", domain.SPREAD
        ),
        "eigenvalue_quantile": Variable(
            ("index", "probability"),
            f"quantile of the null's ordered eigenvalue, each draw at its own estimate of sigma, {raw}; where the "
            "null is analytic, of a gamma law but for the extreme eigenvalues",
            domain.RISING,
        ),
        "bin_edge": Variable(("edge",), f"edges of the histogram bins in lambda, sigma = 1, {raw}", domain.EDGES),
        "density": _density("Monte Carlo density of the null's eigenvalues, bin average; density_free if analytic"),
        "density_standard_error": _density("standard error of the Monte Carlo density; 0 where the null is analytic"),
        "density_free": _density(f"bin average of the {law} density"),
        "edge_quantile_lower": Variable((), "edge quantile of the self-normalised smallest eigenvalue", domain.SPREAD),
        "edge_quantile_upper": Variable((), "edge quantile of the self-normalised largest eigenvalue", domain.SPREAD),
        **_moved_schema(circuit),
    }
    if not several:
        return schema
    of_shape = partial(Variable, ("shape",))
    return {
        **{name: replace(variable, dims=("shape", *variable.dims)) for name, variable in schema.items()},
        **{name: of_shape(f"{name} of the shape", domain.SIZE) for name in circuit.dims},
        "layer_shape": Variable(("layer",), "place of the layer's shape along the dimension shape", domain.COUNT),
        "null_draws": of_shape("number of null draws; 0 where the null is analytic", domain.COUNT),
        "p_value_floor": of_shape("smallest p-value of one statistic", domain.PROBABILITY),
        "null_source": of_shape("where the null came from", domain.TEXT),
    }


def own_null_schema(circuit: Circuit) -> dict[str, Variable]:
    """Return the variables of ``/null`` if each head has its own null."""
    scale = " ".join(f"{factor.sigma}^2" for factor in circuit.factors)
    words = f"ordered eigenvalue of the head's own null, over its {scale}, {_raw(circuit)}"
    return {
        "eigenvalue_mean": Variable((*_HEAD, "index"), f"mean {words}", domain.SPREAD),
        "eigenvalue_quantile": Variable((*_HEAD, "index", "probability"), f"quantile of the {words}", domain.RISING),
        "edge_quantile_lower": _head("edge quantile of the smallest eigenvalue of the head's own null", domain.SPREAD),
        "edge_quantile_upper": _head("edge quantile of the largest eigenvalue of the head's own null", domain.SPREAD),
        **_moved_schema(circuit, _HEAD),
    }


def _raw(circuit: Circuit) -> str:
    return "raw product" if len(circuit.factors) > 1 else "raw matrix"


_MATRICES: dict[str, Variable] = {
    "observed": _matrix_statistic("observed value"),
    "null_mean": _matrix_statistic("mean of the null; NaN where it is infinite"),
    "null_std": _matrix_statistic(f"standard deviation of the null; {_NO_STD}", domain.SPREAD),
    "z_score": _matrix_statistic(_Z),
    "p_value": _matrix_statistic("two-sided p-value against the null", domain.PROBABILITY),
    "q_value": _matrix_statistic(
        f"{_OVER_ALL.format('matrices of the model')}; over those of queries, keys and values together by themselves",
        domain.PROBABILITY,
    ),
    "sigma": _matrix("standard deviation of the elements", domain.NON_NEGATIVE_OR_NAN),
    "n_rows": _matrix("rows (outputs)", domain.SIZE_OR_NAN),
    "n_columns": _matrix("columns (inputs)", domain.SIZE_OR_NAN),
    "histogram": Variable(
        (*_MATRIX, "bin"),
        "density of the elements, less their mean and over their standard deviation; what lies beyond is in no bin",
        domain.NON_NEGATIVE_OR_NAN,
    ),
    "log_magnitude_histogram": Variable(
        (*_MATRIX, "magnitude_bin"),
        "density of log10 of the elements' magnitudes; what lies beyond, zeros among it, is in no bin",
        domain.NON_NEGATIVE_OR_NAN,
    ),
    "bin": Variable(("bin",), "(w - mean) / std, centre of the bin", domain.EDGES),
    "magnitude_bin": Variable(("magnitude_bin",), "log10 |w|, centre of the bin", domain.EDGES),
    "reason": _matrix("why statistics of the elements are missing; empty where none is", domain.REASON),
}
_TAILS: dict[str, Variable] = {
    "tail_reason": _matrix(
        "why the largest elements cannot be compared with a tail; empty where they were, or the matrix is of parts",
        domain.REASON,
    ),
    "heavy_tail": _matrix(
        "1 where the tail is heavier than a normal law's, so that only a gap can show a super-weight; NaN without tail",
        domain.FLAG_OR_NAN,
    ),
}
_SPECTRA: dict[str, Variable] = {
    **{f"outliers_{side}": _spectral(words, domain.COUNT_OR_NAN) for side, words in _OUTLIERS.items()},
    "marchenko_pastur_distance": _spectral(
        "largest distance between the spectrum's distribution function and Marchenko-Pastur's", domain.PROBABILITY
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
    "layer": _super_weight("layer; -1 outside the layers", domain.NUMBERS_OF_LAYERS),
    "stack": _super_weight("stack of the layer", domain.TEXT),
    "component": _super_weight("weight matrix", domain.TEXT),
    "expert": _super_weight("expert of a mixture; -1 where it is of none", domain.NUMBERS_OF_LAYERS),
    "row": _super_weight("row (output) of the element", domain.COUNT),
    "column": _super_weight("column (input) of the element", domain.COUNT),
    "value": _super_weight("the element w", domain.FINITE),
    "magnitude_over_core": _super_weight(
        "|w| over the standard deviation of the matrix's core normal law", domain.SPREAD
    ),
    "isolation_p_value": _super_weight(
        "p-value of the gap below it or below a smaller one, in an exponential or a power's tail", domain.PROBABILITY
    ),
    "log10_core_tail_probability": _super_weight(f"{_ANY} normal law of the core"),
    "log10_tail_probability": _super_weight(f"{_ANY} Weibull law of the body (trim 0.1)"),
    "pool": _super_weight("what the matrix is pooled with: components of a kind, in all layers", domain.TEXT),
    "log10_pooled_tail_probability": _super_weight(
        "log10 of the probability that any element of the pool is so large, under the mixture of its matrices' core "
        "normal laws"
    ),
}
"""Variables of ``/super_weights``: isolated extremes of the scored matrices, the least probable first."""

WHY_SCHEMA: dict[str, Variable] = {
    "p_value": _test("p-value of all statistics of the test together", domain.PROBABILITY),
    "q_value": _test(
        "Benjamini-Bogomolov q-value in one family of all heads and tests: the expected share of heads with a wrong "
        "cause among those with a named cause; tests that name no cause are a family of the heads without one",
        domain.PROBABILITY,
    ),
    "yekutieli_q_value": _test("the same, whatever heads have in common", domain.PROBABILITY),
    "holm_p_value": _test(
        "Holm's p-value in the family: the chance of any wrong claim is no larger", domain.PROBABILITY
    ),
    "rejected": _test("1 if q_value < 0.05, 0 if not; NaN if not testable, or with too few draws"),
    "named": _test("1 if the test names a cause of the head", domain.COUNT),
    "detectable": _test("smallest effect that a test at level 0.05 finds with probability 0.95"),
    "p_value_floor": _test("smallest possible p-value of the test, by the draws of the head", domain.PROBABILITY),
    "verdict": _head("causes named, or unresolved, or not testable", domain.TEXT),
    "meaning": Variable(("test",), "null hypothesis of the test", domain.TEXT),
    "effect": Variable(("test",), "effect that detectable is the size of", domain.TEXT),
}
"""Variables of ``/why``: tests of the causes of each head's difference from random heads."""


def circuit_group(circuit: Circuit) -> str:
    """Return the group that holds ``heads`` and ``null`` of a circuit; for W_QK the root, ""."""
    return "" if circuit == QK else f"/circuits/{circuit.name}"


def circuits_whole(groups: Mapping[str, xr.Dataset]) -> Fault:
    """Check that each circuit has heads, a null of the shape of each layer, its name, and the sizes of its matrices."""
    for place, circuit in _CIRCUIT_OF.items():
        needed = [place, f"{place}/heads", f"{place}/null"]
        if not set(needed) & set(groups):
            continue
        if lacking := [quoted(name) for name in needed if name not in groups]:
            return f"no group {', '.join(lacking)}", f"all of {', '.join(needed)}"
        root, heads, null = (groups[name] for name in needed)
        if place and root.attrs.get("circuit") != circuit.name:
            return f"no attribute circuit = {circuit.name} of {quoted(place)}", "the name of its group"
        for name in circuit.dims:
            names = ["d_model", name] if circuit == QK and name != "d_head" else [name]
            if not (set(names) & set(root.attrs) or name in heads.coords):
                return f"no attribute {' nor '.join(sorted(names))}", f"{name} of {circuit.symbol}, or a coordinate"
        shapes, layers = null["layer_shape"].values if "layer_shape" in null else None, heads.sizes["layer"]
        if shapes is not None and shapes.size != layers:
            return f"layer_shape of {shapes.size} layers", f"{layers}, as /heads has"
        if shapes is not None and (shapes >= null.sizes["shape"]).any():
            return f"layer_shape {shapes.max()} of {null.sizes['shape']} shapes", "the place of a shape"
    return None


_CIRCUIT_OF = {circuit_group(circuit): circuit for circuit in CIRCUITS.values()}
_GROUPS = {
    **{f"{group}/heads": heads_schema(circuit) for group, circuit in _CIRCUIT_OF.items()},
    **{f"{group}/null": null_schema(circuit) for group, circuit in _CIRCUIT_OF.items()},
    "/matrices": matrices_schema(),
    "/experts": matrices_schema(experts=True),
    "/heads/elements": head_elements_schema(),
    "/super_weights": SUPER_WEIGHTS_SCHEMA,
    "/why": WHY_SCHEMA,
}
RESAMPLINGS = ("signs", "axes")
"""Nulls made from each head's own matrices."""

OF_HEADS = {
    **dict.fromkeys(("d_model", "d_query", "d_head", "d_key", "d_value", "d_output"), domain.SIZE),
    **dict.fromkeys(("n_heads", "n_key_heads"), domain.SIZE),
    **dict.fromkeys(("p_value_floor", "edge_level"), domain.PROBABILITY),
    **dict.fromkeys(("null", "table"), domain.TEXT),
    "null_draws": domain.COUNT,
    "null_method": Domain("a null", kinds="OUT", choices=("analytic", "simulated", "resampled")),
    "null_entries": Domain("a law", kinds="OUT", choices=(*INITIALIZATIONS, "kurtosis", *RESAMPLINGS)),
    "circuit": Domain("a circuit", kinds="OUT", choices=tuple(CIRCUITS)),
}
"""Attributes of groups of heads. ``null`` describes the null for people, ``null_method`` is how it is known, and
``null_entries`` the law of its entries (``"kurtosis"``: each head's own), or how heads are resampled."""


def _schema_of(group: str, groups: Mapping[str, tables.Outline]) -> Schema:
    """Return the schema of a group; a null's depends on the number of shapes, and on whether heads share it."""
    if not group.endswith("/null"):
        return SCORES.groups[group]
    circuit = _CIRCUIT_OF[group.removesuffix("/null")]
    if groups[""].attrs.get("null_method") == "resampled":
        return own_null_schema(circuit)
    return null_schema(circuit, several="shape" in groups[group].sizes)


# Variables of spectra, ``/heads/elements``, ``/why`` and circuits are there if requested, ``/super_weights`` and
# ``/experts`` if matrices and experts were scored.
SCORES = tables.register(
    tables.Kind(
        "scores",
        {"": {}, **_GROUPS},
        tables.EVERY_FILE
        | dict.fromkeys(("model", "family"), domain.TEXT)
        | {name: OF_HEADS[name] for name in ("null", "table", "null_method", "null_entries")},
        {
            **tables.NORMALIZATION,
            **OF_HEADS,
            **dict.fromkeys(("notes", "warnings", "folded", "updates"), domain.JSON_LIST),
            "n_layers": domain.SIZE,
            "revision": domain.TEXT,
            "initialization": Domain("an initialisation", kinds="OUT", choices=INITIALIZATIONS),
        },
        frozenset(_GROUPS.keys() - {"/heads", "/null"}),
        relations=(circuits_whole,),
        described=frozenset(_CIRCUIT_OF),
        schema_of=_schema_of,
    )
)
