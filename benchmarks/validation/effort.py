"""Amount of simulation, and the random numbers that each case uses."""

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SEED = 1


@dataclass(frozen=True)
class Effort:
    """The scale of one run.

    Attributes:
        quick: whether few draws of small cases will do.
        draws_folder: where the draws of heads are kept.
        simulate: whether missing draws of heads are made; else their shapes are left out.
    """

    quick: bool
    draws_folder: Path
    simulate: bool = True

    def draws(self, full: int) -> int:
        """Return the number of draws: in a quick run a hundredth, at least 50."""
        return max(50, full // 100) if self.quick else full


def generator(name: str) -> np.random.Generator:
    """Random numbers of one case; they depend only on its name."""
    return np.random.default_rng((SEED, zlib.crc32(name.encode())))
