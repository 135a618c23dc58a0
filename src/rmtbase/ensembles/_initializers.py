"""Initialisers of weight matrices, by name: their options and the shape determine the law of the elements."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar, Self, dataclass_transform

from rmtbase.ensembles import _element_laws as laws
from rmtbase.ensembles._ensemble import as_pytree
from rmtbase.errors import ParameterError
from rmtbase.parameters import require_finite_number, require_positive_integer, require_positive_number

Check = Callable[[str, object], Any]


def option(check: Check, default: object = MISSING, *, static: bool = False) -> Any:
    """Make a dataclass field for an option: its check, its default, and whether a compilation depends on it."""
    keywords: dict[str, Any] = {} if default is MISSING else {"default": default}
    return dataclasses.field(metadata={"check": check, "static": static}, **keywords)


def one_of(*choices: str) -> Check:
    def check(name: str, value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ParameterError(name, value, "one of " + ", ".join(map(repr, choices)))
        return value

    return check


@dataclass_transform(frozen_default=True, field_specifiers=(option,))
@dataclass(frozen=True)
class Recipe(ABC):
    """Recipe for drawing a new weight matrix. The fields are its options; a subclass is a frozen dataclass."""

    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        as_pytree(dataclass(frozen=True)(cls))

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> Self:
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for name, value in options.items():
            if name not in fields:
                raise ParameterError(name, value, f"an option of {cls.name}: {', '.join(fields) or 'it has none'}")
        for name, field in fields.items():
            if name not in options and field.default is MISSING:
                raise ParameterError(name, None, f"a value, which {cls.name} needs")
        return cls(**{name: fields[name].metadata["check"](name, value) for name, value in options.items()})

    @property
    def label(self) -> str:
        return " ".join([self.name, *(f"{name}={value}" for name, value in vars(self).items())])


class Initializer(Recipe):
    """Recipe whose elements are independent."""

    @abstractmethod
    def law(self, fan_out: int, fan_in: int) -> laws.ElementLaw: ...


class Normal(Initializer):
    """N(mean, std²), as torch.nn.init.normal_."""

    name = "normal"
    mean: float = option(require_finite_number, 0.0)
    std: float = option(require_positive_number, 1.0)

    def law(self, fan_out: int, fan_in: int) -> laws.Normal:
        return laws.Normal(self.std, self.mean)


class TruncatedNormal(Initializer):
    """Normal law cut off at ±bound of its own deviations; ``std`` is that of the parent, or of the elements.

    The parent's, as in torch.nn.init.trunc_normal_(w, std=std, a=-bound*std, b=bound*std), leaves the elements 0.87963
    std at bound 2; that of the elements, as in variance_scaling of jax and flax, is still cut at the parent's bound.
    """

    name = "truncated_normal"
    std: float = option(require_positive_number, 1.0)
    bound: float = option(require_positive_number, 2.0, static=True)
    std_of: str = option(one_of("parent", "elements"), "parent", static=True)

    def law(self, fan_out: int, fan_in: int) -> laws.TruncatedNormal:
        shrinkage = laws.truncated_std(self.bound) if self.std_of == "elements" else 1.0
        return laws.TruncatedNormal(self.std / shrinkage, self.bound)


class Uniform(Initializer):
    """U(−bound, bound), as torch.nn.init.uniform_(w, -bound, bound)."""

    name = "uniform"
    bound: float = option(require_positive_number)

    def law(self, fan_out: int, fan_in: int) -> laws.Uniform:
        return laws.Uniform(self.bound)


class XavierUniform(Initializer):
    """U(−b, b), b = gain √(6/(fan_in + fan_out)), as xavier_uniform_: X. Glorot and Y. Bengio, AISTATS (2010)."""

    name = "xavier_uniform"
    gain: float = option(require_positive_number, 1.0)

    def law(self, fan_out: int, fan_in: int) -> laws.Uniform:
        return laws.Uniform(self.gain * (6 / (fan_in + fan_out)) ** 0.5)


class XavierNormal(Initializer):
    """N(0, s²) with s = gain √(2/(fan_in + fan_out)), as torch.nn.init.xavier_normal_; source as above."""

    name = "xavier_normal"
    gain: float = option(require_positive_number, 1.0)

    def law(self, fan_out: int, fan_in: int) -> laws.Normal:
        return laws.Normal(self.gain * (2 / (fan_in + fan_out)) ** 0.5)


_SQUARED_GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 25 / 9, "relu": 2.0, "selu": 9 / 16}


class _Kaiming(Initializer):
    """Options of both Kaiming initialisers: K. He, X. Zhang, S. Ren and J. Sun, ICCV (2015)."""

    # negative slope of a leaky rectifier; no effect with other nonlinearities
    a: float = option(require_finite_number, 0.0)
    # the fan that divides the variance, ``"fan_in"`` or ``"fan_out"``
    mode: str = option(one_of("fan_in", "fan_out"), "fan_in", static=True)
    # sets the gain: 1 (linear, sigmoid), 5/3 (tanh), √2 (relu), √(2/(1 + a²)) (leaky_relu), 3/4 (selu)
    nonlinearity: str = option(one_of("leaky_relu", *_SQUARED_GAINS), "leaky_relu", static=True)

    def _std(self, fan_out: int, fan_in: int) -> float:
        leaky = self.nonlinearity == "leaky_relu"
        squared_gain = 2 / (1 + self.a**2) if leaky else _SQUARED_GAINS[self.nonlinearity]
        return (squared_gain / (fan_in if self.mode == "fan_in" else fan_out)) ** 0.5


class KaimingUniform(_Kaiming):
    """U(−b, b) with b = gain √(3/fan), as torch.nn.init.kaiming_uniform_."""

    name = "kaiming_uniform"

    def law(self, fan_out: int, fan_in: int) -> laws.Uniform:
        return laws.Uniform(3**0.5 * self._std(fan_out, fan_in))


class KaimingNormal(_Kaiming):
    """N(0, s²) with s = gain/√fan, as torch.nn.init.kaiming_normal_; ``nonlinearity="linear"`` is LeCun's."""

    name = "kaiming_normal"

    def law(self, fan_out: int, fan_in: int) -> laws.Normal:
        return laws.Normal(self._std(fan_out, fan_in))


