"""Formats of numbers and formulas on a page."""

from __future__ import annotations

import math
import re

from markupsafe import Markup, escape


def number(value: float, digits: int = 4) -> str:
    """Format a number with ``digits`` significant digits; NaN is a dash."""
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
    """Format a mean to the second digit of its standard deviation, followed by that deviation."""
    if not (math.isfinite(mean) and math.isfinite(std) and 1e-4 <= std < 1e5 and abs(mean) < 1e6):
        return f"{number(mean, 3)} ± {number(std, 2)}"
    decimals = max(0, 1 - math.floor(math.log10(std)))
    return f"{_fixed(mean, decimals)} ± {_fixed(std, decimals)}"


def _fixed(value: float, decimals: int) -> str:
    return f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", "−")


def z_text(value: float) -> str:
    """Format a z-score with one decimal, or with three digits beyond a thousand."""
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
    """Convert the registry's simple LaTeX to HTML with sub- and superscripts."""
    text = str(escape(latex)).replace("\\sum_", "\\sum _").replace("\\Sigma\\", "\\Sigma \\")
    text = re.sub(r"(\\[A-Za-z]+)_", r"\1 _", text)
    for pattern, replacement in _TOKENS:
        text = re.sub(pattern, replacement, text)
    text = text.replace(" <sub>", "<sub>").replace("Σ λ", "Σλ").replace("\u202f(", "(").replace("-", "−")
    return Markup(text)
