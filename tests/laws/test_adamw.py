"""The scale of weights under AdamW with noise for gradients."""

import math

import numpy as np
import pytest

from rmtbase.laws import AdamWNoise


@pytest.mark.parametrize("beta1", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(("eta", "decay"), [(1e-3, 0.1), (0.01, 4.0)])
def test_the_variance_is_that_of_the_recursion(eta, decay, beta1):
    # The covariance of (w, m), step by step.
    law = AdamWNoise(eta, decay, beta1)
    keep = 1 - eta * decay
    step = np.array([[keep, -eta * beta1], [0.0, beta1]])
    kick = (1 - beta1) * np.array([-eta, 1.0])
    covariance = np.diag([0.03**2, 0.0])
    steps, expected = np.arange(400), np.empty(400)
    for t in steps:
        expected[t] = math.sqrt(covariance[0, 0])
        covariance = step @ covariance @ step.T + np.outer(kick, kick)
    np.testing.assert_allclose(law.std_after(steps, 0.03), expected, rtol=1e-9)


@pytest.mark.parametrize("beta1", [0.0, 0.9])
def test_equilibrium_is_the_limit_and_is_approached_in_half_a_relaxation_time(beta1):
    law = AdamWNoise(1e-3, 0.1, beta1)
    assert law.std_after(10**7) == pytest.approx(law.std(), rel=1e-12)
    assert law.var() == law.std() ** 2
    assert law.relaxation_time == pytest.approx(1e4, rel=1e-4)
    missing = 1 - (law.std_after(np.array([10_000, 20_000])) / law.std()) ** 2
    np.testing.assert_allclose(missing, np.exp([-2.0, -4.0]), rtol=3e-3)


def test_the_scale_is_the_root_of_learning_rate_over_weight_decay():
    for eta, decay in ((1e-4, 0.01), (3e-4, 0.1), (1e-3, 0.1)):
        law = AdamWNoise(eta, decay)
        assert law.std() == pytest.approx(math.sqrt(eta / decay / 2), rel=5 * eta * decay)
    assert AdamWNoise(4e-4, 0.01).std() / AdamWNoise(1e-4, 0.01).std() == pytest.approx(2.0, rel=1e-4)


def test_adamw_itself_has_this_scale():
    eta, decay, beta1, beta2, weights, steps = 0.01, 0.4, 0.9, 0.999, 4000, 700
    rng = np.random.default_rng(5)
    w = np.zeros(weights)
    m, v = np.zeros((2, weights))
    for t in range(1, steps + 1):
        gradient = 7.0 * rng.standard_normal(weights)
        m, v = beta1 * m + (1 - beta1) * gradient, beta2 * v + (1 - beta2) * gradient**2
        w = (1 - eta * decay) * w - eta * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + 1e-8)
    # Monte Carlo error 1.1 % (four of them), and the denominator's fluctuations, 0.5 %.
    assert w.std() == pytest.approx(AdamWNoise(eta, decay, beta1).std_after(steps), rel=0.05)
