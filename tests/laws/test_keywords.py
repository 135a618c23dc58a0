"""One set of keywords for every law of a Gaussian chain: two ways in, one default, and no pair that could be either."""

import inspect
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase import laws
from rmtbase.errors import ParameterError

D_MODEL, D_HEAD = 48, 12
HEAD = {"d_model": D_MODEL, "d_head": D_HEAD}
CHAIN = {"dims": (D_MODEL, D_HEAD, D_MODEL)}


def numbers_of_spike(spike):
    return spike.threshold, spike.edge


def numbers_of(law):
    return law.mean(), law.std(), *np.atleast_1d(law.ppf([0.1, 0.9]))


def numbers_of_spectrum(ordered):
    return *ordered.mean, *ordered.std


def numbers_of_description(sections):
    return sections["spectrum"]["mean"], sections["spectrum"]["std"], sections["exact_moments"]["trace"]["mean"]


# Of every law of a chain: the call but for its chain, and numbers of what it returns.
LAWS = {
    law.__name__: (law, arguments, numbers)
    for numbers, calls in {
        numbers_of: {laws.GaussianChain: (), laws.LogDeterminant: (), laws.largest_eigenvalue: (),
                     laws.smallest_eigenvalue: (), laws.null: ("trace",)},
        numbers_of_spike: {laws.RankOneSpike: ()},
        numbers_of_description: {laws.describe: ()},
        numbers_of_spectrum: {laws.ordered_eigenvalues: ()},
        tuple: {laws.normalized_participation_ratio: (), laws.participation_ratio: (), laws.trace_cumulants: (2,)},
        lambda value: (value,): {laws.eigenvalue_displacement: (1.0, 1.0), laws.trace_cumulant: ((2, 1),),
                                 laws.trace_moment: ((2, 1),)},
    }.items() for law, arguments in calls.items()
}  # fmt: skip
OF_THE_HEAD_ALONE = {
    laws.element_average: {"function": np.abs}, laws.histogram_entropy: {"bins": 5, "range": (-1, 1)},
    laws.histogram_kl: {"bins": 5, "range": (-1, 1)}, laws.low_rank_product: {}, laws.naive_marchenko_pastur: {},
    laws.nearest_neighbour_entropy: {}, laws.nearest_neighbour_kl: {}, laws.product_element: {},
    laws.weibull_product_null: {},
}  # fmt: skip


@pytest.fixture(params=LAWS)
def values(request):
    """The numbers of one law of the chain that the arguments give."""
    function, arguments, numbers = LAWS[request.param]
    if numbers is tuple:

        def numbers(moments):
            return moments.mean, moments.std

    return lambda *shape, **chain: numbers(function(*arguments, *shape, **chain))


def test_every_law_of_a_chain_is_listed_here():
    public = {name: getattr(laws, name) for name in laws.__all__ if not name.endswith("Keywords")}
    taking = {name for name, law in public.items() if callable(law) and "dims" in inspect.signature(law).parameters}
    assert taking - {"NullLaw"} <= set(LAWS)


def test_both_ways_in_are_one_to_the_bit(values):
    assert values(**HEAD) == values(**CHAIN) == values(D_MODEL, D_HEAD) == values(CHAIN["dims"])
    pair = {"sigma_q": 0.5, "sigma_k": 0.02}
    assert values(**HEAD, **pair) == values(**CHAIN, sigmas=(0.5, 0.02))
    assert values(**HEAD, sigma=0.3) == values(**CHAIN, sigma=0.3) == values(**CHAIN, sigmas=(0.3, 0.3))
    assert values(**HEAD, sigma_k=0.02) == values(**CHAIN, sigmas=(1.0, 0.02))
    for normalization in ("sqrt_d", "none"):
        law = laws.GaussianChain(**HEAD, sigma_q=0.5, normalization=normalization)
        assert values(**law.keywords) == values(**HEAD, sigma_q=0.5, normalization=normalization)


