"""Constants as sentences, JSON, and rows of a LaTeX table, each with its conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

from rmtbase.constants._constant import DEFAULT_DIGITS, IDENTIFIER, Constant, ConstantFunction
from rmtbase.constants._digits import significant
from rmtbase.constants._registry import find
from rmtbase.constants._software import KEY
from rmtbase.constants._typeset import Phrase, latex_of, shown_number
from rmtbase.errors import ParameterError
from rmtbase.systems import software_version

_Entry = Constant | ConstantFunction

_TEXTS = ("name", "symbol", "description", "definition", "method")
_SENTENCE_DIGITS = 6
_SPREAD = Phrase("(mean ± standard deviation)", r"(mean $\pm$ standard deviation)")


def as_sentence(constant: Constant, digits: int = _SENTENCE_DIGITS) -> str:
    """Return a sentence for a paper, as plain text, with the constant's description, value and conditions.

    [1], [2], … are its references in order, followed by rmtbase. The value has ``digits`` digits, but none beyond its
    error; an exact decimal has no unnecessary zeros. A limit comes with :func:`of_one_draw`.

    Raises:
        ParameterError: it is a function without a shape, or ``digits`` is not a positive integer.
    """
    last = len(constant.references)
    literature = {1: "[1]", 2: "[1, 2]"}.get(last, f"[1–{last}]")
    cited = f"{literature}, computed with {KEY} {software_version()} [{last + 1}]"
    spread = of_one_draw(constant)
    value = f"{constant.symbol_text} = {_number(constant, digits)}"
    return _sentence(constant, value, f"; at this size {spread}" if spread else "", f" {cited}.", str)


def as_latex_sentence(constant: Constant, digits: int = _SENTENCE_DIGITS) -> str:
    r"""Return the sentence of :func:`as_sentence` as LaTeX that needs no package, with the keys of ``bibtex()``."""
    value, spread, one_draw = f"${constant.symbol} = {_number(constant, digits).latex}$", "", constant.one_draw
    if one_draw and (number := _one_draw(constant)):
        spread = f"; at this size {one_draw.quantity.latex} is ${one_draw.symbol.latex} = {number.latex}$ "
        spread += _SPREAD.latex
    cited = rf"~\cite{{{','.join(constant.references)}}}, computed with {KEY}~{software_version()}~\cite{{{KEY}}}."
    return _sentence(constant, value, spread, cited, latex_of)


def _sentence(constant: Constant, value: str, spread: str, cited: str, form: Callable[[str], str]) -> str:
    first, stated = constant.description[0], constant.conditions
    article = "The " if first.islower() or first.isdigit() else ""
    under = ""
    if stated.matrix:
        where = ", ".join(map(form, (stated.matrix, stated.normalization, stated.sigma, stated.shape)))
        under = f" for {where} ({form(stated.convention)}; {form(stated.holds)})"
    return f"{article}{form(constant.description)}{',' * constant.apposition} is {value}{under}{spread}{cited}"


def of_one_draw(constant: Constant) -> str:
    """Return the mean ± standard deviation, in one draw of the shape, of what a constant is the limit of; or ""."""
    number = _one_draw(constant)
    if constant.one_draw is None or not number:
        return ""
    return f"{constant.one_draw.quantity} is {constant.one_draw.symbol} = {number} {_SPREAD}"


def _one_draw(constant: Constant) -> Phrase:
    if constant.one_draw is None:
        return Phrase("")
    names = (constant.one_draw.mean, constant.one_draw.std)
    try:
        mean, std = (find(name)(**(constant.arguments or {})) for name in names)  # type: ignore[operator]
    except ParameterError:  # too few dimensions
        return Phrase("")
    spread = Decimal(significant(Decimal(std.digits()), 2))
    return shown_number(str(Decimal(mean.digits()).quantize(spread)), str(spread))


def _number(constant: Constant, digits: int) -> Phrase:
    if not isinstance(constant, Constant):
        expected = "a constant of one shape, such as product_upper_edge(d_model=768, d_head=64)"
        raise ParameterError("constant", constant, expected)
    value, error = constant.rounded(digits)
    if not constant.error:
        short = Decimal(constant.digits()).normalize()
        if len(short.as_tuple().digits) <= digits:
            value = f"{short:f}"
    return shown_number(value, error)


def as_json(entries: _Entry | Iterable[_Entry], digits: int = DEFAULT_DIGITS) -> list[dict[str, Any]]:
    """Return plain data, with digits as strings; a function of the shape has its parameters in place of a value.

    "error" and "relative_error" are numbers, of the kind "error_kind" (:data:`KINDS_OF_ERROR`); "enclosure" is a proved
    lower and upper bound in decimal, or None.
    """
    listed = (entries,) if isinstance(entries, _Entry) else entries
    return [_plain(entry, digits) for entry in listed]


def _plain(entry: _Entry, digits: int) -> dict[str, Any]:
    release = entry.released
    fields: dict[str, Any] = {
        "id": entry.id,
        "set": release.name if release else None,
        "date": release.date if release else None,
    }
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
    rows = [
        " & ".join(
            (
                r"\texttt{" + entry.name.replace("_", r"\_") + "}",
                f"${entry.symbol}$",
                f"${_in_row(*entry.rounded(digits))}$" if isinstance(entry, Constant) else "--",
                rf"$\displaystyle {entry.definition}$",
                "; ".join(map(latex_of, entry.conditions.stated().values())),
                rf"\cite{{{','.join(entry.references)}}} \\",
            )
        )
        for entry in listed
    ]
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


def _in_row(value: str, error: str) -> str:
    if error:
        return shown_number(value, error).latex
    mantissa, _, exponent = value.partition("e")
    return rf"{mantissa} \times 10^{{{int(exponent)}}}" if exponent else mantissa