class TorchLinear(Initializer):
    """U(−b, b) with b = 1/√fan_in, the default of torch.nn.Linear: ``kaiming_uniform`` with a = √5."""

    name = "torch_linear"

    def law(self, fan_out: int, fan_in: int) -> laws.Uniform:
        return laws.Uniform(fan_in**-0.5)


class SmallInit(Initializer):
    """N(0, s²), s = √(2/(5 d_model)), of matrices that read: T. Q. Nguyen and J. Salazar, IWSLT (2019)."""

    name = "small_init"
    d_model: int = option(require_positive_integer)

    def law(self, fan_out: int, fan_in: int) -> laws.Normal:
        return laws.Normal((2 / (5 * self.d_model)) ** 0.5)


class WangInit(Initializer):
    """N(0, s²), s = 2/(n_layers √d_model), of matrices that write: GPT-J-6B (2021), GPT-NeoX-20B, arXiv:2204.06745."""

    name = "wang_init"
    n_layers: int = option(require_positive_integer)
    d_model: int = option(require_positive_integer)

    def law(self, fan_out: int, fan_in: int) -> laws.Normal:
        return laws.Normal(2 / (self.n_layers * self.d_model**0.5))


class ScaledNormal(Initializer):
    """N(0, s²), s = std/√(2 n_layers), of output projections: A. Radford et al., GPT-2 (2019)."""

    name = "scaled_normal"
    n_layers: int = option(require_positive_integer)
    std: float = option(require_positive_number, 0.02)

    def law(self, fan_out: int, fan_in: int) -> laws.Normal:
        return laws.Normal(self.std / (2 * self.n_layers) ** 0.5)


class Orthogonal(Recipe):
    """gain · Q, Q Haar on the Stiefel manifold: A. M. Saxe, J. L. McClelland and S. Ganguli, ICLR (2014)."""

    name = "orthogonal"
    gain: float = option(require_positive_number, 1.0)


INITIALIZERS: dict[str, type[Initializer] | type[Orthogonal]] = {
    recipe.name: recipe
    for recipe in (
        *(Normal, TruncatedNormal, Uniform, XavierUniform, XavierNormal, KaimingUniform, KaimingNormal),
        *(TorchLinear, SmallInit, WangInit, ScaledNormal, Orthogonal),
    )
}
