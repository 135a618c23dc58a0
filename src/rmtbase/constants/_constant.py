"""A constant: a number that is never without its conditions, definition, uncertainty and references."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from decimal import Context, Decimal
from difflib import get_close_matches
from html import escape
from typing import Any

from mpmath import mp

from rmtbase.constants._bibliography import bibtex
from rmtbase.constants._conditions import Conditions, Scale
from rmtbase.constants._digits import Computation, Number, agreed_digits, significant
from rmtbase.constants._oeis import OEIS
from rmtbase.constants._real import NamedReal
from rmtbase.constants._software import software
from rmtbase.errors import ParameterError
from rmtbase.parameters import require_head_shape, require_positive_integer

IDENTIFIER = "rmtbase:constants."
"""What every identifier begins with."""

DEFAULT_DIGITS = 30
PUBLISHED_DIGITS = 100
_DOUBLE = 17  # significant digits that name a double
_IN_REPR = 15
_SHAPE = ("d_model", "d_head")
_KEYWORDS = (*_SHAPE, "sigma", "sigma_q", "sigma_k", "normalization")
_NEVER_WITHOUT = ("name", "symbol", "description", "definition", "conditions", "method", "uncertainty", "references")

GAIN, RAW_GAIN = r"g = \sigma_Q \sigma_K", r"g = \sigma_Q \sigma_K \sqrt{d}"
"""In definitions, of W_QK divided by √d_model and of the raw one."""

NUMERICAL: dict[str, Any] = {
    "uncertainty": "numerical: relative error below 1e-100",
    "relative_error": 1e-100,
    "most_digits": PUBLISHED_DIGITS,
}
"""What is said of a constant that has no closed form."""


KINDS_OF_ERROR = {
    "exact": "a closed form gives any digits",
    "numerical": "a bound on what was computed",
    "asymptotic": "the size of what an expansion neglects, not a bound",
    "statistical": "one standard error of an estimate",
}
"""What :attr:`Constant.error` is, by the word that ``uncertainty`` begins with."""


@dataclass(frozen=True)
class Release:
    """The set that a constant came with.

    Attributes:
        name: as v1.
        date: of its release, or "" while it is being prepared.
    """

    name: str
    date: str


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """What a constant and a function of the shape both state; see :class:`Constant`."""

    name: str
    symbol: str
    description: str
    definition: str
    conditions: Conditions
    method: str
    references: tuple[str, ...]
    compute: Callable[..., Number]
    uncertainty: str | Callable[..., str] = "exact"
    relative_error: float | Callable[..., float] = 0.0
    parents: tuple[str, ...] = ()
    most_digits: int = 1000
    released: Release | None = None

    def __post_init__(self) -> None:
        for field in _NEVER_WITHOUT:
            if not getattr(self, field):
                raise ParameterError(field, getattr(self, field), f"something: no constant goes without its {field}")

    @property
    def id(self) -> str:
        """Its identifier, as ``rmtbase:constants.v1/product_upper_edge``: of this number, for good."""
        return f"{IDENTIFIER}{self.released.name}/{self.name}" if self.released else ""

    @property
    def oeis(self) -> str:
        """The sequence of its digits in the On-Line Encyclopedia of Integer Sequences, or "" where that has none."""
        return OEIS.get(self.id, "")

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
        """The BibTeX entries of its references, and of rmtbase, which computed it."""
        return f"{bibtex(self.references)}\n\n{software().bibtex}"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Constant(NamedReal, _Entry):
    """A number of the null, in the manner of ``astropy.constants``: incomplete ones cannot be made.

    In expressions it is its double: ``c + 1``, ``c * array``, ``np.sqrt(c)``, ``f"{c:.3f}"``, ``c == 6.75``; beside
    numbers of mpmath it has all digits of their working precision: ``mp.mpf(c)``. What takes Python's own numbers alone
    takes ``float(c)`` (functions of jax, ``json``) or ``c.digits(n)`` (``Decimal``); :func:`as_json` is all of it. It
    can be copied and pickled: its computation is found again by its name.

    Attributes:
        name: as an attribute of :mod:`rmtbase.constants`.
        symbol: LaTeX, to be set in mathematics.
        description: what it is, one line of plain text.
        definition: LaTeX, to be set in mathematics.
        conditions: what it holds for.
        method: how the digits are computed.
        references: keys of ``references.bib``, the first the one to cite.
        compute: the value at mpmath's working precision.
        uncertainty: ``"exact"`` where a closed form gives any digits; otherwise how far the value can be off.
        relative_error: the same as a number; 0 where it is exact.
        parents: names of the constants that this one is computed from.
        most_digits: how many digits can be had.
        released: the set that it came with.
        published: its digits in the record of that set, or "" where each call computes.
        enclosure: a lower and an upper bound in decimal, proved in ball arithmetic; None of what was not enclosed.
        arguments: what its :class:`ConstantFunction` was called with; None of a pure number.

    Raises:
        ParameterError: if a text or the references are missing.
    """

    compute: Computation
    uncertainty: str = "exact"
    relative_error: float = 0.0
    published: str = ""
    enclosure: tuple[str, str] | None = None
    arguments: Mapping[str, Any] | None = None

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

    @property
    def error_kind(self) -> str:
        """What the error is: a key of ``KINDS_OF_ERROR``."""
        return self.uncertainty.replace(":", " ").split()[0]

    @property
    def error(self) -> float:
        """How far the value can be off: its :attr:`relative_error` in the value's own unit; 0 where it is exact."""
        return abs(self.value) * self.relative_error if self.relative_error else 0.0

    @property
    def known_digits(self) -> int:
        """How many significant digits its error leaves, the last at the place of the error's first."""
        if not self.relative_error:
            return self.most_digits
        value = Decimal(self.significant_digits(_DOUBLE))
        return min(max(value.adjusted() - self._shown_error().adjusted() + 1, 1), self.most_digits)

    def significant_digits(self, digits: int) -> str:
        """The value to ``digits`` significant digits, or to as many as there are."""
        return self.digits(min(digits, self.most_digits))

    def rounded(self, digits: int = DEFAULT_DIGITS) -> tuple[str, str]:
        """The value to ``digits`` digits, but none beyond its error; and the error, or "" where it is further right.

        Raises:
            ParameterError: if ``digits`` is not a positive integer.
        """
        digits = require_positive_integer("digits", digits)
        if digits < self.known_digits or not self.relative_error or self.known_digits == self.most_digits:
            return self.significant_digits(min(digits, self.known_digits)), ""
        return self.digits(self.known_digits), significant(self._shown_error(), 1)

    def _shown_error(self) -> Decimal:
        """The error to one digit, also where doubles have none so small."""
        value = abs(Decimal(self.significant_digits(_DOUBLE)))
        return Context(prec=1).multiply(value, Decimal(self.relative_error))

    def __repr__(self) -> str:
        value, error = self.rounded(_IN_REPR)
        off = f" ± {error}" if error else ""
        under = self.conditions
        conditions = (one for one in (under.normalization, under.sigma, under.shape) if one)
        return f"<{self.name} = {value}{off}, {self.uncertainty.partition(';')[0]}; {', '.join(conditions) or under}>"

    def _repr_html_(self) -> str:
        """A small table, in notebooks."""
        value, error = self.rounded(_IN_REPR)
        rows = {
            "value": f"{value} ± {error}" if error else value,
            "known": self.uncertainty,
            **self.conditions.stated(),
            "definition": f"${self.symbol} = {self.definition}$",
            "references": ", ".join(self.references),
        }
        cells = "".join(
            f'<tr><th style="text-align: left">{name}</th><td style="text-align: left">{escape(text)}</td></tr>'
            for name, text in rows.items()
        )
        heading = f"<b>{escape(self.name)}</b> {escape(self.description)}"
        return f'<table><caption style="text-align: left">{heading}</caption>{cells}</table>'


