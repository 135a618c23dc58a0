"""Constants: numbers that come with their conditions, definition, uncertainty and references."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from decimal import Context, Decimal
from difflib import get_close_matches
from fractions import Fraction
from html import escape
from typing import Any, NamedTuple

from mpmath import mp

from rmtbase.arguments import checked
from rmtbase.constants._bibliography import bibtex, software
from rmtbase.constants._digits import Computation, Number, agreed_digits, significant
from rmtbase.constants._real import NamedReal
from rmtbase.constants._typeset import Conditions, Phrase, shown_sigma
from rmtbase.errors import ParameterError
from rmtbase.parameters import (
    DEFAULT_NORMALIZATION,
    require_head_shape,
    require_normalization,
    require_positive_integer,
    require_positive_number,
)

IDENTIFIER = "rmtbase:constants."  #: Prefix of every identifier

DEFAULT_DIGITS = 30
PUBLISHED_DIGITS = 100
_DOUBLE = 17  # significant digits that identify a double
_IN_REPR = 15
_DIMENSIONS = {"d_model": r"d_{\mathrm{model}}", "d_head": r"d_{\mathrm{head}}"}  # in LaTeX
_SHAPE = tuple(_DIMENSIONS)
_KEYWORDS = (*_SHAPE, "sigma", "sigma_q", "sigma_k", "normalization")
_DIVIDED = {
    "sqrt_d": Phrase("divided by √d_model", r"divided by $\sqrt{d_{\mathrm{model}}}$"),
    "none": Phrase("not normalized"),
}
_NEVER_WITHOUT = ("name", "symbol", "description", "definition", "conditions", "method", "uncertainty", "references")

KINDS_OF_ERROR = {
    "exact": "a closed form gives any digits",
    "numerical": "a bound on what was computed",
    "asymptotic": "the size of what an expansion neglects, not a bound",
    "statistical": "one standard error of an estimate",
}  #: Meaning of :attr:`Constant.error`, by :attr:`Constant.error_kind`


@dataclass(frozen=True)
class Release:
    """Name of a set, such as v1, and the date of its release, or "" while it is being prepared."""

    name: str
    date: str


class OneDraw(NamedTuple):
    """Quantity of one draw, of which a constant is the limit, and the functions that are its mean and deviation."""

    quantity: Phrase
    symbol: Phrase
    mean: str
    std: str


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """Common fields of a constant and of a function of the shape; see :class:`Constant`."""

    name: str
    symbol: str
    symbol_text: str = ""
    description: str
    definition: str
    conditions: Conditions
    method: str
    references: tuple[str, ...]
    compute: Callable[..., Number]
    uncertainty: str | Callable[..., str] = "exact"
    error_kind: str = "exact"
    relative_error: float | Callable[..., float] = 0.0
    parents: tuple[str, ...] = ()
    most_digits: int = 1000
    one_draw: OneDraw | None = None
    function: str = ""
    apposition: bool = False
    oeis: str = ""
    released: Release | None = None

    def __post_init__(self) -> None:
        for field in _NEVER_WITHOUT:
            if not getattr(self, field):
                raise ParameterError(field, getattr(self, field), f"a value: every constant needs its {field}")

    @property
    def id(self) -> str:
        """Permanent identifier of this number, such as ``rmtbase:constants.v1/product_upper_edge``."""
        return f"{IDENTIFIER}{self.released.name}/{self.name}" if self.released else ""

    @property
    def reference(self) -> str:
        """Key of the reference to cite."""
        return self.references[0]

    def require_digits(self, digits: object) -> int:
        """Return an integer from 1 to :attr:`most_digits`."""
        number = require_positive_integer("digits", digits)
        if number > self.most_digits:
            raise ParameterError("digits", number, f"at most {self.most_digits}: {self.name} is not known to more")
        return number

    def bibtex(self) -> str:
        """Return the BibTeX entries of its references, and of rmtbase, which computed it."""
        return f"{bibtex(self.references)}\n\n{software().bibtex}"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Constant(NamedReal, _Entry):
    """Number of the null, in the manner of ``astropy.constants``; it cannot be made without its documentation.

    In expressions it acts as a double: ``c + 1``, ``c * array``, ``np.sqrt(c)``, ``f"{c:.3f}"``, ``c == 6.75``. With
    mpmath numbers it has all digits of their working precision: ``mp.mpf(c)``. Functions that accept only Python
    numbers need ``float(c)`` (functions of jax, ``json``) or ``c.digits(n)`` (``Decimal``); :func:`as_json` gives all
    its fields. It can be copied and pickled; its computation is then looked up by its name.

    Attributes:
        name: name of the attribute of :mod:`rmtbase.constants`.
        symbol, symbol_text: LaTeX, to be set in mathematics, and plain text.
        description, definition: one line of plain text, and LaTeX, to be set in mathematics.
        conditions, method: conditions under which it holds, and how the digits are computed.
        references: keys of ``references.bib``; the first is the one to cite.
        compute: function that returns the value at mpmath's working precision.
        uncertainty: ``"exact"`` if a closed form gives any number of digits; otherwise the possible error, in words.
        error_kind, relative_error: kind of the error, a key of ``KINDS_OF_ERROR``, and it as a number; 0 if exact.
        parents, most_digits: constants from which it is computed, and the largest number of digits available.
        one_draw: the quantity of one draw of which this is the limit.
        function: dotted name of the function that computes it; "" for none.
        apposition: true if the description contains an apposition, after which a comma follows.
        oeis: sequence of the digits of its absolute value in the On-Line Encyclopedia of Integer Sequences, or "".
        released, published: the set in which it was released, and its digits there, "" if they are computed anew.
        enclosure: lower and upper bound in decimal, proved in ball arithmetic; None if there are none.
        arguments: arguments of its :class:`ConstantFunction`; None for a pure number.

    Raises:
        ParameterError: a text or the references are missing.
    """

    compute: Computation
    uncertainty: str = "exact"
    relative_error: float = 0.0
    published: str = ""
    enclosure: tuple[str, str] | None = None
    arguments: Mapping[str, Any] | None = None

    @property
    def value(self) -> float:
        """Nearest double."""
        return float(self.digits(min(_DOUBLE + 3, self.most_digits)))

    def digits(self, digits: int | None = None) -> str:
        """Return the value in decimal, correctly rounded to ``digits`` significant digits.

        Digits come from the shipped table as far as it reaches. Further ones are computed at two working precisions
        that must agree. If None, 30 digits are given, or all if there are fewer.

        Raises:
            ParameterError: ``digits`` is not from 1 to most_digits.
        """
        count = min(DEFAULT_DIGITS, self.most_digits) if digits is None else self.require_digits(digits)
        if self.published and count <= len(Decimal(self.published).as_tuple().digits):
            return significant(Decimal(self.published), count)
        return agreed_digits(self.compute, count)

    @property
    def error(self) -> float:
        """Error in the unit of the value, from its :attr:`relative_error`; 0 if it is exact."""
        return abs(self.value) * self.relative_error if self.relative_error else 0.0

    @property
    def known_digits(self) -> int:
        """Number of significant digits that the error leaves; the last is at the place of the error's first digit."""
        if not self.relative_error:
            return self.most_digits
        value = Decimal(self.significant_digits(_DOUBLE))
        return min(max(value.adjusted() - self._shown_error().adjusted() + 1, 1), self.most_digits)

    @checked
    def significant_digits(self, digits: int) -> str:
        """Return the value to ``digits`` significant digits, or to as many as there are."""
        return self.digits(min(digits, self.most_digits))

    def rounded(self, digits: int = DEFAULT_DIGITS) -> tuple[str, str]:
        """Return the value to ``digits`` digits, but none beyond its error, and the error.

        The error is "" if it is smaller than the last digit.

        Raises:
            ParameterError: ``digits`` is not a positive integer.
        """
        digits = require_positive_integer("digits", digits)
        if digits < self.known_digits or not self.relative_error or self.known_digits == self.most_digits:
            return self.significant_digits(min(digits, self.known_digits)), ""
        return self.digits(self.known_digits), significant(self._shown_error(), 1)

    def shown(self, digits: int) -> str:
        """Return the value to ``digits`` digits but none beyond its error, with ± the error if it ends the digits."""
        return " ± ".join(filter(None, self.rounded(digits)))

    def _shown_error(self) -> Decimal:
        value = abs(Decimal(self.significant_digits(_DOUBLE)))
        return Context(prec=1).multiply(value, Decimal(self.relative_error))

    def __repr__(self) -> str:
        stated = self.conditions
        conditions = [phrase for phrase in (stated.normalization, stated.sigma, stated.shape) if phrase]
        return f"<{self.name} = {self.shown(_IN_REPR)}, {self.uncertainty}; {', '.join(conditions) or stated}>"

    def _repr_html_(self) -> str:
        rows = {
            "value": self.shown(_IN_REPR),
            "known": self.uncertainty,
            **self.conditions.stated(),
            "definition": f"${self.symbol} = {self.definition}$",
            "references": ", ".join(self.references),
        }
        left = 'style="text-align: left"'
        cells = (f"<tr><th {left}>{name}</th><td {left}>{escape(text)}</td></tr>" for name, text in rows.items())
        heading = f"<b>{escape(self.name)}</b> {escape(self.description)}"
        return f"<table><caption {left}>{heading}</caption>{''.join(cells)}</table>"


