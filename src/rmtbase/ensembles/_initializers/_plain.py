"""Initialisers that are told the scale of the elements: normal, truncated normal, uniform."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from rmtbase.ensembles import _element_laws as laws
from rmtbase.ensembles._initializers._initializer import Initializer, one_of, option
from rmtbase.parameters import require_finite_number, require_positive_number


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Normal(Initializer):
    """N(mean, std²), as torch.nn.init.normal_."""

    name = "normal"
    mean: float = option(require_finite_number, 0.0)
    std: float = option(require_positive_number, 1.0)

    def law(self, fan_out: int, fan_in: int) -> laws.Normal:
        """N(mean, std²)."""
        return laws.Normal(self.std, self.mean)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TruncatedNormal(Initializer):
    """A centred normal law cut off at ±bound of its own standard deviations.

    With ``std_of="parent"``, ``std`` is that of the normal law before it is cut, and the elements' is smaller (0.87963
    std at bound 2): torch.nn.init.trunc_normal_(w, std=std, a=-bound*std, b=bound*std), whose a and b are absolute, so
    that at their defaults of ±2 nothing is cut from weights of std 0.02; and jax.nn.initializers.truncated_normal(std,
    lower=-bound, upper=bound). With ``std_of="elements"``, ``std`` is that of the elements, and the cut is still at
    ``bound`` deviations of the wider parent: the truncated laws of jax's and flax's variance_scaling, with bound 2.
    """

    name = "truncated_normal"
    std: float = option(require_positive_number, 1.0)
    bound: float = option(require_positive_number, 2.0, static=True)
    std_of: str = option(one_of("parent", "elements"), "parent", static=True)

    def law(self, fan_out: int, fan_in: int) -> laws.TruncatedNormal:
        """The truncated law, by its parent's standard deviation."""
        shrinkage = laws.truncated_std(self.bound) if self.std_of == "elements" else 1.0
        return laws.TruncatedNormal(self.std / shrinkage, self.bound)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Uniform(Initializer):
    """U(−bound, bound), as torch.nn.init.uniform_(w, -bound, bound)."""

    name = "uniform"
    bound: float = option(require_positive_number)

    def law(self, fan_out: int, fan_in: int) -> laws.Uniform:
        """U(−bound, bound)."""
        return laws.Uniform(self.bound)
