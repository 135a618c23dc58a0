"""A valid call of every public function and constructor, and values that are wrong for some argument of it."""

import dataclasses
import inspect
import math
import types
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

import rmtbase
from rmtbase import constants, ensembles, laws, models, montecarlo, statistics, tables
from rmtbase.laws import parents
from rmtbase.results import comparison, depth, register_all, scores, signal, trajectory

register_all()
DATA = Path(__file__).parent / "data"
RNG = np.random.default_rng(0)
HEAD = {"d_model": 12, "d_head": 4}
W = RNG.standard_normal((2, 8, 24))
EIGENVALUES = np.linalg.svd(RNG.standard_normal((20, 12)), compute_uv=False) ** 2
PACKAGES = (
    "constants", "ensembles", "laws", "linalg", "models", "montecarlo", "nulls", "statistics", "tables", "watch",
    "results.scores", "results.signal", "results.depth", "results.diff", "results.composition", "results.comparison",
    "results.trajectory",
)  # fmt: skip


class Text(str):
    pass


def wrong_values() -> dict[str, Any]:
    """Values by what they are, new ones at each call: most are wrong for most arguments."""
    return {
        "None": None, "text": "a", "empty text": "", "text of its own class": Text("b"), "NumPy text": np.str_("a"),
        "bytes": b"x", "bytearray": bytearray(b"12"), "path": Path("nowhere"),
        "nan": math.nan, "infinity": math.inf, "-1": -1, "0": 0, "half": 0.5, "2**31": 2**31, "2**64": 2**64,
        "10**400": 10**400, "complex": 1j, "True": True, "Fraction": Fraction(-1, 3), "Decimal": Decimal("NaN"),
        "NumPy integer": np.int64(-1), "NumPy float": np.float32(np.nan), "NumPy bool": np.True_,
        "date": np.datetime64("NaT"), "empty list": [], "list of a list": [[]], "list of a text": ["a"],
        "list of None": [None], "pair": (1, 2), "empty dict": {}, "dict": {"a": 1}, "dict of a number": {1: "a"},
        "set": {1, 2}, "range": range(3), "generator": (x for x in (1, 2)), "iterator": iter("ab"),
        "object": object(), "function": lambda: None, "class": int, "exception": ValueError("a"), "Ellipsis": ...,
        "module": math, "Dataset": xr.Dataset(), "DataTree": xr.DataTree(),
        "0-d array": np.array(3.5), "3-d array": np.zeros((2, 2, 2)), "empty array": np.zeros((0, 3)),
        "array of texts": np.array(["a"]), "array of complex": np.array([1j]), "array of objects": np.array([object()]),
        "array of nan": np.array([[np.nan]]), "masked": np.ma.masked_array([1.0, 2.0], [True, False]),
    }  # fmt: skip


class Call(NamedTuple):
    """A valid call."""

    name: str
    function: Callable[..., Any]
    make: Callable[[], dict[str, Any]]

    def with_wrong(self, name: str, value: object) -> Any:
        """Call it with one wrong argument, and begin what it would do later."""
        parameters = inspect.signature(self.function).parameters
        arguments = self.make()
        if parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
            shape = [arguments.pop(one) for one, kind in parameters.items() if kind.kind is kind.POSITIONAL_OR_KEYWORD]
            result = self.function(*shape, value, **{one: x for one, x in arguments.items() if one not in HEAD})
        else:
            result = self.function(**{**arguments, name: value})
        if isinstance(result, types.GeneratorType):
            next(result, None)
        return result

    def parameters(self) -> dict[str, inspect.Parameter]:
        """All parameters by name, also those that the valid call leaves out."""
        parameters = inspect.signature(self.function).parameters
        return {
            name: parameter for name, parameter in parameters.items() if parameter.kind is not parameter.VAR_KEYWORD
        }


def public_targets() -> dict[str, Any]:
    """Public functions and classes by package and name."""
    modules = {package: import_module(f"rmtbase.{package}") for package in PACKAGES}
    named = {
        f"{package}.{name}": getattr(module, name) for package, module in modules.items() for name in module.__all__
    }
    named["results.open_table"] = rmtbase.open_table
    named |= {f"laws.parents.{name}": getattr(parents, name) for name in PARENTS}
    named |= {f"results.figures.{name}": getattr(rmtbase.results.figures, name) for name in FIGURES}
    return {name: value for name, value in named.items() if _takes_arguments(value)}


