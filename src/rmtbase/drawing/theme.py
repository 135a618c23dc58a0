"""Colours by role, so that the same thing has the same colour in all figures; none distinguishes things only by hue."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import matplotlib
from matplotlib import font_manager

from rmtbase.errors import MissingFileError, ParameterError, RmtbaseWarning
from rmtbase.reasons import packaged_texts
from rmtbase.regular_files import require_regular
from rmtbase.shown import in_one_line, shown

_SEQUENTIAL = (
    "#f3f5e4", "#dcedc2", "#b9dfb9", "#86ccbb", "#4fb3c1", "#2b8fbc", "#245fa3", "#253a86", "#0f1d57",
)  # fmt: skip
"""Colours from pale to dark with decreasing lightness, after ColorBrewer's YlGnBu (Harrower & Brewer 2003)."""

_SIZES = {"axes.titlesize": 1.05, "axes.labelsize": 0.95, "xtick.labelsize": 0.85, "legend.fontsize": 0.85}
"""Text sizes relative to ``font.size``, by the name of Matplotlib's setting."""

_ROLES = {
    "text.color": "text",
    "axes.labelcolor": "text",
    "xtick.color": "muted",
    "grid.color": "grid",
    "axes.facecolor": "surface",
    "figure.facecolor": "surface",
    "patch.facecolor": "null",
}
_CYCLED = (("free_law", "observed"), ("naive", "flagged"))  # roles of the first and second colour of a cycle
_MATH_FONTS = ("rm", "it", "bf", "bfit", "sf", "tt", "cal")
_GENERIC = ("serif", "sans-serif", "sans", "monospace", "cursive", "fantasy")
_FONTS = ("font.family", *(f"font.{name}" for name in _GENERIC), *(f"mathtext.{name}" for name in _MATH_FONTS))
_TEX = ("text.usetex", "text.latex.")
_NO_STYLE = ("backend", "interactive", "toolbar", "savefig.directory", "tk.", "webagg.", "keymap.", "date.epoch")


@in_one_line
@dataclass(frozen=True)
class Theme:
    """Colours of a figure, in any form that Matplotlib accepts."""

    surface: str  #: background; also the centre of a mark that must be visible on any cell
    text: str  #: labels
    muted: str  #: secondary labels and axes
    grid: str  #: grid lines
    null: str  #: the null: histogram, bands, median
    free_law: str  #: the free-product law and its edges
    naive: str  #: the single-factor Marchenko–Pastur law
    observed: str  #: measurements on a model
    flagged: str  #: measurements that differ from the null
    series: tuple[str, ...]  #: further lines that must be distinguished, in order
    diverging: tuple[str, ...]  #: z from far below the null, through zero (the middle colour), to far above
    sequential: tuple[str, ...] = _SEQUENTIAL  #: densities, from almost zero to the highest
    #: Matplotlib's settings for text and files, by name; all others are the caller's
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def points(self, name: str) -> float:
        """Return the size in points of a kind of text, by Matplotlib's name, such as ``axes.labelsize``."""
        medium = float(self.settings.get("font.size", 10.0))
        size = self.settings.get(name, _SIZES[name] * medium)
        return medium * font_manager.font_scalings[size] if isinstance(size, str) else float(size)

    def with_style(self, path: Path | str) -> Theme:
        """Return the theme with the fonts and colours that a Matplotlib style file sets.

        The colours of ``axes.prop_cycle`` are, in order, those of the free law and observations, of the naive law and
        flagged observations, and of further lines. ``patch.facecolor`` is the colour of the null; ``text.color``,
        ``xtick.color``, ``grid.color`` and ``figure.facecolor`` have their usual meaning.

        Raises:
            MissingFileError: there is no such file.
            ParameterError: it cannot be read as a style.

        Warns:
            RmtbaseWarning: a line of the file has no effect.
        """
        path = Path(path)
        try:
            require_regular(path)
            with _complaints() as in_vain:
                style = matplotlib.rc_params_from_file(path, fail_on_error=True, use_default_template=False)
        except FileNotFoundError as error:
            raise MissingFileError(path, "name a Matplotlib style file") from error
        except (OSError, ValueError, KeyError) as error:
            raise ParameterError("style", str(path), f"a Matplotlib style file ({error})") from error
        if in_vain and not style:
            raise ParameterError("style", str(path), f"a Matplotlib style file ({in_vain[0]})")
        settings = {name: value for name, value in style.items() if not name.startswith(_NO_STYLE)}
        for line in [*in_vain, *_drop_what_has_no_effect(settings)]:
            warnings.warn(f"{path.name}: {line}", RmtbaseWarning, stacklevel=2)
        colours: dict[str, Any] = {role: settings[name] for name, role in _ROLES.items() if name in settings}
        if "axes.prop_cycle" in settings:
            cycle = tuple(settings["axes.prop_cycle"].by_key().get("color", ()))
            colours |= {role: colour for roles, colour in zip(_CYCLED, cycle, strict=False) for role in roles}
            colours |= {"series": cycle} if cycle else {}
        return replace(self, **colours, settings={**self.settings, **settings})


def _drop_what_has_no_effect(settings: dict[str, Any]) -> Iterator[str]:
    """Remove TeX, and fonts not installed, which Matplotlib would log for each text; yield a line for each."""
    if any([settings.pop(name) for name in list(settings) if name.startswith(_TEX)]):
        yield "text.usetex and text.latex have no effect: Matplotlib sets all text itself, without TeX"
    installed = {*(font.name.lower() for font in font_manager.fontManager.ttflist), *_GENERIC}
    for name in [name for name in settings if name in _FONTS]:
        fonts = [settings[name]] if isinstance(settings[name], str) else list(settings[name])
        is_pattern = name.startswith("mathtext")  # such as "DejaVu Serif:italic"
        families = [font_manager.FontProperties(font).get_family()[0] if is_pattern else font for font in fonts]
        known = [font for font, family in zip(fonts, families, strict=True) if family.lower() in installed]
        if len(known) < len(fonts) and (name == "font.family" or not known):
            missing = ", ".join(font for font in fonts if font not in known)
            yield f"{name}: {missing} not installed; {', '.join(known) or 'the default'} is used"
        if known:
            settings[name] = known if not isinstance(settings[name], str) else known[0]
        else:
            del settings[name]


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """Collect what Matplotlib only logs about a style file: unknown keys and malformed lines."""
    lines: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        lines.append(shown(next(line for line in record.getMessage().splitlines() if line)))
        return False

    logger = logging.getLogger("matplotlib")
    logger.addFilter(keep)
    try:
        yield lines
    finally:
        logger.removeFilter(keep)


THEMES = {
    name: Theme(**cast(Any, {role: tuple(value) if type(value) is list else value for role, value in colours.items()}))
    for name, colours in packaged_texts("rmtbase.drawing", "themes.toml").items()
}  #: Themes by name

LIGHT, DARK, PRINT = THEMES.values()


def as_theme(theme: Theme | str) -> Theme:
    """Return the theme of that name, or the given theme.

    Raises:
        ParameterError: no theme has the name.
    """
    if isinstance(theme, Theme):
        return theme
    if theme not in THEMES:
        raise ParameterError("theme", theme, f"{', '.join(THEMES)}, or a Theme")
    return THEMES[theme]
