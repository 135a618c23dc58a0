"""Constants whose decimal digits stand in the On-Line Encyclopedia of Integer Sequences, by their identifiers.

The digits that are printed there were compared with ours: ``tests/constants/test_release.py``.
"""

from __future__ import annotations

OEIS = {
    "rmtbase:constants.v1/zeta_prime_minus_one": "A084448",
    "rmtbase:constants.v1/square_product_upper_singular_edge": "A104956",
    "rmtbase:constants.v1/square_product_spike_threshold": "A002194",
    "rmtbase:constants.v1/laplace_anchor_scale": "A010503",
}
"""Of the modulus: A084448 are the digits of -ζ'(-1)."""
