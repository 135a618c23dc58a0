"""Matrices of independent elements, as initialisers draw them (PyTorch's own numbers) or as fits of trained ones are.

False failures: the laws of the elements are tested by Kolmogorov–Smirnov tests at 1e-6 each, the standard deviations of
PyTorch's draws and fits at five standard errors (6e-7); a correct package fails for fewer than one seed in 10 000.
"""

import itertools
import math
from functools import partial

import jax
import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch.nn import init
from transformers import GPT2Config, GPT2Model

from exhaustive import mostly_exhaustive
from rmtbase.ensembles import INITIALIZERS, initialized_matrix, logistic_matrix, student_t_matrix
from rmtbase.errors import ParameterError
from rmtbase.linalg import reproducible_jax
from rmtbase.statistics import fit_logistic, fit_student_t

SHAPE = (96, 160)  # fan_out, fan_in
LEVEL = 1e-6
WITH_OPTIONS = {
    "normal": {"std": 0.02, "mean": 0.01}, "truncated_normal": {"std": 0.02, "bound": 1.5}, "uniform": {"bound": 0.3},
    "xavier_uniform": {"gain": 1.5}, "xavier_normal": {"gain": 1.5}, "kaiming_uniform": {"a": 0.3, "mode": "fan_out"},
    "kaiming_normal": {"nonlinearity": "tanh"}, "torch_linear": {}, "small_init": {"d_model": 160},
    "wang_init": {"n_layers": 6, "d_model": 160}, "scaled_normal": {"n_layers": 6}, "orthogonal": {"gain": 1.5},
}  # fmt: skip
INDEPENDENT = [name for name in WITH_OPTIONS if name != "orthogonal"]


@jax.jit
def sample(ensemble, key):
    return ensemble.sample(key)


@partial(jax.jit, static_argnames="count")
def rows(ensemble, context, start, count):
    return ensemble.rows(context, start, count)


def matrix_of(name, shape=SHAPE, seed=0, **options):
    return drawn(initialized_matrix(*shape, name, **(options or WITH_OPTIONS[name])), seed)


def law_of(name, shape=SHAPE, **options):
    return initialized_matrix(*shape, name, **options).law


def test_initializers_have_trees_names_and_precision_of_their_own():
    assert set(WITH_OPTIONS) == set(INITIALIZERS)
    assert initialized_matrix(64, 256, "kaiming_uniform", a=math.sqrt(5)).name == (
        "initialized_matrix 64x256 kaiming_uniform a=2.23606797749979 mode=fan_in nonlinearity=leaky_relu"
    )
    assert initialized_matrix(64, 256, "torch_linear").name == "initialized_matrix 64x256 torch_linear"
    assert initialized_matrix(64, 256, "normal", std=1).name == initialized_matrix(64, 256).name
    different = [
        initialized_matrix(*shape, name, **(WITH_OPTIONS[name] | other))
        for shape in ((8, 9), (9, 8))
        for name, others in {
            "normal": [{}, {"std": 0.03}, {"mean": 0.0}],
            "truncated_normal": [{}, {"std": 0.03}, {"bound": 2}, {"std_of": "elements"}],
            "kaiming_normal": [{}, {"a": 0.1}, {"mode": "fan_out"}, {"nonlinearity": "relu"}],
            "wang_init": [{}, {"n_layers": 7}, {"d_model": 161}],
            "orthogonal": [{}, {"gain": 2}],
        }.items()
        for other in others
    ]
    assert len({ensemble.name for ensemble in different}) == len(different)
    trees = [jax.tree.structure(initialized_matrix(4, 5, name, **WITH_OPTIONS[name])) for name in WITH_OPTIONS]
    assert [(one, other) for one, other in itertools.combinations(trees, 2) if one == other] == []
    again = [jax.tree.structure(initialized_matrix(4, 5, name, **WITH_OPTIONS[name])) for name in WITH_OPTIONS]
    assert trees == again
    single = initialized_matrix(4, 5, "kaiming_uniform").sample(jax.random.key(0))
    assert (single.matrix.dtype, single.norm_squared.dtype) == (np.float32, np.float32)


class Asked:
    def __init__(self, shape):
        self.shape = shape

    def dim(self):
        return len(self.shape)

    def size(self, axis):
        return self.shape[axis]

    def uniform_(self, low, high, generator=None):
        self.low, self.high = low, high
        return self

    def normal_(self, mean, std, generator=None):
        self.mean, self.std = mean, std
        return self


