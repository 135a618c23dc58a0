"""Constants as JSON and as rows of a LaTeX table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rmtbase.constants._constant import DEFAULT_DIGITS, Constant, ConstantFunction

_TEXTS = ("name", "symbol", "description", "definition", "method")


def as_json(entries: Iterable[Constant | ConstantFunction], digits: int = DEFAULT_DIGITS) -> list[dict[str, Any]]:
    """Plain data, digits as a string; a function that was given no shape has parameters in place of a value."""
    return [_plain(entry, digits) for entry in entries]


def _plain(entry: Constant | ConstantFunction, digits: int) -> dict[str, Any]:
    fields: dict[str, Any] = {field: getattr(entry, field) for field in _TEXTS}
    if isinstance(entry, Constant):
        fields |= {"value": shown_digits(entry, digits), "uncertainty": entry.uncertainty}
    else:
        fields |= {"value": None, "parameters": list(entry.parameters)}
        fields["uncertainty"] = entry.uncertainty if isinstance(entry.uncertainty, str) else "given with the value"
    return fields | {"parents": list(entry.parents), "references": list(entry.references)}


def as_latex(entries: Iterable[Constant | ConstantFunction], digits: int = DEFAULT_DIGITS) -> str:
    r"""Rows name & symbol & value & definition & \cite{...} \\ of a table, after a comment that says so."""
    rows = (
        " & ".join(
            (
                rf"\texttt{{{_escaped(entry.name)}}}",
                f"${entry.symbol}$",
                f"${_number(shown_digits(entry, digits))}$" if isinstance(entry, Constant) else "--",
                rf"$\displaystyle {entry.definition}$",
                rf"\cite{{{','.join(entry.references)}}} \\",
            )
        )
        for entry in entries
    )
    return "\n".join(["% name & symbol & value & definition & references; needs amsmath and amssymb", *rows])


def shown_digits(constant: Constant, digits: int) -> str:
    """The value to ``digits`` digits, or to as many as there are."""
    return constant.digits(min(digits, constant.most_digits))


def _escaped(name: str) -> str:
    return name.replace("_", r"\_")


def _number(decimal: str) -> str:
    mantissa, _, exponent = decimal.partition("e")
    return rf"{mantissa} \times 10^{{{int(exponent)}}}" if exponent else mantissa