def power(degree: int) -> Callable[[Number, Number, int], Number]:
    def rescaled(value: Number, square: Number, d_head: int) -> Number:
        return value * (square ** (degree // 2) if degree % 2 == 0 else mp.sqrt(square) ** degree)

    return rescaled


@dataclass(frozen=True, kw_only=True, repr=False)
class ConstantFunction(_Entry):
    """Constant that depends on the shape (d_model, d_head); a call with a shape returns its :class:`Constant`.

    It is computed at σ_Q = σ_K = 1 for W_QK divided by √d_model, and then rescaled as requested.

    Attributes:
        name, symbol, symbol_text, description, definition, conditions, method, references, error_kind, parents,
            most_digits, one_draw, function, apposition, oeis: as for :class:`Constant`, at σ = 1, divided by √d_model.
        compute: the parameters ↦ the value at mpmath's working precision.
        uncertainty: ``"exact"``, or a description of what is neglected, or a function of the parameters that gives it.
        relative_error: a number, or a function of the parameters that returns it.
        parameters: names of the dimensions on which it depends, among ``d_model`` and ``d_head``.
        rescaled: (the value, g², d_head) ↦ the value for g W_QK; None if it does not depend on the scale.
        defines_gain: true if the definition ends with g = σ_Q σ_K, which is multiplied by √d for the raw product.
    """

    parameters: tuple[str, ...] = ("d_model", "d_head")
    rescaled: Callable[[Number, Number, int], Number] | None = None
    defines_gain: bool = False

    def __call__(
        self,
        *shape: int,
        sigma: float | None = None,
        sigma_q: float | None = None,
        sigma_k: float | None = None,
        normalization: str = DEFAULT_NORMALIZATION,
        **named: int,
    ) -> Constant:
        """Return the constant of one shape, given in the order of :attr:`parameters` or by name.

        Args:
            *shape: d_model and d_head, or only the one on which the constant depends.
            sigma: standard deviation of the entries of W_Q and W_K. The decimal is taken as exact: 0.02 is 1/50.
            sigma_q: standard deviation of only W_Q, in place of ``sigma``.
            sigma_k: standard deviation of only W_K, likewise.
            normalization: ``"sqrt_d"``, W_QK divided by √d_model, or ``"none"``.
            **named: d_model and d_head by name; see :meth:`takes`.

        Raises:
            ParameterError: there are too many or too few parameters; a dimension is not a positive integer; d_head >
                d_model; a σ is not positive; or the law does not exist (a soft lower edge at d_head = d_model).
            TypeError: a dimension is given both by position and by name.
        """
        if sigma is not None and not (sigma_q is None and sigma_k is None):
            raise ParameterError("sigma", sigma, "either sigma, for both W_Q and W_K, or sigma_q and sigma_k")
        sigmas = {"sigma": sigma, "sigma_q": sigma_q, "sigma_k": sigma_k}
        factors = ("sigma_q", "sigma_k") if sigma is None else ("sigma", "sigma")
        q, k = (require_positive_number(name, 1 if sigmas[name] is None else sigmas[name]) for name in factors)
        raw, scaled = require_normalization(normalization) == "none", self.rescaled is not None
        dims = self._checked(self.takes(normalization), shape, named)
        parameters = tuple(dims[name] for name in self.parameters)
        self.compute(*parameters)  # refuses parameters outside its domain now, not when digits are computed

        def compute() -> Number:
            value = self.compute(*parameters)
            square = (Fraction(repr(q)) * Fraction(repr(k))) ** 2 * (dims.get("d_model", 1) if raw else 1)
            scale = mp.mpf(square.numerator) / square.denominator
            return self.rescaled(value, scale, dims["d_head"]) if self.rescaled else value

        stated: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(_Entry)}
        for name in ("uncertainty", "relative_error"):
            if callable(stated[name]):
                stated[name] = stated[name](*parameters)
        text = ", ".join(f"{name} = {value}" for name, value in dims.items())
        latex = ", ".join(f"${_DIMENSIONS[name]} = {value}$" for name, value in dims.items())
        conditions = {"shape": Phrase(text, latex)}
        if scaled:
            conditions["normalization"] = _DIVIDED[normalization]
            of_q, of_k = shown_sigma(q), shown_sigma(k)
            text, latex = f"σ_Q = {of_q}, σ_K = {of_k}", rf"$\sigma_Q = {of_q.latex}$, $\sigma_K = {of_k.latex}$"
            if q == k:
                text, latex = f"σ_Q = σ_K = {of_q}", rf"$\sigma_Q = \sigma_K = {of_q.latex}$"
            conditions["sigma"] = Phrase(text, latex)
        stated["conditions"] = replace(self.conditions, **conditions)
        if raw and self.defines_gain:
            stated["definition"] += r" \sqrt{d}"
        stated["compute"] = compute
        return Constant(**stated, arguments=dims | sigmas | {"normalization": normalization})

    def takes(self, normalization: str = DEFAULT_NORMALIZATION) -> tuple[str, ...]:
        """Return the required dimensions: :attr:`parameters`, and d_model for the scale of the raw product."""
        raw = normalization == "none" and self.rescaled is not None
        return _SHAPE if raw else self.parameters

    def value(self, *shape: int, **named: Any) -> float:
        """Return the nearest double at one shape; the arguments are those of a call."""
        return self(*shape, **named).value

    def __repr__(self) -> str:
        return f"<{self.name}({', '.join(self.parameters)}, *, sigma, normalization): {self.description}>"

    def _checked(self, takes: tuple[str, ...], shape: tuple[int, ...], named: dict[str, int]) -> dict[str, int]:
        dims, names = dict(zip(takes, shape, strict=False)), " and ".join(takes)
        for name, value in named.items():
            if name in dims:
                raise TypeError(f"{self.name}: {name} is given twice, by position and by name")
            if name not in _SHAPE:
                near = get_close_matches(name, _KEYWORDS, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise ParameterError(name, value, f"only {names}: {self.name} depends on nothing else{hint}")
        dims |= named
        for name in takes:
            if name not in dims:
                raise ParameterError(name, None, f"a positive integer: {self.name} is a function of {names}")
        if len(dims) > len(takes) or len(shape) > len(takes):
            raise ParameterError("parameters", tuple(dims), f"only {names}: {self.name} depends on nothing else")
        if set(takes) == {"d_model", "d_head"}:
            d_model, d_head = require_head_shape(dims["d_model"], dims["d_head"])
            return {"d_model": d_model, "d_head": d_head}
        return {name: require_positive_integer(name, dims[name]) for name in takes}