def _takes_arguments(value: Any) -> bool:
    if inspect.isfunction(value):
        return bool(inspect.signature(value).parameters)
    if not inspect.isclass(value) or getattr(value, "_is_protocol", False) or hasattr(value, "__total__"):
        return False
    return not (issubclass(value, Warning) or inspect.isabstract(value)) and bool(inspect.signature(value).parameters)


PARENTS = ("Normal", "Uniform", "TruncatedNormal", "Laplace", "Logistic", "StudentT", "VarianceGamma", "Mixture")
FIGURES = ("figures", "plot", "figure_names")


def fields_of(instance: Any) -> dict[str, Any]:
    """The arguments with which its class makes this instance."""
    if dataclasses.is_dataclass(instance):
        return {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance) if field.init}
    return {name: getattr(instance, name) for name in instance._fields}


@cache
def opened(kind: str) -> Any:
    """A table of the kind."""
    return rmtbase.open_table(DATA / f"{kind}.nc")


@cache
def scored() -> Any:
    """The scores of a tiny model of arrays."""
    return rmtbase.score_heads(W, W, "analytic", model="tiny")


def model() -> Any:
    """A tiny model in memory."""
    state = {
        f"model.layers.{layer}.self_attn.{part}_proj.weight": RNG.standard_normal((16, 16)).astype(np.float32)
        for layer in range(2)
        for part in "qkvo"
    }
    return models.open_model(state, family="llama", config={"num_attention_heads": 2, "head_dim": 8}, proof=False)


def valid_calls(folder: Path, quick: bool = False) -> Iterator[Call]:
    """A valid call of each public function and class, or of those that take no model; files go into the folder."""
    given = {**_laws(), **_ensembles(), **_statistics(), **_others(folder)}
    if not quick:
        given |= _results(folder) | _models()
    for name, value in public_targets().items():
        if quick and name.startswith(("results.", "models.")):
            continue
        valid = given[name]  # a new name needs a line below
        arguments = valid if isinstance(valid, dict | types.FunctionType) else fields_of(valid)
        yield Call(name, value, arguments if inspect.isfunction(arguments) else partial(dict, arguments))


