"""Constants as sentences, JSON, and rows of a LaTeX table, each with its conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

from rmtbase.constants._bibliography import KEY
from rmtbase.constants._constant import DEFAULT_DIGITS, IDENTIFIER, Constant, ConstantFunction
from rmtbase.constants._digits import significant
from rmtbase.constants._registry import find
from rmtbase.constants._typeset import Phrase, latex_of, shown_number
from rmtbase.errors import ParameterError
from rmtbase.systems import software_version

_Entry = Constant | ConstantFunction

_TEXTS = ("name", "symbol", "description", "definition", "method")
_SENTENCE_DIGITS = 6


def as_sentence(constant: Constant, digits: int = _SENTENCE_DIGITS) -> str:
    """Return a sentence for a paper, as plain text, with the constant's description, value and conditions.

    [1], [2], … are its references in order, followed by rmtbase. The value has ``digits`` digits, but none beyond its
    error; an exact decimal has no unnecessary zeros. A limit comes with its mean and spread in one draw of the shape.

    Raises:
        ParameterError: it is a function without a shape, or ``digits`` is not a positive integer.
    """
    sentence, last = _sentence(constant, digits, str), len(constant.references)
    literature = {1: "[1]", 2: "[1, 2]"}.get(last, f"[1–{last}]")
    return f"{sentence} {literature}, computed with {KEY} {software_version()} [{last + 1}]."


def as_latex_sentence(constant: Constant, digits: int = _SENTENCE_DIGITS) -> str:
    r"""Return the sentence of :func:`as_sentence` as LaTeX that needs no package, with the keys of ``bibtex()``."""
    sentence, keys = _sentence(constant, digits, latex_of), ",".join(constant.references)
    return rf"{sentence}~\cite{{{keys}}}, computed with {KEY}~{software_version()}~\cite{{{KEY}}}."


def _sentence(constant: Constant, digits: int, form: Callable[[str], str]) -> str:
    if not isinstance(constant, Constant):
        expected = "a constant of one shape, such as product_upper_edge(d_model=768, d_head=64)"
        raise ParameterError("constant", constant, expected)
    value, error = constant.rounded(digits)
    if not constant.error:
        short = Decimal(constant.digits()).normalize()
        value = f"{short:f}" if len(short.as_tuple().digits) <= digits else value
    number, spread = shown_number(value, error), of_one_draw(constant)
    equation = Phrase(f"{constant.symbol_text} = {number}", f"${constant.symbol} = {number.latex}$")
    first, stated = constant.description[0], constant.conditions
    article, under = "The " if first.islower() or first.isdigit() else "", ""
    if stated.matrix:
        where = ", ".join(map(form, (stated.matrix, stated.normalization, stated.sigma, stated.shape)))
        under = f" for {where} ({form(stated.convention)}; {form(stated.holds)})"
    at_this_size = f"; at this size {form(spread)}" if spread else ""
    comma = "," * constant.apposition
    return f"{article}{form(constant.description)}{comma} is {form(equation)}{under}{at_this_size}"


def of_one_draw(constant: Constant) -> Phrase:
    """Return the mean ± standard deviation, in one draw of the shape, of what a constant is the limit of; or ""."""
    one_draw = constant.one_draw
    if one_draw is None:
        return Phrase("")
    names = (one_draw.mean, one_draw.std)
    try:
        mean, std = (find(name)(**(constant.arguments or {})) for name in names)  # type: ignore[operator]
    except ParameterError:  # too few dimensions
        return Phrase("")
    deviation = Decimal(significant(Decimal(std.digits()), 2))
    number = shown_number(str(Decimal(mean.digits()).quantize(deviation)), str(deviation))
    return Phrase(
        f"{one_draw.quantity} is {one_draw.symbol} = {number} (mean ± standard deviation)",
        rf"{one_draw.quantity.latex} is ${one_draw.symbol.latex} = {number.latex}$ (mean $\pm$ standard deviation)",
    )


def as_json(entries: _Entry | Iterable[_Entry], digits: int = DEFAULT_DIGITS) -> list[dict[str, Any]]:
    """Return plain data, with digits as strings; a function of the shape has its parameters in place of a value.

    "error" and "relative_error" are numbers, of the kind "error_kind" (:data:`KINDS_OF_ERROR`); "enclosure" is a proved
    lower and upper bound in decimal, or None.
    """
    listed = (entries,) if isinstance(entries, _Entry) else entries
    return [_plain(entry, digits) for entry in listed]


def _plain(entry: _Entry, digits: int) -> dict[str, Any]:
    release = entry.released
    fields: dict[str, Any] = {"id": entry.id}
    fields |= {field: getattr(release, name, None) for field, name in (("set", "name"), ("date", "date"))}
    fields |= {field: getattr(entry, field) for field in _TEXTS}
    if isinstance(entry, Constant):
        fields |= {
            "value": entry.significant_digits(digits),
            "error": entry.error,
            "relative_error": entry.relative_error,
            "error_kind": entry.error_kind,
            "uncertainty": entry.uncertainty,
            "enclosure": list(entry.enclosure) if entry.enclosure else None,
            "sentence": as_sentence(entry),
            "latex": as_latex_sentence(entry),
        }
    else:
        fields |= {"value": None, "parameters": list(entry.parameters)}
        fields["uncertainty"] = entry.uncertainty if isinstance(entry.uncertainty, str) else "given with the value"
    fields["conditions"] = entry.conditions.stated()
    return fields | {"oeis": entry.oeis, "parents": list(entry.parents), "references": list(entry.references)}


def as_latex(entries: _Entry | Iterable[_Entry], digits: int = DEFAULT_DIGITS) -> str:
    r"""Rows of a table: name & symbol & value, with an error that ends it, & definition & conditions & references."""
    listed = (entries,) if isinstance(entries, _Entry) else tuple(entries)
    rows = []
    for entry in listed:
        name, cell = entry.name.replace("_", r"\_"), "--"
        if isinstance(entry, Constant):
            value, error = entry.rounded(digits)
            mantissa, e, exponent = value.partition("e")
            times = rf"{mantissa} \times 10^{{{int(exponent)}}}" if e else mantissa
            cell = f"${shown_number(value, error).latex if error else times}$"
        conditions = "; ".join(map(latex_of, entry.conditions.stated().values()))
        cells = (rf"\texttt{{{name}}}", f"${entry.symbol}$", cell, rf"$\displaystyle {entry.definition}$", conditions)
        rows.append(" & ".join((*cells, rf"\cite{{{','.join(entry.references)}}} \\")))
    releases = (entry.released for entry in listed if entry.released)
    sets = dict.fromkeys(f"{IDENTIFIER}{release.name}/NAME ({release.date})" for release in releases)
    head = "% name & symbol & value & definition & conditions & references"
    return "\n".join(["; ".join((head, *sets)), *rows])


def as_identified(entry: Constant | ConstantFunction) -> str:
    """Return name, identifier, date and, if there is an enclosure, its bounds to 30 digits, in one line of text."""
    known_as = f"{entry.id}, {entry.released.date}" if entry.released else "not released"
    enclosure = shown_enclosure(entry) if isinstance(entry, Constant) else ""
    return f"{entry.name} ({known_as})" + (f", in {enclosure}" if enclosure else "")


def shown_enclosure(constant: Constant, digits: int = DEFAULT_DIGITS) -> str:
    """[lower, upper] of the enclosure, rounded outward to ``digits`` digits; "" without one."""
    if constant.enclosure is None:
        return ""
    ways = (ROUND_FLOOR, ROUND_CEILING)
    outward = (Context(prec=digits, rounding=way).normalize for way in ways)
    low, high = (rounded(Decimal(end)) for rounded, end in zip(outward, constant.enclosure, strict=True))
    return f"[{low:f}, {high:f}]"
