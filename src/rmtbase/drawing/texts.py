"""Texts of figures: their width, lines that fit, numbers in words, and external text made safe."""

import math
import re
import textwrap
from collections.abc import Iterable

from matplotlib.cbook import is_math_text
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from rmtbase.shown import shown


def text_width(text: str, size: float) -> float:
    """Return the width of a line of text in inches."""
    formula = is_math_text(text)
    plain = text if formula else text.replace(r"\$", "$")
    width, _, _ = text_to_path.get_text_width_height_descent(plain, FontProperties(size=size), formula)
    return float(width) / 72


def wrapped(text: str, size: float, width: float) -> str:
    """Break text into lines of at most that many inches, within words only if they are too long, never in formulas."""
    lines = []
    for paragraph in text.split("\n"):
        if text_width(paragraph, size) <= width:
            lines.append(paragraph)
            continue
        line = ""
        for word in re.findall(r"(?:(?<!\\)\$.*?(?<!\\)\$|[^ ])+", paragraph):  # keeps formulas whole
            longer = f"{line} {word}".strip()
            if text_width(longer, size) <= width:
                line = longer
                continue
            pieces, number = [word], math.ceil(text_width(word, size) / width)
            if number > 1 and "$" not in word:
                pieces = textwrap.wrap(word, math.ceil(len(word) / number))
            *full, line = ([line] if line else []) + pieces
            lines += full
        lines.append(line)
    return "\n".join(lines)


def bound(words: str) -> str:
    """Join words by no-break spaces, so that they stay on one line."""
    return words.replace(" ", "\N{NO-BREAK SPACE}")


def rounded(value: float, digits: int, beside: Iterable[float] = ()) -> str:
    """Format a number ≥ 0 to so many digits, with a power of ten if it or one ``beside`` it is far from one."""
    if math.isinf(value) or not value:
        return "∞" if value else "0"
    if all(1e-4 <= number < 1e6 for number in (value, *beside) if number and not math.isinf(number)):
        return f"{value:.0f}" if 10**digits <= value else f"{value:.{digits}g}"
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return rf"${float(mantissa):g} \times 10^{{{int(exponent)}}}$"


def literal(text: object, longest: int = 60) -> str:
    """Make external text safe for a label or a title: printable, short, and never read as mathematics."""
    words = shown(text)
    return (words if len(words) <= longest else f"{words[: longest - 1]}…").replace("$", r"\$")