def _laws() -> dict[str, Any]:
    chain = laws.GaussianChain(**HEAD)
    extreme, low = laws.largest_eigenvalue(**HEAD), laws.smallest_eigenvalue(8, 8)
    weibull = laws.weibull_null()
    of_chain = (
        "GaussianChain", "LogDeterminant", "RankOneSpike", "largest_eigenvalue", "smallest_eigenvalue",
        "low_rank_product",
        "naive_marchenko_pastur", "normalized_participation_ratio", "participation_ratio", "ordered_eigenvalues",
        "product_element", "nearest_neighbour_entropy", "nearest_neighbour_kl",
    )  # fmt: skip
    spike = laws.RankOneSpike(**HEAD)
    given: dict[str, Any] = {
        **dict.fromkeys(of_chain, HEAD),
        "AdamWNoise": {"learning_rate": 1e-3, "weight_decay": 0.1},
        "ContaminatedNormal": {"spike_weight": 0.1},
        "DimensionPolynomial": laws.trace_moment_polynomial((2,), ("n", "m")),
        "EdgeLaw": extreme,
        "HardEdgeLaw": low,
        "ElementNull": laws.element_null("excess_kurtosis", 100),
        "FreeMultiplicativeBrownian": {"t": 1.0},
        "HaarTrace": {"first": [[1.0, 2.0]], "second": [[1.0]], "d_model": 8},
        "LargeSampleLaw": weibull.shape,
        "LinearStatistics": laws.linear_statistics(chain, [np.log]),
        "Moments": laws.participation_ratio(**HEAD),
        "NoiseOptimum": laws.weibull_noise_optimum(),
        "NullLaw": laws.null("trace", **HEAD),
        "OrderedEigenvalues": laws.ordered_eigenvalues(**HEAD),
        "Outlier": spike.outlier(2.0 * spike.edge),
        "PathLength": {"depth": 4, "sigma": 0.1},
        "ProductElement": {"d_head": 8},
        "ResidualPath": {"depth": 4, "sigma": 0.1},
        "ResidualUpdate": {"depth": 4, "sigma": 0.1},
        "TraceMoments": laws.residual_trace_moments(4, 0.1, 12),
        "TracyWidom": {"beta": 2},
        "TwoPoint": {"skewness": 0.5},
        "WeibullAnchor": laws.weibull_anchor(),
        "WeibullClosure": laws.weibull_closure(),
        "WeibullNull": weibull,
        "eigenvalue_displacement": {"eigenvalue": 1.0, "excess_kurtosis": 1.0, **HEAD},
        "element_null": {"statistic": "excess_kurtosis", "n": 100},
        "histogram_entropy": HEAD | {"bins": 8, "range": (-3.0, 3.0)},
        "histogram_kl": HEAD | {"bins": 8, "range": (-3.0, 3.0)},
        "linear_statistics": {"law": chain, "functions": [np.log]},
        "marchenko_pastur": {"n_rows": 8, "n_columns": 4},
        "normal_entropy": {"sigma": 1.0},
        "normal_kl": {"sigma": 1.0, "sigma0": 2.0},
        "null": {"statistic": "trace", **HEAD},
        "pearson_bound": {"skewness": 0.5},
        "product_element_null": {"statistic": "excess_kurtosis", "d_query": 64, "d_head": 16, "d_key": 64},
        "residual_trace_moments": {"depth": 4, "sigma": 0.1, "d_model": 12},
        "trace_cumulant": {"powers": (2, 1), **HEAD},
        "trace_moment": {"partition": (2, 1), **HEAD},
        "trace_moment_polynomial": {"partition": (2,), "symbols": ("n", "m")},
        **{f"weibull_{name}": {} for name in ("anchor", "body_tail_gap", "closure", "noise_optimum", "null")},
    }
    of_parents = {f"parents.{name}": {} for name in PARENTS[:-1]}
    of_parents["parents.Mixture"] = {"components": (parents.Normal(1.0), parents.Normal(2.0)), "weights": (0.5, 0.5)}
    return {f"laws.{name}": arguments for name, arguments in {**given, **of_parents}.items()}


def _ensembles() -> dict[str, Any]:
    matrix = {"n_rows": 6, "n_columns": 4}
    given = {
        "AxisPermutedHead": ensembles.axis_permuted_head(W[0], W[1]),
        "SignFlippedHead": ensembles.sign_flipped_head(W[0], W[1]),
        "BidiagonalGaussianMatrix": ensembles.gaussian_matrix(6, 4),
        "DenseGaussianChain": ensembles.gaussian_chain((6, 4, 6), "dense"),
        "ThinGaussianChain": ensembles.gaussian_chain((6, 4, 6)),
        "Draw": {"matrix": np.eye(2), "norm_squared": np.ones(1)},
        "GroupedQueryProduct": ensembles.grouped_query_product(12, 4, 2),
        "IndependentChain": ensembles.independent_chain((6, 4, 6)),
        "InitializedMatrix": ensembles.initialized_matrix(6, 4),
        "OrthogonalMatrix": ensembles.initialized_matrix(6, 4, "orthogonal"),
        "OrthogonalBlocks": ensembles.orthogonal_blocks((12, 4, 12), (8, 8)),
        "RandomSubspaces": ensembles.random_subspaces(12, 4),
        "ResidualProduct": ensembles.residual_path(12, 4),
        "LogisticMatrix": {**matrix, "scale": 1.0},
        "StudentTMatrix": {**matrix, "scale": 1.0, "df": 5.0},
        "as_pytree": lambda: {"cls": dataclasses.make_dataclass("Some", ["x"])},
        "axis_permuted_head": {"w_q": W[0], "w_k": W[1]},
        "sign_flipped_head": {"w_q": W[0], "w_k": W[1]},
        "gaussian_chain": {"dims": (6, 4, 6)},
        "gaussian_matrix": matrix,
        "grouped_query_product": {**HEAD, "group": 2},
        "independent_chain": {"dims": (6, 4, 6)},
        "initialized_matrix": matrix,
        "logistic_matrix": {**matrix, "scale": 1.0},
        "student_t_matrix": {**matrix, "scale": 1.0, "df": 5.0},
        "low_rank_product": HEAD,
        "orthogonal_blocks": {"dims": (12, 4, 12), "rows": (8, 8)},
        "random_subspaces": HEAD,
        "residual_path": {"d_model": 12, "depth": 4},
    }
    return {f"ensembles.{name}": arguments for name, arguments in given.items()}


