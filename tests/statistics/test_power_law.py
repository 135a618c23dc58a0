"""Power laws in the tail of a sample."""

import math

import numpy as np
import pytest
from scipy import stats

from rmtbase.errors import ParameterError
from rmtbase.statistics import power_law_fit, power_law_p_value

STEPS = np.arange(1.0, 101.0)


def _tail_on_a_bulk(exponent):
    return np.concatenate([STEPS / 125.0, (1.0 - (STEPS - 0.5) / 100.0) ** (-1.0 / (exponent - 1.0))])


# What the package powerlaw 1.5 finds, where both sides of each step give the same x_min.
@pytest.mark.parametrize(
    ("values", "exponent", "x_min", "tail"),
    [
        (_tail_on_a_bulk(2.5), 2.5128198030611886, 1.0033472842348656, 100),
        (_tail_on_a_bulk(5.0), 5.034186141496503, 1.0012539209582008, 100),
        (np.arange(1.0, 61.0) ** 2, 4.327368418213396, 2025.0, 16),
    ],
)
def test_fits_are_those_of_another_program(values, exponent, x_min, tail):
    fit = power_law_fit(np.random.default_rng(1).permutation(values).reshape(2, -1))
    assert (fit.exponent, fit.x_min) == pytest.approx((exponent, x_min), rel=1e-12) and fit.tail == tail
    assert fit.standard_error == pytest.approx((exponent - 1.0) / math.sqrt(tail), rel=1e-12)


def test_a_fit_is_the_maximum_of_the_likelihood_and_its_distance_that_of_kolmogorov():
    x = np.random.default_rng(2).pareto(2.0, 200) + 1.0
    for x_min in (None, 1.5):
        fit = power_law_fit(x, x_min)
        tail = x[x >= fit.x_min]
        assert fit.tail == tail.size and (x_min is None or fit.x_min == x_min)
        assert fit.exponent == pytest.approx(1.0 + stats.pareto.fit(tail, floc=0.0, fscale=fit.x_min)[0], rel=1e-3)
        found = stats.kstest(tail, stats.pareto(fit.exponent - 1.0, scale=fit.x_min).cdf).statistic
        assert fit.distance == pytest.approx(found, abs=1e-12)
    distances = [power_law_fit(x, float(one)).distance for one in np.sort(x)[:-1]]
    assert power_law_fit(x).distance == min(distances)


def test_exponents_do_not_change_with_the_unit_and_have_no_upper_bound():
    x = _tail_on_a_bulk(40.0)
    fit, scaled = power_law_fit(x), power_law_fit(1e30 * x)
    assert fit.exponent == pytest.approx(40.0, rel=0.02) == pytest.approx(scaled.exponent, rel=0.02)
    assert scaled.x_min == pytest.approx(1e30 * fit.x_min, rel=1e-12)


def test_the_p_value_holds_its_level_and_rules_out_what_is_no_power_law():
    rng = np.random.default_rng(4)
    p = [power_law_p_value(rng.pareto(1.5, 25) + 1.0, draws=19, seed=k) for k in range(40)]
    assert set(np.round(np.multiply(p, 20.0), 9)) <= set(range(1, 21))
    # At 0.1: 4 of 40 expected, at most 14 with probability 1 - 1e-5.
    assert np.sum(np.less_equal(p, 0.1)) <= 14
    # Three values lie in steps that no continuous law has.
    assert power_law_p_value(np.repeat([1.0, 2.0, 3.0], [80, 40, 20]), draws=19) == 0.05
    values = _tail_on_a_bulk(2.5)
    assert power_law_p_value(values, 19, seed=7) == power_law_p_value(values, 19, seed=7)


REFUSED = [
    *((lambda x=x: power_law_fit(x), "values") for x in ([1.0], [2.0, 2.0], [1.0, 0.0], [1.0, math.nan], [])),
    (lambda: power_law_p_value([2.0, 2.0]), "values"),
    *((lambda x_min=x_min: power_law_fit([1.0, 2.0, 3.0], x_min), "x_min") for x_min in (0.0, 3.0, 2.5, math.nan)),
    (lambda: power_law_p_value([1.0, 2.0, 3.0], draws=0), "draws"),
]


@pytest.mark.parametrize(("call", "culprit"), REFUSED)
def test_what_has_no_tail_is_refused(call, culprit):
    with pytest.raises(ParameterError, match=culprit):
        call()