def test_a_pair_by_position_is_refused_with_both_readings(values):
    with pytest.raises(ParameterError) as raised:
        values((768, 64))
    assert str(raised.value) == (
        "the pair by position = (768, 64): expected d_model=768, d_head=64 for W_QK = W_QᵀW_K (the chain "
        "(768, 64, 768)), or dims=(768, 64) for one 768×64 matrix"
    )
    for normalization in (None, "sqrt", 1, ["sqrt_d"], np.array(["sqrt_d", "none"])):
        with pytest.raises(ParameterError, match=r"normalization = .*: expected 'none' or 'sqrt_d'"):
            values(**HEAD, normalization=normalization)
    one = values(dims=(48, 12))
    np.testing.assert_array_equal(one, values(dims=(48, 12), normalization="none"))
    with pytest.raises(ParameterError, match=r"normalization = 'sqrt_d': expected none for one 48×12 matrix.*sigma"):
        values(dims=(48, 12), normalization="sqrt_d")
    with pytest.raises(ParameterError, match=r"d_model=768, d_head=64 .* or dims=\(64, 768\) for one 64×768 matrix"):
        laws.GaussianChain(np.array([64, 768]))


INCOMPATIBLE = [
    ({}, r"dims = None: expected d_model= and d_head= .*, or dims="),
    ({"sigma": 0.02}, r"dims = None: expected d_model= and d_head= .*, or dims="),
    ({"d_model": 768}, r"d_head = None: expected a positive integer beside d_model = 768"),
    ({"d_head": 64}, r"d_model = None: expected a positive integer beside d_head = 64"),
    ({"sigma_q": 0.1}, r"d_model = None: expected a positive integer beside sigma_q"),
    ({"sigmas": (1.0,)}, r"dims = None: expected the dimensions .* beside sigmas"),
    (HEAD | CHAIN, r"dims = \(48, 12, 48\): expected none beside d_model, d_head: d_model= and d_head= "),
    (HEAD | {"sigmas": (1.0, 1.0)}, r"sigmas = \(1\.0, 1\.0\): expected none beside d_model, d_head"),
    (CHAIN | {"sigma_q": 1.0}, r"dims = \(48, 12, 48\): expected none beside sigma_q"),
    (HEAD | {"sigma": 1.0, "sigma_k": 2.0}, r"sigma = 1\.0: expected none beside sigma_k"),
    (CHAIN | {"sigma": 1.0, "sigmas": (1.0, 2.0)}, r"sigma = 1\.0: expected none beside sigmas"),
    (HEAD | {"sigma": -1.0}, r"sigma = -1\.0: expected a finite positive number"),
    ({"d_model": 64, "d_head": 768}, r"d_head = 768: expected at most d_model = 64"),
    *(({"dims": dims}, "dims = ") for dims in ((768,), 768, "768")),
    *(({"dims": (8, bad)}, rf"dims\[1\] = {bad}") for bad in (0, -64, 2.5, True)),
    *((CHAIN | {"sigmas": sigmas}, "sigmas = ") for sigmas in ((1.0,), (1.0, 1.0, 1.0), 1.0)),
    *((CHAIN | {"sigmas": (1.0, bad)}, r"sigmas\[1\] = ") for bad in (0.0, -1.0, math.nan, math.inf, "x")),
    *((HEAD | {name: bad}, f"{name} = {bad}") for name in ("d_model", "d_head") for bad in (0, 8.5, True)),
    *((HEAD | {name: bad}, f"{name} = {bad}") for name in ("sigma_q", "sigma_k") for bad in (0.0, -1.0, math.inf)),
]


def test_what_goes_together_in_no_law_is_refused(values):
    for chain, message in INCOMPATIBLE:
        with pytest.raises(ParameterError, match=message):
            values(**chain)
    for shape, chain, message in UNKNOWN:
        with pytest.raises(TypeError, match=message):
            values(*shape, **chain)


@pytest.mark.parametrize("law", OF_THE_HEAD_ALONE)
def test_laws_of_the_head_alone_refuse_what_is_no_head(law):
    for name, bad in (("d_model", 0), ("d_head", 49), ("sigma_q", 0.0), ("sigma_k", math.inf), ("normalization", "d")):
        with pytest.raises(ParameterError, match=f"{name} = "):
            law(**OF_THE_HEAD_ALONE[law], **(HEAD | {name: bad}))