def _statistics() -> dict[str, Any]:
    sample, p_values = RNG.standard_normal(500), np.array([0.01, 0.5, 0.9])
    sketch = statistics.element_sketch([sample.reshape(20, 25)])
    spectrum = np.linalg.svd(RNG.standard_normal((4, 6)), compute_uv=False)
    moved = {"eigenvalues": np.array([3.0, 2.0, 1.0]), "null_mean": np.array([2.5, 2.0, 1.5])}
    given = {
        "ElementSketch": sketch,
        "ElementStatistic": next(iter(statistics.ELEMENT_STATISTICS.values())),
        "Statistic": next(iter(statistics.SPECTRAL_STATISTICS.values())),
        "LogisticFit": statistics.fit_logistic(sample),
        "StudentTFit": statistics.fit_student_t(RNG.standard_t(4, 500)),
        "WeibullFit": statistics.weibull_fit(sample),
        "WeibullLikelihoodFit": statistics.weibull_likelihood_fit(sample),
        **{name: {"p_values": p_values} for name in
           ("benjamini_hochberg", "benjamini_yekutieli", "cauchy_combination", "holm")},
        "element_sketch": {"blocks": [sample.reshape(20, 25)]},
        "element_statistics": {"sketch": sketch},
        "fit_logistic": {"matrix": sample},
        "fit_student_t": {"matrix": sample},
        "histogram_entropy": {"sample": sample, "bins": 8, "range": (-3.0, 3.0)},
        "histogram_kl": {"sample": sample, "bins": 8, "range": (-3.0, 3.0)},
        "moment_order": {
            "statistic": statistics.get_statistic("trace"), "extremes": statistics.ExtremeMoments(), "rank": 4,
        },
        "monte_carlo_p_value": {"observed": 0.5, "null_sample": sample},
        "moved_parts": moved,
        "moved_share": moved,
        "nearest_neighbour_entropy": {"sample": sample},
        "nearest_neighbour_kl": {"sample": sample},
        "spectral_statistics": {"singular_values": spectrum},
        "weibull_fit": {"sample": sample},
        "weibull_likelihood_fit": {"sample": sample},
    }  # fmt: skip
    return {f"statistics.{name}": arguments for name, arguments in given.items()}


