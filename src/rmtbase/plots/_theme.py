"""Colours by role, so that the same thing has one colour in every picture.

The hues are those of Okabe & Ito (2008), which stay apart under the common kinds of colour blindness; no picture tells
two things apart by hue alone. The dark theme lightens them until they stand out from a dark page.
"""

from __future__ import annotations

from dataclasses import dataclass

ORANGE = "#e69f00"
SKY_BLUE = "#56b4e9"
BLUISH_GREEN = "#009e73"
BLUE = "#0072b2"
VERMILLION = "#d55e00"
REDDISH_PURPLE = "#cc79a7"


@dataclass(frozen=True)
class Theme:
    """The colours of a picture, as Matplotlib takes them.

    Attributes:
        surface: what the picture lies on; also the heart of a mark that must show on any cell.
        text, muted, grid: labels, secondary labels and axes, grid lines.
        null: the null: histogram, bands, its median.
        free_law: the free-product law and its edges.
        naive: the single-factor Marchenko–Pastur law.
        observed: what was measured on a model.
        flagged: what was measured and left the null.
        series: further lines that need telling apart, in order.
        diverging: z from far below the null, through none (the middle one), to far above.
    """

    surface: str
    text: str
    muted: str
    grid: str
    null: str
    free_law: str
    naive: str
    observed: str
    flagged: str
    series: tuple[str, ...]
    diverging: tuple[str, ...]


LIGHT = Theme(
    surface="#ffffff",
    text="#1f2328",
    muted="#59636e",
    grid="#dde2e7",
    null="#7d8792",
    free_law="#008a64",
    naive=REDDISH_PURPLE,
    observed=BLUE,
    flagged=VERMILLION,
    series=(BLUE, VERMILLION, BLUISH_GREEN, "#c08400", REDDISH_PURPLE),
    diverging=(
        "#08306b", "#0b4a8f", "#1f6db1", "#4a94c8", "#82b8dc", "#b5d5ea", "#dbe8f1",
        "#f1f1ef",
        "#fae3c8", "#f8c893", "#f2a55c", "#e08030", "#c05f12", "#954205", "#642a02",
    ),
)  # fmt: skip

DARK = Theme(
    surface="#14171b",
    text="#e6e9ed",
    muted="#9aa5b1",
    grid="#2c333b",
    null="#8b96a2",
    free_law="#2fc79b",
    naive="#c9a0f5",
    observed=SKY_BLUE,
    flagged="#ff8b42",
    series=(SKY_BLUE, "#ff8b42", "#2fc79b", "#f0c04a", "#e39bc2"),
    diverging=(
        "#d9efff", "#b0dcff", "#82c4fb", "#55a6e6", "#3a83c0", "#2c6293", "#26455f",
        "#262b31",
        "#57402a", "#85542a", "#b56d28", "#df8a31", "#f9aa58", "#ffc98d", "#ffe6c8",
    ),
)  # fmt: skip