@pytest.mark.parametrize("name", sorted(LAWS.keys() & set(laws.__all__)))
def test_self_normalized_is_true_or_false(name):
    law, arguments, _ = LAWS[name]
    if "self_normalized" in inspect.signature(law).parameters:
        with pytest.raises(ParameterError, match="self_normalized = 1: "):
            law(*arguments, **HEAD, self_normalized=1)


UNKNOWN = [
    ((), HEAD | {"d_haed": 3}, r"unexpected keyword argument 'd_haed'; did you mean 'd_head'\?"),
    ((), HEAD | {"zeta": 3}, r"unexpected keyword argument 'zeta'; it takes .*d_model, d_head, sigma_q"),
    (((8, 4, 8),), {"dims": (8, 4, 8)}, "dims is given twice"),
    ((8, 4), {"d_head": 4}, "d_head is given twice"),
    ((8, 4, 1.0), {}, "3 arguments by position where d_model and d_head may be"),
    (((8, 4, 8), (1.0, 1.0), "none"), {}, "3 arguments by position where dims and sigmas may be"),
]


@pytest.mark.parametrize("law", [*(law for law, _, _ in LAWS.values()), *OF_THE_HEAD_ALONE])
def test_help_shows_the_keywords_and_what_they_mean(law):
    shown = inspect.signature(law).parameters
    for name in ("d_model", "d_head", "sigma_q", "sigma_k", "sigma", "normalization"):
        assert name in shown, name
    assert shown["normalization"].default == "sqrt_d"
    if "dims" in shown or law is laws.product_element:
        text = inspect.getdoc(law.__init__ if inspect.isclass(law) else law)
        assert all(f"{name}: " in text for name in ("sigma", "normalization"))


def test_one_default_normalization():
    law, raw = laws.low_rank_product(**HEAD), laws.low_rank_product(**HEAD, normalization="none")
    assert law == laws.GaussianChain(**HEAD) == laws.GaussianChain(**HEAD, normalization="sqrt_d")
    np.testing.assert_allclose(np.multiply(law.support, D_MODEL), raw.support, rtol=1e-14)
    lower, upper = law.support
    largest, smallest = laws.largest_eigenvalue(**HEAD), laws.smallest_eigenvalue(**HEAD)
    assert lower < smallest.mean() < largest.mean() < 1.05 * upper
    ordered = laws.ordered_eigenvalues(**HEAD)
    assert (ordered.mean[0], ordered.mean[-1]) == (largest.mean(), smallest.mean())
    assert laws.null("largest_eigenvalue", **HEAD).mean() == largest.mean()
    mean = laws.trace_moment((1,), **HEAD)
    assert mean == D_MODEL * D_HEAD == laws.trace_cumulants(1, **HEAD).mean
    assert float(mean) == pytest.approx(D_HEAD * law.mean(), rel=1e-14)
    assert laws.null("trace", **HEAD).mean() == mean
    (sums,) = laws.linear_statistics(law, [np.log]).mean
    assert sums == pytest.approx(laws.LogDeterminant(**HEAD).mean(), abs=0.02)
    assert laws.RankOneSpike(**HEAD).edge == pytest.approx(upper, rel=1e-14)
    # tr(W_QKᵀ W_QK) is the sum of the squares of the d² elements.
    assert laws.product_element(**HEAD).var() * D_MODEL**2 == pytest.approx(mean, rel=1e-14)
    table = rmtbase.baseline(**HEAD, draws=2)
    assert (float(table["edge_lower"][0]), float(table["edge_upper"][0])) == law.support
    assert laws.describe(**HEAD)["spectrum"]["support"] == list(law.support)