def unscaled(value: Number, square: Number, d_head: int) -> Number:
    """A number that no factor of W_QK changes."""
    return value


def power(degree: int) -> Callable[[Number, Number, int], Number]:
    """A number that a factor g of W_QK multiplies by g to this power; it is given g²."""

    def rescaled(value: Number, square: Number, d_head: int) -> Number:
        return value * (square ** (degree // 2) if degree % 2 == 0 else mp.sqrt(square) ** degree)

    return rescaled


@dataclass(frozen=True, kw_only=True, repr=False)
class ConstantFunction(_Entry):
    """A constant of each shape (d_model, d_head): called with one, it is that shape's :class:`Constant`.

    It is computed at σ_Q = σ_K = 1 for W_QK divided by √d_model, and rescaled to what is asked for.

    Attributes:
        name, symbol, description, definition, conditions, method, references, parents, most_digits: as of
            :class:`Constant`, at σ = 1 and divided by √d_model.
        compute: the parameters ↦ the value at mpmath's working precision.
        uncertainty: ``"exact"``, or what is neglected, or the parameters ↦ that.
        relative_error: a number, or the parameters ↦ it.
        parameters: what it depends on, of ``d_model`` and ``d_head``.
        rescaled: (the value, g², d_head) ↦ the value for g W_QK.
    """

    parameters: tuple[str, ...] = ("d_model", "d_head")
    rescaled: Callable[[Number, Number, int], Number] = unscaled

    def __call__(
        self,
        *shape: int,
        sigma: float | None = None,
        sigma_q: float | None = None,
        sigma_k: float | None = None,
        normalization: str = "sqrt_d",
        **named: int,
    ) -> Constant:
        """The constant of one shape, given in the order of :attr:`parameters` or by name.

        Args:
            *shape: d_model and d_head, as far as it depends on them.
            sigma: standard deviation of the entries of W_Q and W_K, as it is written: 0.02 is 1/50 to all digits.
            sigma_q: that of W_Q alone, in place of ``sigma``.
            sigma_k: that of W_K alone.
            normalization: ``"sqrt_d"``, W_QK divided by √d_model, or ``"none"``.
            **named: d_model and d_head by name; see :meth:`takes`.

        Raises:
            ParameterError: for a parameter too many or too few, for dimensions that are not positive integers, for
                d_head > d_model, for σ that are not positive, and where the law does not exist (a soft lower edge at
                d_head = d_model).
            TypeError: for a dimension that is given by position and by name.
        """
        scale = Scale.checked(sigma, sigma_q, sigma_k, normalization)
        scaled = self.rescaled is not unscaled
        takes = self.takes(normalization)
        given = self._checked(takes, shape, named)
        own = tuple(given[name] for name in self.parameters)
        self.compute(*own)  # outside its domain it refuses here, not at the first digit asked for

        def compute() -> Number:
            at_one = self.compute(*own)
            return self.rescaled(at_one, scale.square(given.get("d_model")), given["d_head"]) if scaled else at_one

        stated = {field.name: getattr(self, field.name) for field in fields(_Entry)}
        for name in ("uncertainty", "relative_error"):
            if callable(stated[name]):
                stated[name] = stated[name](*own)
        shape_phrase = ", ".join(f"{name} = {value}" for name, value in given.items())
        phrases = scale.phrases() if scaled else {}
        conditions = replace(self.conditions, shape=shape_phrase, **phrases)
        definition = self.definition
        if normalization == "none":
            definition = definition.replace(GAIN, RAW_GAIN)
        sigmas = {"sigma": sigma, "sigma_q": sigma_q, "sigma_k": sigma_k}
        return Constant(
            **stated | {"compute": compute, "conditions": conditions, "definition": definition},
            arguments=given | sigmas | {"normalization": normalization},
        )

    def takes(self, normalization: str = "sqrt_d") -> tuple[str, ...]:
        """What must be given of the shape: :attr:`parameters`, and d_model for the raw product's scale."""
        raw = normalization == "none" and self.rescaled is not unscaled
        return _SHAPE if raw else self.parameters

    def value(self, *shape: int, **named: Any) -> float:
        """The nearest double at one shape; the arguments are those of a call."""
        return self(*shape, **named).value

    def __repr__(self) -> str:
        return f"<{self.name}({', '.join(self.parameters)}, *, sigma, normalization): {self.description}>"

    def _checked(self, takes: tuple[str, ...], shape: tuple[int, ...], named: dict[str, int]) -> dict[str, int]:
        given, said = dict(zip(takes, shape, strict=False)), " and ".join(takes)
        for name, value in named.items():
            if name in given:
                raise TypeError(f"{self.name}: {name} is given twice, by position and by name")
            if name not in _SHAPE:
                near = get_close_matches(name, _KEYWORDS, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise ParameterError(name, value, f"{said} alone: {self.name} depends on nothing else{hint}")
        given |= named
        for name in takes:
            if name not in given:
                raise ParameterError(name, None, f"a positive integer: {self.name} is a function of {said}")
        if len(given) > len(takes) or len(shape) > len(takes):
            raise ParameterError("parameters", tuple(given), f"{said} alone: {self.name} depends on nothing else")
        if set(takes) == {"d_model", "d_head"}:
            d_model, d_head = require_head_shape(given["d_model"], given["d_head"])
            return {"d_model": d_model, "d_head": d_head}
        return {name: require_positive_integer(name, given[name]) for name in takes}


def constant(
    *,
    name: str,
    compute: Callable[..., Number],
    parents: tuple[Constant, ...] = (),
    method: str = "closed form",
    **stated: Any,
) -> Constant:
    """A :class:`Constant`, computed from others; its digits come of the record of its set.

    Args:
        name: of the constant.
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
        **stated,
    )
