"""A constant: a number that is never without its definition, uncertainty and references."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

from rmtbase.constants._bibliography import bibtex
from rmtbase.constants._digits import Computation, Number, agreed_digits, significant
from rmtbase.errors import ParameterError
from rmtbase.parameters import require_head_shape, require_positive_integer

DEFAULT_DIGITS = 30
PUBLISHED_DIGITS = 100
_DOUBLE = 17  # significant digits that name a double

NUMERICAL: dict[str, Any] = {"uncertainty": "numerical: relative error below 1e-100", "most_digits": PUBLISHED_DIGITS}
"""What is said of a constant that has no closed form."""


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """What a constant and a function of the shape both state; see :class:`Constant`."""

    name: str
    symbol: str
    description: str
    definition: str
    method: str
    references: tuple[str, ...]
    compute: Callable[..., Number]
    uncertainty: str | Callable[..., str] = "exact"
    parents: tuple[str, ...] = ()
    most_digits: int = 1000

    def __post_init__(self) -> None:
        for field in ("name", "symbol", "description", "definition", "method", "uncertainty", "references"):
            if not getattr(self, field):
                raise ParameterError(field, getattr(self, field), f"something: no constant goes without its {field}")

    @property
    def reference(self) -> str:
        """The key of the reference to cite."""
        return self.references[0]

    def require_digits(self, digits: object) -> int:
        """``digits`` as an int, or a :class:`ParameterError` unless it lies from 1 to :attr:`most_digits`."""
        number = require_positive_integer("digits", digits)
        if number > self.most_digits:
            raise ParameterError("digits", number, f"at most {self.most_digits}: {self.name} is not known to more")
        return number

    def bibtex(self) -> str:
        """The BibTeX entries of its references."""
        return bibtex(self.references)


@dataclass(frozen=True, kw_only=True)
class Constant(_Entry):
    """A pure number of the null, in the manner of ``astropy.constants``: incomplete ones cannot be made.

    Attributes:
        name: as an attribute of :mod:`rmtbase.constants`.
        symbol: LaTeX, to be set in mathematics.
        description: what it is, one line of plain text.
        definition: LaTeX, to be set in mathematics.
        method: how the digits are computed.
        references: keys of ``references.bib``, the first the one to cite.
        compute: the value at mpmath's working precision.
        uncertainty: ``"exact"`` where a closed form gives any digits; otherwise how far the value can be off.
        parents: names of the constants that this one is computed from.
        most_digits: how many digits can be had.
        published: its digits in the shipped table, or "" where each call computes.

    Raises:
        ParameterError: if a text or the references are missing.
    """

    compute: Computation
    uncertainty: str = "exact"
    published: str = ""

    @property
    def value(self) -> float:
        """The nearest double."""
        return float(self.digits(min(_DOUBLE + 3, self.most_digits)))

    def digits(self, digits: int | None = None) -> str:
        """The value rounded to ``digits`` significant digits, all of them right, in decimal; if None 30, or all it has.

        From the shipped table as far as it goes; beyond, computed at two working precisions that must agree.

        Raises:
            ParameterError: unless 1 ≤ digits ≤ most_digits.
        """
        count = min(DEFAULT_DIGITS, self.most_digits) if digits is None else self.require_digits(digits)
        if self.published and count <= len(Decimal(self.published).as_tuple().digits):
            return significant(Decimal(self.published), count)
        return agreed_digits(self.compute, count)

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True, kw_only=True)
class ConstantFunction(_Entry):
    """A constant of each shape (d_model, d_head): called with one, it is that shape's :class:`Constant`.

    Attributes:
        name, symbol, description, definition, method, references, parents, most_digits: as of :class:`Constant`.
        compute: the parameters ↦ the value at mpmath's working precision.
        uncertainty: ``"exact"``, or what is neglected, or the parameters ↦ that.
        parameters: what it depends on, of ``d_model`` and ``d_head``.
    """

    parameters: tuple[str, ...] = ("d_model", "d_head")

    def __call__(self, *shape: int, **named: int) -> Constant:
        """The constant of one shape, given in the order of :attr:`parameters` or by name.

        Raises:
            ParameterError: for a parameter too many or too few, for dimensions that are not positive integers, for
                d_head > d_model, and where the law does not exist (a soft lower edge at d_head = d_model).
        """
        checked = self._checked(dict(zip(self.parameters, shape, strict=False)) | named, len(shape))
        self.compute(*checked)  # outside its domain it refuses here, not at the first digit asked for
        stated = {field.name: getattr(self, field.name) for field in fields(_Entry)}
        stated["compute"] = lambda: self.compute(*checked)
        if callable(self.uncertainty):
            stated["uncertainty"] = self.uncertainty(*checked)
        return Constant(**stated)

    def value(self, *shape: int, **named: int) -> float:
        """The nearest double at one shape."""
        return self(*shape, **named).value

    def _checked(self, given: dict[str, int], positional: int) -> tuple[int, ...]:
        takes = " and ".join(self.parameters)
        for name in self.parameters:
            if name not in given:
                raise ParameterError(name, None, f"a positive integer: {self.name} is a function of {takes}")
        if len(given) > len(self.parameters) or positional > len(self.parameters):
            raise ParameterError("parameters", tuple(given), f"{takes} alone: {self.name} depends on nothing else")
        if self.parameters == ("d_model", "d_head"):
            return require_head_shape(given["d_model"], given["d_head"])
        return tuple(require_positive_integer(name, given[name]) for name in self.parameters)


def constant(
    *,
    name: str,
    compute: Callable[..., Number],
    parents: tuple[Constant, ...] = (),
    method: str = "closed form",
    **stated: Any,
) -> Constant:
    """A :class:`Constant` whose digits are in the shipped table, ``digits.json``.

    Args:
        name: of the constant, also in the table.
        compute: the values of the parents ↦ its own.
        parents: the constants that it is computed from.
        method: how.
        **stated: the further fields of :class:`Constant`.
    """
    return Constant(
        name=name,
        compute=lambda: compute(*(parent.compute() for parent in parents)),
        parents=tuple(parent.name for parent in parents),
        method=method,
        published=_table().get(name, ""),
        **stated,
    )


@cache
def _table() -> dict[str, str]:
    return json.loads(files("rmtbase.constants").joinpath("digits.json").read_text(encoding="utf-8"))