@pytest.mark.parametrize("gain", [1.0, 1.7])
def test_xavier_asks_for_what_torch_asks_for(gain):
    uniform, normal = init.xavier_uniform_(Asked(SHAPE), gain), init.xavier_normal_(Asked(SHAPE), gain)
    assert law_of("xavier_uniform", gain=gain).bound == pytest.approx(uniform.high, rel=1e-15)
    assert law_of("xavier_normal", gain=gain).std == pytest.approx(normal.std, rel=1e-15)
    assert (uniform.low, normal.mean) == (-uniform.high, 0)


NONLINEARITIES = ["linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu"]


@pytest.mark.parametrize("mode", ["fan_in", "fan_out"])
@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
@pytest.mark.parametrize("a", [0.0, 0.3, math.sqrt(5)])
def test_kaiming_asks_for_what_torch_asks_for(a, nonlinearity, mode):
    options = {"a": a, "mode": mode, "nonlinearity": nonlinearity}
    uniform, normal = init.kaiming_uniform_(Asked(SHAPE), **options), init.kaiming_normal_(Asked(SHAPE), **options)
    assert law_of("kaiming_uniform", **options).bound == pytest.approx(uniform.high, rel=1e-15)
    assert law_of("kaiming_normal", **options).std == pytest.approx(normal.std, rel=1e-15)
    fan = SHAPE[1] if mode == "fan_in" else SHAPE[0]
    gain = law_of("kaiming_normal", **options).std * math.sqrt(fan)
    assert gain == pytest.approx(init.calculate_gain(nonlinearity, a), rel=1e-15)


def test_defaults_linear_layers_and_residual_projections_are_those_of_torch():
    assert law_of("xavier_normal").std == pytest.approx(init.xavier_normal_(Asked(SHAPE)).std, rel=1e-15)
    assert law_of("kaiming_uniform").bound == pytest.approx(init.kaiming_uniform_(Asked(SHAPE)).high, rel=1e-15)
    normal = init.normal_(Asked(SHAPE))
    assert (law_of("normal").mean, law_of("normal").std) == (normal.mean, normal.std)
    torch.manual_seed(0)
    weight = torch.nn.Linear(SHAPE[1], SHAPE[0]).weight.detach().double().numpy()
    law = law_of("torch_linear")
    assert law.bound == pytest.approx(law_of("kaiming_uniform", a=math.sqrt(5)).bound, rel=1e-15)
    assert weight.shape == SHAPE
    assert 0.999 * law.bound < np.abs(weight).max() <= law.bound * (1 + 1e-6)
    assert_std(weight, law.std, kurtosis=1.8)
    # Its a and b are absolute: with std = 0.02 alone the weights are cut at ±2, a hundred standard deviations.
    weight = init.trunc_normal_(torch.empty(SHAPE), std=0.02, generator=torch.Generator().manual_seed(0))
    assert_std(weight, 0.02, kurtosis=3)
    assert np.abs(weight.numpy()).max() > 2 * 0.02
    law = law_of("truncated_normal", std=0.02, bound=2.0, std_of="elements")
    assert law.std == pytest.approx(0.02, rel=1e-15)
    assert law.parent_std == pytest.approx(0.02 / 0.87962566103423978, rel=1e-15)  # the constant in jax's source
    draw = jax.nn.initializers.variance_scaling(0.02**2 * SHAPE[1], "fan_in", "truncated_normal", in_axis=1, out_axis=0)
    weights = np.asarray(draw(jax.random.key(0), SHAPE))
    assert 0.99 < np.abs(weights).max() / (2 * law.parent_std) <= 1 + 1e-6
    torch.manual_seed(0)
    model = GPT2Model(GPT2Config(n_layer=6, n_embd=64, n_head=2, vocab_size=8, n_positions=8))
    for names, law in (
        (("attn.c_proj", "mlp.c_proj"), law_of("scaled_normal", n_layers=6)),
        (("attn.c_attn", "mlp.c_fc"), law_of("normal", std=0.02)),
    ):
        layers = [block.get_submodule(name) for block in model.h for name in names]
        weights = np.concatenate([layer.weight.detach().numpy().ravel() for layer in layers])
        assert_std(weights, law.std, kurtosis=3)


def assert_std(weights, std, kurtosis):
    weights = np.asarray(weights, dtype=np.float64)
    standard_error = std * math.sqrt((kurtosis - 1) / (4 * weights.size))
    assert abs(math.sqrt(np.mean(weights**2)) - std) < 5 * standard_error


