"""The difference of two rounded matrices has the variance of the change and of the rounding, as NumPy's numbers say.

False failures: a variance of 200 000 numbers is known to 0.32 % (normal) or better, and lies within 3 %, nine standard
errors or more. The seeds are fixed.
"""

import ml_dtypes
import numpy as np
import pytest

from rmtbase.nulls import difference_rounding_variance, spacing

SIZE, SIGMA = 200_000, 0.02
UNIT = 2.0**-14  # about the spacing of bfloat16 at 0.01


def stored(values, dtype):
    return values.astype(np.float32).astype(dtype).astype(np.float64)


def pair(change, dtype):
    rng = np.random.default_rng(3)
    before = SIGMA * rng.standard_normal(SIZE)
    delta = change * rng.standard_normal(SIZE)
    return stored(before, dtype), stored(before + delta, dtype), delta


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_spacing_is_the_distance_to_the_next_number(dtype):
    values = np.array([1.0, 1.5, 0.75, 0.02, -3.0, 1e-5, 0.0]).astype(dtype)
    beyond = np.nextafter(values, np.array(np.inf, dtype=dtype)).astype(np.float64)
    expected = np.abs(beyond - values.astype(np.float64))
    np.testing.assert_array_equal(spacing(values, dtype), expected)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("change", [0.03 * UNIT, 0.1 * UNIT, 0.5 * UNIT, UNIT, 3 * UNIT, 300 * UNIT])
def test_variance_of_a_stored_difference_is_that_of_the_change_and_of_rounding(dtype, change):
    before, after, delta = pair(change, dtype)
    added = np.mean((after - before - delta) ** 2)
    rel = 0.1 if change < 0.1 * UNIT else 0.03  # few elements change by a whole spacing there, each by much
    assert difference_rounding_variance(before, after, change, dtype) == pytest.approx(added, rel=rel)


def test_two_independent_roundings_add_a_sixth_of_the_spacing_squared():
    assert difference_rounding_variance([1.25], [1.5], 10.0, ml_dtypes.bfloat16) == pytest.approx(2.0**-14 / 6)
