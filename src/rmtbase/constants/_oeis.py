"""Sequences of the On-Line Encyclopedia of Integer Sequences with the decimal digits of constants, by identifier.

``tests/constants/test_release.py`` compares the digits printed there with those of rmtbase.
"""

from __future__ import annotations

OEIS = {
    "rmtbase:constants.v1/zeta_prime_minus_one": "A084448",
    "rmtbase:constants.v1/square_product_upper_singular_edge": "A104956",
    "rmtbase:constants.v1/square_product_spike_threshold": "A002194",
    "rmtbase:constants.v1/laplace_anchor_scale": "A010503",
}
"""Digits are those of the absolute value: A084448 has the digits of -ζ'(-1)."""