@pytest.mark.parametrize(("std", "bound"), [(0.02, 2.0), (0.02, 3.0), (1.0, 0.5)])
def test_truncation_in_units_of_the_parent_is_torchs_truncation_at_absolute_ends(std, bound):
    law, generator = law_of("truncated_normal", std=std, bound=bound), torch.Generator().manual_seed(0)
    weight = init.trunc_normal_(torch.empty(SHAPE), 0.0, std, -bound * std, bound * std, generator)
    exact = stats.truncnorm(-bound, bound, scale=std)
    assert np.abs(weight.numpy()).max() <= bound * std * (1 + 1e-6)
    assert_std(weight, law.std, kurtosis=float(exact.stats("k")) + 3)
    assert law.std == pytest.approx(exact.std(), rel=1e-12)


@pytest.mark.parametrize("bound", [1e-4, 0.1, 1.0, 1.999, 2.0, 2.001, 5.0, 9.0, 40.0])
def test_the_deviation_of_a_truncated_law_is_exact_at_every_bound(bound):
    def integral(power):
        return integrate.quad(lambda z: z**power * math.exp(-z * z / 2), 0, min(bound, 12), epsabs=0, epsrel=1e-13)[0]

    exact = math.sqrt(integral(2) / integral(0))
    assert law_of("truncated_normal", bound=bound).std == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(("n_layers", "d_model"), [(6, 512), (24, 1024)])
def test_pythias_initializers_have_the_published_ratio(n_layers, d_model):
    # "A Two-Parameter Weibull Framework", eqs. (4), (5): sigma_in/sigma_out = L/sqrt(10).
    ratio = law_of("small_init", d_model=d_model).std / law_of("wang_init", n_layers=n_layers, d_model=d_model).std
    assert ratio == pytest.approx(n_layers / math.sqrt(10), rel=1e-15)
    xavier = init.xavier_normal_(Asked((4 * d_model, d_model)))
    assert law_of("small_init", d_model=d_model).std == pytest.approx(xavier.std, rel=1e-15)


EXACT = {
    "normal": stats.norm(0.01, 0.02),
    "truncated_normal": stats.truncnorm(-1.5, 1.5, scale=0.02),
    "uniform": stats.uniform(-0.3, 0.6),
    "xavier_uniform": stats.uniform(-1.5 * math.sqrt(6 / 256), 3 * math.sqrt(6 / 256)),
    "xavier_normal": stats.norm(0, 1.5 * math.sqrt(2 / 256)),
    "kaiming_uniform": stats.uniform(-math.sqrt(6 / 1.09 / 96), 2 * math.sqrt(6 / 1.09 / 96)),
    "kaiming_normal": stats.norm(0, 5 / 3 / math.sqrt(160)),
    "torch_linear": stats.uniform(-1 / math.sqrt(160), 2 / math.sqrt(160)),
    "small_init": stats.norm(0, math.sqrt(2 / 800)),
    "wang_init": stats.norm(0, 2 / 6 / math.sqrt(160)),
    "scaled_normal": stats.norm(0, 0.02 / math.sqrt(12)),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_elements_have_the_law_that_is_stated_and_are_uncorrelated_along_rows_and_columns(name):
    elements = matrix_of(name).ravel()
    assert stats.kstest(elements, EXACT[name].cdf).pvalue > LEVEL
    low, high = EXACT[name].support()
    assert low <= elements.min() and elements.max() <= high
    ensemble = initialized_matrix(*SHAPE, name, **WITH_OPTIONS[name])
    assert ensemble.element_std == ensemble.law.std == pytest.approx(EXACT[name].std(), rel=1e-12)
    z = (elements.reshape(SHAPE) - EXACT[name].mean()) / EXACT[name].std()
    for neighbours in (z[:, 1:] * z[:, :-1], z[1:] * z[:-1], z[1:, 1:] * z[:-1, :-1]):
        assert abs(neighbours.mean()) < 5 / math.sqrt(neighbours.size)


def test_another_scale_is_caught_and_traces_of_orthogonal_matrices_are_normal():
    elements = matrix_of("kaiming_uniform", a=0.0).ravel()
    assert stats.kstest(elements, EXACT["kaiming_uniform"].cdf).pvalue < LEVEL
    # E tr Q = 0, E (tr Q)² = 1, E (tr Q)⁴ = 3, E tr Q² = 1 (Diaconis and Mallows; exact for n >= 4).
    q = orthogonal_draws((6, 6))
    trace, of_square = np.trace(q, axis1=1, axis2=2), np.trace(q @ q, axis1=1, axis2=2)
    for values, mean in ((trace, 0), (trace**2, 1), (trace**4, 3), (of_square, 1)):
        assert abs(values.mean() - mean) < 5 * values.std() / math.sqrt(values.size)


@pytest.mark.parametrize(
    "shape", mostly_exhaustive(zip([(40, 40), (24, 40), (40, 24), (1, 7), (7, 1), (1, 1)], strict=True), always=2)
)
def test_orthogonal_matrices_are_orthonormal_along_their_shorter_side(shape):
    q = matrix_of("orthogonal", shape, gain=1.0)
    gram = q @ q.T if shape[0] <= shape[1] else q.T @ q
    np.testing.assert_allclose(gram, np.eye(min(shape)), atol=1e-14)
    np.testing.assert_allclose(matrix_of("orthogonal", shape, gain=2.5), 2.5 * q, rtol=1e-15)


def orthogonal_draws(shape, draws=4_000):
    ensemble = initialized_matrix(*shape, "orthogonal")
    with reproducible_jax():
        sample_many = jax.jit(jax.vmap(ensemble.sample))
        return np.asarray(sample_many(jax.random.split(jax.random.key(1), draws)).matrix)


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3)])
def test_orthogonal_matrices_are_uniform(shape):
    # One element of a uniform unit vector of n numbers: (1 + q)/2 is Beta((n - 1)/2, (n - 1)/2). Rotations that are
    # fixed do not change the law.
    draws, n = orthogonal_draws(shape), max(shape)
    rng = np.random.default_rng(2)
    left, right = (np.linalg.qr(rng.standard_normal((side, side)))[0] for side in shape)
    for q in (draws, left @ draws @ right):
        for element in (q[:, 0, 0], q[:, -1, -1], q[:, 0, -1]):
            assert stats.kstest((1 + element) / 2, stats.beta((n - 1) / 2, (n - 1) / 2).cdf).pvalue > LEVEL
    # The squares of all elements of Q add up to its rank.
    expected = 1.5 * math.sqrt(min(shape) / math.prod(shape))
    assert initialized_matrix(*shape, "orthogonal", gain=1.5).element_std == pytest.approx(expected, rel=1e-15)


