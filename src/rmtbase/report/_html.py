"""Text as HTML: what a template of this room says is markup, and all else is escaped when it is put in."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable
from typing import LiteralString

from rmtbase.shown import shown

_LONGEST = 100_000  # characters of one text


class Markup(str):
    """HTML made by this room's templates. Nothing that comes from a file is ever made one as it stands."""

    __slots__ = ()


def escape(value: object) -> Markup:
    """A value as HTML content, or as a quoted attribute's: markup as it is, all else as harmless text."""
    return value if isinstance(value, Markup) else Markup(html.escape(shown(value, _LONGEST), quote=True))


def markup(template: LiteralString, *values: object, **named: object) -> Markup:
    """A template of ``str.format``, written out in this room, with each value put in by :func:`escape`."""
    return Markup(template.format(*map(escape, values), **{name: escape(value) for name, value in named.items()}))


def joined(parts: Iterable[object], between: LiteralString = "") -> Markup:
    """The parts one after the other, each by :func:`escape`."""
    return Markup(between.join(map(escape, parts)))


def preformatted(text: str) -> Markup:
    """A text of several lines, which stay lines."""
    return joined(text.splitlines(), "\n")


def embedded_json(value: object) -> Markup:
    """JSON safe inside a ``<script>`` element: no ``<`` can end it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c"))


def number(value: float, digits: int = 4) -> str:
    """A number with that many significant digits; a dash where there is none."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value and not 1e-4 <= abs(value) < 1e6:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        if "." in mantissa:
            mantissa = mantissa.rstrip("0").rstrip(".")
        text = f"{mantissa}e{int(exponent)}"
    else:
        text = f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"
    return text.replace("-", "−")


def mean_and_std(mean: float, std: float) -> str:
    """A mean to the second digit of its standard deviation, and that."""
    if not (math.isfinite(mean) and math.isfinite(std) and 1e-4 <= std < 1e5 and abs(mean) < 1e6):
        return f"{number(mean, 3)} ± {number(std, 2)}"
    decimals = max(0, 1 - math.floor(math.log10(std)))
    return f"{_fixed(mean, decimals)} ± {_fixed(std, decimals)}"


def _fixed(value: float, decimals: int) -> str:
    return f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", "−")


def z_text(value: float) -> str:
    """A z-score with one decimal; beyond a thousand with three digits."""
    if not math.isfinite(value) or abs(value) >= 1000:
        return number(value, 3)
    return _fixed(value, 1)


_TOKENS = (
    (r"\\mathrm\{(\w+)\}", r"\1"),
    (r"\^\{([^{}]*)\}", r"<sup>\1</sup>"),
    (r"_\{([^{}]*)\}", r"<sub>\1</sub>"),
    (r"\^(\w)", r"<sup>\1</sup>"),
    (r"_(\w)", r"<sub>\1</sub>"),
    (r"\\sum\b", "Σ"),
    (r"\\Sigma\b", "Σ"),
    (r"\\lambda\b", "λ"),
    (r"\\kappa\b", "κ"),
    (r"\\(ln|exp|det)\b\s*", "\\1\u202f"),
    (r"\\ ", " "),
    (r"(?<=> )(?=[λsp]<sub>)", ""),
)


def formula(latex: str) -> Markup:
    """The registry's simple LaTeX as HTML with sub- and superscripts."""
    text = html.escape(latex).replace("\\sum_", "\\sum _").replace("\\Sigma\\", "\\Sigma \\")
    text = re.sub(r"(\\[A-Za-z]+)_", r"\1 _", text)
    for pattern, replacement in _TOKENS:
        text = re.sub(pattern, replacement, text)
    text = text.replace(" <sub>", "<sub>").replace("Σ λ", "Σλ").replace("\u202f(", "(").replace("-", "−")
    return Markup(text)