def test_a_table_takes_the_sigmas_of_both_factors():
    table = rmtbase.baseline(**HEAD, draws=2, sigma_q=0.5, sigma_k=0.02)
    assert table.identical(rmtbase.baseline(**HEAD, draws=2, sigma=(0.5, 0.02)))
    assert float(rmtbase.baseline(**HEAD, draws=2, sigma_k=0.02)["sigma_q"][0]) == 1.0
    with pytest.raises(ParameterError, match=r"sigma = 0\.5: expected none beside sigma_q"):
        rmtbase.baseline(**HEAD, sigma=0.5, sigma_q=0.5)
    with pytest.raises(ParameterError, match=r"sigma_k = -1"):
        rmtbase.baseline(**HEAD, sigma_k=-1)


def test_one_matrix_is_taken_as_it_is_and_its_transpose_has_the_same_law():
    law, transposed = laws.marchenko_pastur(3072, 768), laws.marchenko_pastur(768, 3072)
    assert law == laws.GaussianChain(dims=(3072, 768)) == laws.GaussianChain(dims=(3072, 768), normalization="none")
    assert law.support == transposed.support == pytest.approx((768.0, 6912.0), rel=1e-14)
    for shape in ((3072, 768), (768, 3072)):
        assert laws.marchenko_pastur(*shape, 3072**-0.5).support == pytest.approx((0.25, 2.25), rel=1e-14)
    head = laws.null("normalized_participation_ratio", d_model=768, d_head=64)
    matrix = laws.null("normalized_participation_ratio", dims=(768, 64))
    assert head.mean() == pytest.approx(0.855, abs=5e-4) and matrix.mean() == pytest.approx(0.922, abs=1e-3)
    assert head.p_value(0.84) == pytest.approx(2.33e-4, rel=0.01)
    assert matrix.p_value(0.84) < 1e-100


def test_a_law_is_one_value_however_it_was_given():
    law = laws.GaussianChain(**HEAD, sigma=0.5, atom=True)
    same = laws.GaussianChain((D_MODEL, D_HEAD, D_MODEL), (0.5, 0.5), atom=True)
    assert law == same and hash(law) == hash(same)
    assert pickle.loads(pickle.dumps(law)) == law
    assert replace(law, atom=False) == laws.low_rank_product(**HEAD, sigma=0.5)
    assert repr(law) == "GaussianChain(dims=(48, 12, 48), sigmas=(0.5, 0.5), normalization='sqrt_d', atom=True)"
    assert eval(repr(law), vars(laws)) == law


@pytest.mark.parametrize("keyword", mostly_exhaustive(["sigma", "sigma_q", "sigma_k"], always=1))
def test_what_the_laws_say_of_one_shape_takes_the_sigmas_of_both(keyword):
    described = laws.describe(**HEAD, **{keyword: 0.5})
    sigma_q, sigma_k = described["sigma_q"], described["sigma_k"]
    assert {keyword: 0.5} == {keyword: sigma_q if keyword != "sigma_k" else sigma_k}
    assert (sigma_q == sigma_k) == (keyword == "sigma")
    moments = described["exact_moments"]["trace_of_square"]
    at = {"d": D_MODEL, "h": D_HEAD, "sigma": 0.5, "sigma_q": sigma_q, "sigma_k": sigma_k}
    assert eval(moments["mean_formula"], at) == pytest.approx(moments["mean"], rel=1e-14)
    assert math.isclose(described["element"]["std"], math.sqrt(D_HEAD / D_MODEL) * sigma_q * sigma_k)
    assert described["factor"]["mean"] == pytest.approx(D_MODEL * sigma_q**2, rel=1e-14)


@pytest.mark.parametrize("statistic", ["npr", 768, None, ["trace"]], ids=repr)
def test_what_is_no_statistic_is_refused_with_those_there_are(statistic):
    with pytest.raises(ParameterError, match=r"statistic = .*: expected one of largest_eigenvalue, "):
        rmtbase.statistics.get_statistic(statistic)
    expected = "one of largest_eigenvalue, " if isinstance(statistic, str) else "a text"
    with pytest.raises(ParameterError, match=f"statistic = .*: expected {expected}"):
        laws.null(statistic, **HEAD)