@pytest.mark.optimized
@pytest.mark.parametrize("name", mostly_exhaustive(["normal", "truncated_normal", "uniform", "orthogonal"], always=1))
def test_rows_are_the_same_to_the_bit_however_they_are_cut(name):
    ensemble = initialized_matrix(10, 7, name, **WITH_OPTIONS[name])
    assert ensemble.element_shape == ensemble.matrix_shape == (10, 7)
    with reproducible_jax():
        key = jax.random.key(3)
        whole = np.asarray(sample(ensemble, key).matrix)
        context = ensemble.row_context(key)
        one_by_one = [np.asarray(rows(ensemble, context, start, 1)) for start in range(10)]
        np.testing.assert_array_equal(np.concatenate(one_by_one), whole)
    assert len(np.unique(whole, axis=0)) == 10


@pytest.mark.parametrize(
    ("name", "option"), [("normal", "std"), ("kaiming_uniform", "a"), ("wang_init", "n_layers"), ("orthogonal", "gain")]
)
def test_numbers_are_data(name, option):
    traced = []

    @jax.jit
    def traced_sample(ensemble, key):
        traced.append(name)
        return ensemble.sample(key).matrix

    options = {key: value for key, value in WITH_OPTIONS[name].items() if not isinstance(value, str)}
    with reproducible_jax():
        key = jax.random.key(0)
        few, many = (traced_sample(initialized_matrix(4, 5, name, **options | {option: n}), key) for n in (2, 3))
    assert traced == [name]
    assert (np.asarray(few) != np.asarray(many)).any()


BAD = [
    ("normal", {"std": 0.0}, "std"), ("normal", {"std": "0.02"}, "std"), ("normal", {"mean": math.inf}, "mean"),
    ("normal", {"sigma": 0.02}, "sigma"), ("torch_linear", {"gain": 1.0}, "gain"),
    ("truncated_normal", {"bound": math.inf}, "bound"), ("truncated_normal", {"std_of": "weights"}, "std_of"),
    ("uniform", {}, "bound"), ("kaiming_uniform", {"a": math.nan}, "a"),
    ("kaiming_uniform", {"mode": "fan_avg"}, "mode"), ("kaiming_normal", {"nonlinearity": "gelu"}, "nonlinearity"),
    ("small_init", {"d_model": 512.0}, "d_model"), ("wang_init", {"d_model": 512}, "n_layers"),
    ("scaled_normal", {"n_layers": True}, "n_layers"), ("orthogonal", {"gain": 0}, "gain"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "culprit"), BAD)
