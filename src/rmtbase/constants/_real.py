"""Arithmetic of a number with a name and other attributes."""

import math
import operator
from abc import abstractmethod
from collections.abc import Callable
from numbers import Real
from typing import Any, cast

from mpmath import mp

_PER_BIT = math.log10(2)


def _binary(operation: Callable[[Any, Any], Any]) -> Any:
    return lambda self, operand: operation(self._beside(operand), operand)


def _of_value(function: Callable[..., Any]) -> Any:
    return lambda self, *arguments: function(self.value, *arguments)


def _reflected(operation: Callable[[Any, Any], Any]) -> Any:
    return lambda self, operand: operation(operand, self._beside(operand))


class NamedReal(Real):
    """Real number that acts as a double, or with mpmath numbers has all digits of their working precision."""

    @property
    @abstractmethod
    def value(self) -> float:
        """Nearest double."""

    @abstractmethod
    def significant_digits(self, digits: int) -> str:
        """Return the value in decimal, to ``digits`` significant digits or to as many as there are."""

    def _mpmath_(self, prec: int, rounding: str) -> Any:
        with mp.workprec(prec):
            return mp.mpf(self.significant_digits(math.ceil(prec * _PER_BIT) + 2))

    def _beside(self, operand: object) -> Any:
        return mp.mpf(cast("Any", self)) if isinstance(operand, mp.mpf | mp.mpc) else self.value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np

        return np.asarray(self.value, dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = (operand.value if isinstance(operand, NamedReal) else operand for operand in inputs)
        return getattr(ufunc, method)(*plain, **options)

    __float__ = _of_value(float)
    __int__ = _of_value(int)
    __hash__ = _of_value(hash)
    __str__ = _of_value(str)
    __format__ = _of_value(format)
    __round__ = _of_value(round)
    __trunc__ = _of_value(math.trunc)
    __floor__ = _of_value(math.floor)
    __ceil__ = _of_value(math.ceil)
    __abs__ = _of_value(abs)
    __neg__ = _of_value(operator.neg)
    __pos__ = _of_value(operator.pos)
    __eq__ = _binary(operator.eq)
    __ne__ = _binary(operator.ne)
    __lt__ = _binary(operator.lt)
    __le__ = _binary(operator.le)
    __gt__ = _binary(operator.gt)
    __ge__ = _binary(operator.ge)
    __add__, __radd__ = _binary(operator.add), _reflected(operator.add)
    __sub__, __rsub__ = _binary(operator.sub), _reflected(operator.sub)
    __mul__, __rmul__ = _binary(operator.mul), _reflected(operator.mul)
    __truediv__, __rtruediv__ = _binary(operator.truediv), _reflected(operator.truediv)
    __floordiv__, __rfloordiv__ = _binary(operator.floordiv), _reflected(operator.floordiv)
    __mod__, __rmod__ = _binary(operator.mod), _reflected(operator.mod)
    __pow__, __rpow__ = _binary(operator.pow), _reflected(operator.pow)
