"""Every registered spectral statistic against its definition, in another arithmetic, and against what it claims."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmtbase.errors import ParameterError
from rmtbase.statistics import SPECTRAL_STATISTICS, get_statistic, spectral_statistics

NAMES = (
    "largest_eigenvalue", "smallest_eigenvalue", "trace", "trace_of_square", "participation_ratio",
    "normalized_participation_ratio", "spectral_entropy", "condition_number", "stable_rank", "log_determinant",
    "effective_rank", "participation_ratio_singular", "normalized_participation_ratio_singular",
    "spectral_entropy_singular", "condition_number_singular", "stable_rank_singular",
)  # fmt: skip
SPECTRUM = np.array([7.5, 4.0, 3.25, 1.5, 0.125])

spectra = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=12).map(lambda s: np.array(sorted(s, reverse=True)))
every_statistic = pytest.mark.parametrize("statistic", SPECTRAL_STATISTICS.values(), ids=lambda one: one.name)


@mpmath.workdps(30)
def by_definition(s):
    s = [mpmath.mpf(float(x)) for x in s]
    eigenvalues = [x**2 for x in s]

    def participation(x):
        return sum(x) ** 2 / sum(v**2 for v in x)

    def entropy(x):
        return -sum(v / sum(x) * mpmath.log(v / sum(x)) for v in x)

    values = {
        "largest_eigenvalue": max(eigenvalues),
        "smallest_eigenvalue": min(eigenvalues),
        "trace": sum(eigenvalues),
        "trace_of_square": sum(v**2 for v in eigenvalues),
        "log_determinant": sum(mpmath.log(v) for v in eigenvalues),
        "effective_rank": mpmath.exp(entropy(s)),
    }
    for x, ending in ((eigenvalues, ""), (s, "_singular")):
        values |= {
            f"participation_ratio{ending}": participation(x),
            f"normalized_participation_ratio{ending}": participation(x) / len(x),
            f"spectral_entropy{ending}": entropy(x),
            f"condition_number{ending}": max(x) / min(x),
            f"stable_rank{ending}": sum(x) / max(x),
        }
    return {name: float(value) for name, value in values.items()}


def bound(words, rank):
    return {"-inf": -np.inf, "0": 0.0, "1": 1.0, "1/h": 1 / rank, "h": rank, "ln h": np.log(rank), "inf": np.inf}[words]


def test_the_registry_is_in_the_order_of_tables_and_many_spectra_are_each_alone():
    assert tuple(SPECTRAL_STATISTICS) == NAMES
    assert all(name == one.name for name, one in SPECTRAL_STATISTICS.items())
    s = np.sort(np.random.default_rng(2).random((4, 3, 6)), axis=-1)[..., ::-1]
    together = spectral_statistics(s)
    assert together.shape == (4, 3, len(NAMES))
    np.testing.assert_allclose(together[2, 1], spectral_statistics(s[2, 1]), rtol=1e-14)
    names = ["stable_rank", "trace"]
    chosen = spectral_statistics(SPECTRUM, names)
    np.testing.assert_array_equal(chosen, [spectral_statistics(SPECTRUM, [name])[0] for name in names])
    assert spectral_statistics(SPECTRUM, iter(names)).shape == (2,)
    single = spectral_statistics(SPECTRUM.astype(np.float32))
    assert single.dtype == np.float64
    np.testing.assert_array_equal(single, spectral_statistics(SPECTRUM.astype(np.float32).astype(np.float64)))
    of = dict(zip(NAMES, spectral_statistics([2.0, 1.0, 0.0]), strict=True))
    assert of["log_determinant"] == -np.inf
    assert of["condition_number"] == of["condition_number_singular"] == np.inf
    assert of["smallest_eigenvalue"] == 0.0
    assert of["participation_ratio"] == pytest.approx(25 / 17)
    assert of["spectral_entropy"] == pytest.approx(-(0.8 * np.log(0.8) + 0.2 * np.log(0.2)))


@pytest.mark.parametrize("s", [SPECTRUM, SPECTRUM[:1], np.full(6, 0.3), np.geomspace(1e4, 1e-4, 40)])
@every_statistic
def test_value_is_that_of_the_definition(statistic, s):
    (value,) = spectral_statistics(s, [statistic.name])
    assert value == pytest.approx(by_definition(s)[statistic.name], rel=2e-14, abs=1e-12)


@every_statistic
@given(s=spectra, factor=st.floats(1e-2, 1e2))
@settings(max_examples=50, deadline=None)
def test_rescaling_the_spectrum_rescales_the_statistic_by_its_exponent(statistic, s, factor):
    (before,) = spectral_statistics(s, [statistic.name])
    (after,) = spectral_statistics(np.sqrt(factor) * s, [statistic.name])
    assert after == pytest.approx(statistic.rescale(before, factor, len(s)), rel=1e-11, abs=1e-11)
    if statistic.scaling == "additive":
        assert after - before == pytest.approx(len(s) * np.log(factor), abs=1e-10)
    else:
        assert after == pytest.approx(before * factor**statistic.scaling, rel=1e-11, abs=1e-11)


@every_statistic
@given(s=spectra)
@settings(max_examples=100, deadline=None)
def test_values_stay_in_the_stated_range(statistic, s):
    (value,) = spectral_statistics(s, [statistic.name])
    slack = 1e-12 * len(s)
    assert bound(statistic.lower, len(s)) - slack <= value <= bound(statistic.upper, len(s)) + slack


@pytest.mark.parametrize(
    "statistic",
    [one for one in SPECTRAL_STATISTICS.values() if one.scaling == 0 and one.upper != "inf"],
    ids=lambda one: one.name,
)
def test_bounded_statistics_reach_their_bounds_at_flat_and_at_single_spectra(statistic):
    (flat,) = spectral_statistics(np.ones(5), [statistic.name])
    (spike,) = spectral_statistics(np.array([1.0, 1e-12, 1e-12, 1e-12, 1e-12]), [statistic.name])
    assert flat == pytest.approx(bound(statistic.upper, 5), rel=1e-14)
    assert spike == pytest.approx(bound(statistic.lower, 5), abs=1e-9)


@every_statistic
def test_every_entry_says_what_it_is(statistic):
    assert statistic.long_name and statistic.symbol and statistic.formula
    assert (r"\lambda" in statistic.formula) == (statistic.convention == "eigenvalue")
    assert statistic.on_log_scale == (statistic.lower in ("0", "1") and statistic.upper == "inf")


@pytest.mark.parametrize("call", [get_statistic, lambda name: spectral_statistics(SPECTRUM, ["trace", name])])
def test_an_unknown_name_is_refused_with_the_names_there_are(call):
    with pytest.raises(ParameterError, match=r"(statistic|names) = 'rank': expected one of largest_eig.*stable_rank"):
        call("rank")