def test_bad_options_are_named(name, options, culprit):
    with pytest.raises(ParameterError, match=f"^{culprit} = ") as caught:
        initialized_matrix(4, 5, name, **options)
    assert caught.value.name == culprit
    if culprit == "sigma":
        assert caught.value.expected == "an option of normal: mean, std"
    with pytest.raises(ParameterError, match=r"initializer = .*expected one of normal, .*orthogonal"):
        initialized_matrix(4, 5, "he_" + name)


FITTED_SHAPE = (160, 250)


def drawn(ensemble, seed=0):
    with reproducible_jax():
        return np.asarray(ensemble.rows(ensemble.row_context(jax.random.key(seed)), 0, ensemble.matrix_shape[0]))


CASES = [
    (logistic_matrix(*FITTED_SHAPE, 0.02), stats.logistic(0, 0.02)),
    (logistic_matrix(*FITTED_SHAPE, 3, -1), stats.logistic(-1, 3)),
    *((student_t_matrix(*FITTED_SHAPE, df, 0.02, 0.1), stats.t(df, 0.1, 0.02)) for df in (0.2, 1, 2, 3.3, 8, 100, 1e9)),
    (student_t_matrix(*FITTED_SHAPE, math.inf, 0.02, 0.1), stats.norm(0.1, 0.02)),
]


@pytest.mark.parametrize(("ensemble", "law"), CASES, ids=[ensemble.name for ensemble, _ in CASES])
def test_elements_have_the_law_that_is_stated_with_its_exact_deviation(ensemble, law):
    elements = drawn(ensemble).ravel()
    assert np.isfinite(elements).all()
    assert stats.kstest(elements, law.cdf).pvalue > LEVEL
    # The tails by themselves, where a test of the whole law sees little: magnitudes beyond the 99 % point.
    distance = np.abs(elements - law.median())
    beyond = distance[distance > law.ppf(0.995) - law.median()]
    tail = stats.kstest(beyond, lambda x: 1 - law.sf(law.median() + x) / 0.005)
    assert tail.pvalue > LEVEL
    assert abs(beyond.size - 0.01 * elements.size) < 5 * math.sqrt(0.01 * elements.size)
    expected = law.std() if law.std() == law.std() else math.inf  # scipy has nan below df = 1
    assert ensemble.law.std == pytest.approx(expected, rel=1e-9)


def test_fits_have_nulls_and_wrong_degrees_of_freedom_are_caught():
    # Two elements of one polar pair would share a radius: the draw uses one element of each.
    z = student_t_matrix(*FITTED_SHAPE, 3, 1.0)
    z = drawn(z)
    for values in (np.sign(z), np.log(np.abs(z))):
        centred = (values - values.mean()) / values.std()
        for pairs in (centred[:, 1:] * centred[:, :-1], centred[1:] * centred[:-1]):
            assert abs(pairs.mean()) < 5 / math.sqrt(pairs.size)
    elements = drawn(student_t_matrix(*FITTED_SHAPE, 3, 1.0)).ravel()
    assert stats.kstest(elements, stats.t(4).cdf).pvalue < LEVEL
    trained = stats.t(4.5, 0.001, 0.02).rvs((200, 300), random_state=np.random.default_rng(0)).astype(np.float32)
    fit = fit_student_t(trained)
    null = student_t_matrix(*trained.shape, fit.df, fit.scale, fit.location)
    again = fit_student_t(drawn(null))
    assert abs(1 / again.df - 1 / fit.df) < 5 * fit.inverse_df_standard_error
    assert abs(again.scale - fit.scale) < 5 * fit.scale_standard_error
    fit = fit_logistic(trained)
    null = logistic_matrix(*trained.shape, fit.scale, fit.location)
    again = fit_logistic(drawn(null))
    assert abs(again.scale - fit.scale) < 5 * fit.scale_standard_error
    assert abs(again.location - fit.location) < 5 * fit.location_standard_error
    fit = fit_student_t(stats.norm.ppf((np.arange(5_000) + 0.5) / 5_000))
    assert fit.status == "normal"
    elements = drawn(student_t_matrix(*FITTED_SHAPE, fit.df, fit.scale, fit.location)).ravel()
    assert stats.kstest(elements, stats.norm(fit.location, fit.scale).cdf).pvalue > LEVEL
    assert logistic_matrix(64, 256, 0.02).name == "logistic_matrix 64x256 scale=0.02 location=0.0"
    assert student_t_matrix(64, 256, 4, 1).name == "student_t_matrix 64x256 df=4.0 scale=1.0 location=0.0"
    for df in (0.1, -math.inf, math.nan):
        with pytest.raises(ParameterError, match=r"^df = .*: expected"):
            student_t_matrix(3, 4, df, 1.0)