def _results(folder: Path) -> dict[str, Any]:
    path = folder / "any.nc"
    rows = signal.signal_rows(opened("signal"))
    summary = scores.summarize_scores(opened("scores"))
    first = {"first": RNG.uniform(1, 2, 12), "second": RNG.uniform(1, 2, 12), "initial": np.arange(12) < 4}
    matrices = opened("scores")["matrices"].to_dataset()
    training = comparison.Training(1e-3, 0.1, 100)
    fits = {"shapes": [RNG.uniform(1.0, 1.2, 8)] * 2, "numbers": [np.full(8, 400)] * 2}
    return {
        "results.scores.HeadFinding": scores.summarize_scores(opened("scores-of-several-stacks")).findings[0],
        "results.scores.Summary": summary,
        "results.scores.circuit_scores": {"scores": opened("scores")},
        "results.scores.layer_coordinates": {"places": [models.Place("", 0)]},
        "results.scores.render": {"scores": opened("scores"), "pictures": False},
        "results.scores.score": {"model": model(), "null": "analytic", "matrices": "none"},
        "results.scores.score_heads": {"w_q": W, "w_k": W, "null": "analytic"},
        "results.scores.summarize_scores": {"tree": opened("scores")},
        "results.signal.HeavyTails": signal.heavy_tails(RNG.standard_normal((60, 60)), 19),
        "results.signal.LearnedPart": signal.learned_part(RNG.standard_normal((12, 20))),
        "results.signal.SignalRow": rows[0],
        "results.signal.SpectralSignal": signal.spectral_signal(EIGENVALUES, (20, 12)),
        "results.signal.TailSummary": {
            "what": "a", "spectra": 1, "exponent": 2.0, "null_low": 1.0, "null_high": 3.0, "heavier": 0, "verdicts": {},
        },
        "results.signal.heavy_tails": {"matrix": RNG.standard_normal((60, 60)), "draws": 19},
        "results.signal.learned_part": {"a": RNG.standard_normal((12, 20))},
        "results.signal.signal": {"model": model()},
        "results.signal.signal_rows": {"tree": opened("signal")},
        "results.signal.spectral_signal": {"eigenvalues": EIGENVALUES, "dims": (20, 12)},
        "results.signal.summarize_tails": {"rows": rows, "level": 0.05},
        "results.depth.EffectiveDepth": depth.effective_depth(RNG.standard_normal((12, 12)), draws=19, depths=(1, 2)),
        "results.depth.depth": {"model": model(), "draws": 19, "depths": (1,)},
        "results.depth.effective_depth": {
            "matrix_or_singular_values": RNG.standard_normal((12, 12)), "draws": 19, "depths": (1,),
        },
        "results.diff.diff": {"before": model(), "after": model()},
        "results.diff.element_divergence": {"model": model(), "initial": model()},
        "results.composition.composition": {"model": model()},
        "results.comparison.InitialSigmas": comparison.initial_sigmas("A", 12, 768),
        "results.comparison.PairedGrowth": comparison.paired_growth(**first, draws=19),
        "results.comparison.ScaleLaw": comparison.scale_law([1.0, 2.0, 3.0, 4.0], [1.0, 2.1, 3.2, 3.9]),
        "results.comparison.ShapeBand": comparison.shape_band(**fits, draws=19),
        "results.comparison.Training": training,
        "results.comparison.attention_class": {"n_heads": 4, "n_key_heads": 2},
        "results.comparison.attention_classes": {"scores": opened("scores")},
        "results.comparison.budget_state": {"budget": 0.5},
        "results.comparison.built_in_correlation": {"starts": EIGENVALUES, "ends": EIGENVALUES, "n_later": 4},
        "results.comparison.compare": {
            "models": dict.fromkeys("abcd", scored()), "permutations": 19, "initial": ["a"],
            "groups": {"g": ["a", "b"], "h": ["c", "d"]},
        },
        "results.comparison.initial_sigmas": {"recipe": "A", "n_layers": 12, "d_model": 768},
        "results.comparison.paired_growth": {**first, "draws": 19},
        "results.comparison.scale_law": {"roots": [1.0, 2.0, 3.0, 4.0], "scales": [1.0, 2.1, 3.2, 3.9]},
        "results.comparison.shape_band": {**fits, "draws": 19},
        "results.comparison.shape_drift": {"first": opened("scores"), "last": opened("scores")},
        "results.comparison.weibull_scales": {"matrices": matrices},
        "results.trajectory.TrajectorySummary": trajectory.summarize_trajectory(opened("trajectory")),
        "results.trajectory.summarize_trajectory": {"tree": opened("trajectory")},
        "results.trajectory.trajectory": {
            "model": "demo", "revisions": ["step-0"], "nulls": "analytic", "matrices": "none", "output": path,
        },
        "results.figures.figures": {"table": opened("baseline"), "names": ()},
        "results.figures.plot": {"table": opened("baseline"), "name": "baseline"},
        "results.figures.figure_names": {"table": opened("baseline")},
    }  # fmt: skip


def _models() -> dict[str, Any]:
    tiny = model()
    site = tiny.sites[0]
    difference = models.open_model(model(), minus=model())
    given = {
        "ArrayModel": models.ArrayModel.from_factors(W, W, "tiny"),
        "Difference": difference,
        "KnownModel": models.known_models()[0],
        "Model": tiny,
        "Place": site.place,
        "Series": models.find_series("demo"),
        "Site": site,
        "Tensor": {"name": "a"},
        "find_series": {"model": "demo"},
        "initialize": {"module": import_module("torch").nn.Linear(3, 3), "initializer": "normal"},
        "open_model": {"model": "demo"},
        "require_model": {"model": tiny},
        "split_qkv": {"weight": np.zeros((24, 8)), "n_heads": 2, "kind": "concatenated"},
        "take_rows": {"of": site.query, "indices": [0, 1]},
    }
    return {f"models.{name}": arguments for name, arguments in given.items()}


