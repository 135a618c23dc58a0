"""The arrays of the laws: functions of numbers keep the shape of their argument, whatever it is."""

from __future__ import annotations

import numpy as np
from jaxtyping import Complex, Float

FloatArray = Float[np.ndarray, "..."]
ComplexArray = Complex[np.ndarray, "..."]
