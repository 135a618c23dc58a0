"""Figures as inline SVG, drawn in placeholder colours that become CSS variables, which the page sets for both modes.

Text is drawn as outlines, so that it looks the same without installed fonts.
"""

import io
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import matplotlib
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from rmtbase.drawing.layout import FigureRecipe, draw_figures, figure_style
from rmtbase.drawing.theme import Theme

_UNUSED = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", re.DOTALL)
_ATTRIBUTE = re.compile(r'\b(d|x|y)="([^"]*)"')
_LONG_DECIMAL = re.compile(r"-?\d+\.\d{2,}")
_REFERENCE = re.compile(r'(?<=href="#)[^"]+|(?<=url\(#)[^)]+')
_ID = re.compile(r' id="([^"]+)"')
_CLIPPED = re.compile(r' clip-path="([^"]*)" style="([^"]*)"')
_STYLE = re.compile(r' style="([^"]*)"')
_RECTANGLE = re.compile(r"M (\S+) (\S+) L (\S+) \2 L \3 (\S+) L \1 \4 (?:L \1 \2|z)(?: z)?$")
_SIZE = re.compile(r'<svg [^>]*?width="([\d.]+)pt"[^>]*?viewBox="([^"]*)"[^>]*>')
_PIXELS_PER_POINT = 1.45  # makes 8.5 pt labels as large as the page's small print
_NARROW, _LETTERS = 3.4, 9.5  # inches and points of a figure on a telephone
_ROLES = [field.name for field in fields(Theme) if field.name != "settings"]  # fields that are colours
_SEVERAL = {"series": 5, "diverging": 15, "sequential": 9}  # roles that have several colours


def css_values(theme: Theme) -> str:
    """Return a theme as CSS declarations."""
    return " ".join(f"--{name}: {colour};" for name, colour in _colours(theme))


def inline_figures(
    recipes: Mapping[str, FigureRecipe], describe: Callable[[str], str], names: Collection[str] | None = None
) -> dict[str, Markup]:
    """Draw the figures of a page by name, each as a wide and a narrow ``<svg>`` of one column, for telephones."""
    drawn: dict[str, str] = {}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        theme = _placeholders()
        small = replace(theme, settings={"font.size": _LETTERS})
        for look, style in (("wide", figure_style(theme, None)), ("narrow", figure_style(small, _NARROW))):
            for place, (name, figure) in enumerate(draw_figures(recipes, style, names, titles=False).items()):
                svg = _inline_svg(figure, f"{look[0]}{place}", look, describe(name))
                drawn[name] = drawn.get(name, "") + svg
    return {name: Markup(svgs) for name, svgs in drawn.items()}


def _inline_svg(figure: Figure, name: str, look: str, description: str) -> str:
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": name}):
        content = io.StringIO()
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    svg = content.getvalue()
    svg = _ATTRIBUTE.sub(_shorter, _UNUSED.sub("", svg[svg.index("<svg ") :]))
    # Unused identifiers are removed; the others become short and unique on the page.
    short = {identifier: f"{name}-{k}" for k, identifier in enumerate(dict.fromkeys(_REFERENCE.findall(svg)))}
    svg = _ID.sub(lambda match: f' id="{short[match.group(1)]}"' if match.group(1) in short else "", svg)
    svg = _REFERENCE.sub(lambda match: short[match.group()], svg)
    for variable, colour in _colours(_placeholders()):
        svg = svg.replace(colour, f"var(--{variable})")

    def opening_tag(match: re.Match[str]) -> str:
        return (
            f'<svg class="{look}" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{match.group(2)}" role="img" '
            f'aria-label="{escape(description)}" width="{float(match.group(1)) * _PIXELS_PER_POINT:.0f}">'
        )

    svg = _SIZE.sub(opening_tag, svg, count=1)
    # Each style is written once, because a figure of a large model has thousands of marks with a few styles.
    svg = _CLIPPED.sub(r' style="\2; clip-path: \1"', svg)
    names = {style: f"{name}-s{k}" for k, style in enumerate(dict.fromkeys(_STYLE.findall(svg)))}
    rules = "".join(f".{short}{{{style}}}" for style, short in names.items())
    svg = _STYLE.sub(lambda match: f' class="{names[match.group(1)]}"', svg).replace(">", f"><style>{rules}</style>", 1)
    return re.sub(r"\s*\n\s*", "", svg)


def _shorter(match: re.Match[str]) -> str:
    """Round coordinates to a hundredth of a point, and write rectangles by two corners."""
    text = " ".join(match.group(2).split())
    text = _LONG_DECIMAL.sub(lambda number: f"{float(number.group()):.2f}".rstrip("0").rstrip("."), text)
    corners = _RECTANGLE.sub(r"M\1 \2H\3V\4H\1z", text)
    return f'{match.group(1)}="{corners}"'


def _placeholders() -> Theme:
    """Make a theme of colours that occur nowhere else."""
    count = iter(range(256))
    colours: dict[str, Any] = {}
    for role in _ROLES:
        several = tuple(f"#fe01{next(count):02x}" for _ in range(_SEVERAL.get(role, 1)))
        colours[role] = several if role in _SEVERAL else several[0]
    return Theme(**colours)


def _colours(theme: Theme) -> Iterator[tuple[str, str]]:
    for role in _ROLES:
        value, name = getattr(theme, role), role.replace("_", "-")
        if isinstance(value, str):
            yield name, value
        else:
            yield from ((f"{name}-{k}", colour) for k, colour in enumerate(value))
