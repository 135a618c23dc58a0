"""Erratum to "Weight Distributions in Transformer Attention Heads", figure 4: divergence of W_QK from the normal law.

Published: at d = 1000 the KL divergence of the elements from the normal law of the same standard deviation "is at
most ~10^-3" across the full range of d_h, falls toward zero as d_h increases, and is "negligible by d_h >~ 200".

Right: the divergence of the law is below 1e-3 only from d_h = 25 on (9.93e-4; it is 5.1e-3 at 10 and 0.215 at 1). A
histogram of one matrix reads that plus a bias near (occupied bins - 1)/(2 d²), which exceeds the divergence itself
from a d_h of about 140 on and does not fall with d_h: the floor of such a curve is the bias, not the matrix.
"""

import math

import numpy as np
import pytest

from rmtbase.laws import histogram_entropy, histogram_kl, product_element
from rmtbase.statistics import histogram_kl as estimate

D_MODEL = 1000
BINS, RANGE = 200, (-5.0, 5.0)  # the grid of the public notebook's figure 3, elements divided by √d


def test_from_200_products_on_the_reading_is_histogram_bias_and_at_25_the_law():
    published = 1e-3
    divergence = {h: product_element(D_MODEL, h).kl_to_normal() for h in (1, 10, 24, 25)}
    assert divergence[25] == pytest.approx(9.9349e-4, rel=1e-5)
    assert divergence[25] < published < divergence[24]
    assert divergence[10] == pytest.approx(5.14e-3, rel=1e-3)
    assert divergence[1] > 200 * published
    # 2 % of the value, where one matrix scatters by 12 %.
    reading, divergence = histogram_kl(D_MODEL, 25, BINS, RANGE), product_element(D_MODEL, 25).kl_to_normal()
    assert abs(reading.mean - divergence) < 0.02 * divergence
    assert reading.std == pytest.approx(0.12 * divergence, rel=0.1)
    for h, times in ((100, 1.4), (200, 3.5), (500, 25.0), (1000, 130.0)):
        reading, divergence = histogram_kl(D_MODEL, h, BINS, RANGE), product_element(D_MODEL, h).kl_to_normal()
        assert reading.mean > times * divergence
    # It does not fall towards zero: 6.5e-5, 7.5e-5 and 9.9e-5, as more bins are occupied.
    readings = [histogram_kl(D_MODEL, h, BINS, RANGE).mean for h in (200, 500, 1000)]
    assert readings == sorted(readings)
    assert readings == pytest.approx([6.5e-5, 7.5e-5, 9.9e-5], rel=0.01)


def test_simulated_matrices_show_the_bias():
    # One matrix at d_h = 500, all of whose 3.0e-6 nats are there to be found: the histogram reads 7.5e-5 ± 0.9e-5.
    # Five standard deviations; the estimate's law is close to a χ² of 140 degrees of freedom: one seed in 10^6.
    rng = np.random.default_rng(6)
    w = rng.standard_normal((D_MODEL, 500)) @ rng.standard_normal((500, D_MODEL)) / math.sqrt(D_MODEL)
    law = histogram_kl(D_MODEL, 500, BINS, RANGE)
    assert abs(estimate(w, BINS, RANGE) - law.mean) < 5 * law.std
    assert law.mean - 5 * law.std > 5 * product_element(D_MODEL, 500).kl_to_normal()


def test_entropy_residual_and_divergence_are_the_same_only_for_the_law():
    # Published: ΔS = -D_KL. It holds for the law; of histogram readings, which add biases of their own, it does not.
    law = product_element(D_MODEL, 200)
    normal = 0.5 * math.log(2 * math.pi * math.e * law.var())
    assert law.entropy() - normal == pytest.approx(-law.kl_to_normal(), rel=1e-10)
    residual = histogram_entropy(D_MODEL, 200, BINS, RANGE).mean - normal
    assert residual > 10 * law.kl_to_normal()  # binning adds width²/(24 variance) = 5e-4 to the entropy