def _others(folder: Path) -> dict[str, Any]:
    path = folder / "written.nc"
    pure, shaped = constants.constants()[0], constants.functions()[0]
    newest = list(constants.sets().values())[-1]
    plan = montecarlo.make_plan("gaussian_matrix", [{"n_rows": 6, "n_columns": 4}], 4)
    (folder / "plan.toml").write_text(PLAN)
    kind = tables.KINDS["baseline"]
    return {
        "constants.Conditions": pure.conditions,
        "constants.Constant": pure,
        "constants.ConstantFunction": shaped,
        "constants.ConstantSet": newest,
        "constants.PrecisionError": {"digits": 30, "found": ("1", "2")},
        "constants.Reference": next(iter(constants.bibliography().values())),
        "constants.as_json": {"entries": [pure]},
        "constants.as_sentence": {"constant": pure},
        "constants.bibtex": {"keys": [pure.references[0]]},
        "constants.chain_constants": {"dims": (6, 4, 6), "sigmas": 0.5, "normalization": "none"},
        "constants.constant_set": {
            "record": {"set": "v2", "date": "", "groups": {}},
            "constants": {},
            "before": newest,
        },
        "constants.find": {"name": pure.name},
        "linalg.product_singular_values": {"w_q": W[0], "w_k": W[1]},
        "linalg.singular_values": {"stack": W},
        "montecarlo.Case": plan.cases[0],
        "montecarlo.Plan": plan,
        "montecarlo.SpectrumChunk": {"start": 0, "singular_values": np.ones((2, 4)), "norm_squared": np.ones((2, 1))},
        "montecarlo.baseline": {**HEAD, "draws": 4},
        "montecarlo.draw_chunks": {"plan": plan, "output": folder / "chunks.nc", "first": 0, "stop": 1},
        "montecarlo.draw_spectra": {"ensemble": ensembles.gaussian_matrix(6, 4), "draws": 4, "seed": 0},
        "montecarlo.element_baseline": {"cases": [(6, 4)], "draws": 4},
        "montecarlo.make_plan": {"ensemble": "gaussian_matrix", "cases": [{"n_rows": 6, "n_columns": 4}], "draws": 4},
        "montecarlo.read_plan": {"path": folder / "plan.toml"},
        "montecarlo.LocalProcesses": {"count": 2},
        "montecarlo.Scheduler": {"address": "tcp://localhost:8786"},
        "montecarlo.run_plan": {"plan": plan, "output": folder / "run.nc"},
        "nulls.Table": {"table": opened("baseline")},
        "nulls.find_null": {"null": "gaussian"},
        "nulls.kurtosis_range": {"dims": (12, 4, 12)},
        **{f"nulls.{name}": {} for name in ("Analytic", "Axes", "Gaussian", "Kurtosis", "Null", "Signs")},
        "tables.Kind": kind,
        "tables.Variable": kind.groups[""]["d_model"],
        "tables.describe": {"dataset": opened("baseline"), "schema": kind.groups[""]},
        "tables.export": {"table": opened("baseline")},
        "tables.heads_present": {"heads": opened("scores")["heads"].to_dataset()},
        "tables.open_table": {"path": DATA / "baseline.nc"},
        "results.open_table": {"path": DATA / "baseline.nc"},
        "tables.provenance": {"call": {"a": 1}},
        "tables.register": {"kind": kind},
        "tables.software_versions": {},
        "tables.to_pandas": {"table": opened("baseline")},
        "tables.write_bytes": {"content": b"x", "path": folder / "bytes"},
        "tables.write_table": {"table": opened("baseline"), "path": path},
        "watch.Watcher": {"output": folder / "watched.nc"},
    }


PLAN = """
name = "small"
ensemble = "gaussian_matrix"
draws = 4

[[case]]
n_rows = 6
n_columns = 4
"""
