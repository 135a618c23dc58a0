"""Initialisers whose scale comes from the matrix's shape: Xavier, Kaiming, and the default of torch.nn.Linear."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from rmtbase.ensembles._element_laws import Normal, Uniform
from rmtbase.ensembles._initializers._initializer import Initializer, one_of, option
from rmtbase.parameters import require_finite_number, require_positive_number


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class XavierUniform(Initializer):
    """U(−b, b) with b = gain √(6/(fan_in + fan_out)), as torch.nn.init.xavier_uniform_.

    Source: X. Glorot and Y. Bengio, AISTATS (2010).
    """

    name = "xavier_uniform"
    gain: float = option(require_positive_number, 1.0)

    def law(self, fan_out: int, fan_in: int) -> Uniform:
        """The uniform law."""
        return Uniform(self.gain * (6 / (fan_in + fan_out)) ** 0.5)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class XavierNormal(Initializer):
    """N(0, s²) with s = gain √(2/(fan_in + fan_out)), as torch.nn.init.xavier_normal_.

    Source: X. Glorot and Y. Bengio, AISTATS (2010).
    """

    name = "xavier_normal"
    gain: float = option(require_positive_number, 1.0)

    def law(self, fan_out: int, fan_in: int) -> Normal:
        """The normal law."""
        return Normal(self.gain * (2 / (fan_in + fan_out)) ** 0.5)


_SQUARED_GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 25 / 9, "relu": 2.0, "selu": 9 / 16}


@dataclass(frozen=True)
class _Kaiming(Initializer):
    """The options of both Kaiming initialisers.

    Attributes:
        a: the negative slope of a leaky rectifier; of no effect with any other nonlinearity.
        mode: which fan the variance is divided by.
        nonlinearity: sets the gain: 1 (linear, sigmoid), 5/3 (tanh), √2 (relu), √(2/(1 + a²)) (leaky_relu), 3/4 (selu).
    """

    a: float = option(require_finite_number, 0.0)
    mode: str = option(one_of("fan_in", "fan_out"), "fan_in", static=True)
    nonlinearity: str = option(one_of("leaky_relu", *_SQUARED_GAINS), "leaky_relu", static=True)

    def _std(self, fan_out: int, fan_in: int) -> float:
        leaky = self.nonlinearity == "leaky_relu"
        squared_gain = 2 / (1 + self.a**2) if leaky else _SQUARED_GAINS[self.nonlinearity]
        return (squared_gain / (fan_in if self.mode == "fan_in" else fan_out)) ** 0.5


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class KaimingUniform(_Kaiming):
    """U(−b, b) with b = gain √(3/fan), as torch.nn.init.kaiming_uniform_.

    Source: K. He, X. Zhang, S. Ren and J. Sun, ICCV (2015).
    """

    name = "kaiming_uniform"

    def law(self, fan_out: int, fan_in: int) -> Uniform:
        """The uniform law."""
        return Uniform(3**0.5 * self._std(fan_out, fan_in))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class KaimingNormal(_Kaiming):
    """N(0, s²) with s = gain/√fan, as torch.nn.init.kaiming_normal_; ``nonlinearity="linear"`` is LeCun's.

    Source: K. He, X. Zhang, S. Ren and J. Sun, ICCV (2015).
    """

    name = "kaiming_normal"

    def law(self, fan_out: int, fan_in: int) -> Normal:
        """The normal law."""
        return Normal(self._std(fan_out, fan_in))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TorchLinear(Initializer):
    """U(−b, b) with b = 1/√fan_in, what torch.nn.Linear does unasked: ``kaiming_uniform`` with a = √5."""

    name = "torch_linear"

    def law(self, fan_out: int, fan_in: int) -> Uniform:
        """The uniform law."""
        return Uniform(fan_in**-0.5)
