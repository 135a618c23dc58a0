"""The arrays of the laws: functions of numbers keep the shape of their argument, whatever it is."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

FloatArray = Float[np.ndarray, "..."]
ComplexArray = NDArray[np.complex128]  # of jaxtyping's, pyright would not know the real and imaginary parts
