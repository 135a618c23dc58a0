"""Colour scales that are the same in all figures, so that colours can be compared across models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import BoundaryNorm, Colormap, ListedColormap

from rmtbase.drawing.theme import Theme
from rmtbase.shown import in_one_line

__all__ = ["Q_LEVELS", "Z_LEVELS"]

Z_LEVELS = (2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 300.0)
"""Values of |z| at which the colour changes, the same in all figures, so that colours can be compared across statistics
and models. Values beyond the last level have the last colour; those below the first, as 95 % of random ones are, the
palest."""

Q_LEVELS = (0.05, 0.01, 1e-3, 1e-4)  #: q-values at which the colour of the omnibus map changes, the same in all figures

MOST_CELLS = 20_000  #: Largest number of cells of a map that is drawn cell by cell; larger maps are drawn as images

_Q_COLOURS = (7, 9, 11, 12, 14)  # places among a theme's diverging colours, beginning with no evidence
_HUGE = 1e300
_RATIOS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
_BOTH_RATIOS = (*(round(1 / ratio, 2) for ratio in reversed(_RATIOS)), *_RATIOS)

Scaling = Callable[[np.ndarray], np.ndarray]


@in_one_line
@dataclass(frozen=True)
class ColorScale:
    """Colour scale of a heat map's cells."""

    label: str  # label of the scale
    # values at which the colour changes, ascending on the map's scale; the outer colours extend beyond the outer levels
    levels: tuple[float, ...]
    colors: Callable[[Theme], Sequence[str]]  # colours of a theme, one more than there are levels
    on_scale: Scaling = np.asarray  # maps a value to the map's scale: itself, or a logarithm

    def fill(
        self,
        ax: Axes,
        x: Float[np.ndarray, " x"],
        y: Float[np.ndarray, " y"],
        values: Float[np.ndarray, "row column"],
        theme: Theme,
    ) -> None:
        """Colour the cells between the edges x and y by their values; missing values have no colour."""
        cmap, norm = self._colors(theme)
        with np.errstate(divide="ignore", invalid="ignore"):
            shown = self.on_scale(values)
        # Matplotlib would give no colour to infinite numbers, such as the logarithm of zero.
        shown = np.clip(shown, -_HUGE, _HUGE)
        is_image = values.size > MOST_CELLS
        ax.pcolormesh(x, y, np.ma.masked_invalid(shown), cmap=cmap, norm=norm, linewidth=0, rasterized=is_image)

    def _colors(self, theme: Theme) -> tuple[Colormap, BoundaryNorm]:
        colours = list(self.colors(theme))
        cmap = ListedColormap(colours).with_extremes(under=colours[0], over=colours[-1], bad=(0, 0, 0, 0))
        return cmap, BoundaryNorm(self.on_scale(np.array(self.levels)).tolist(), cmap.N, extend="both")

    def bar(self, axes: Axes | Sequence[Axes], theme: Theme) -> Colorbar:
        """Draw the scale beside the given axes, once for all of them, with a tick at each level."""
        all_axes = [axes] if isinstance(axes, Axes) else list(axes)
        cmap, norm = self._colors(theme)
        bar = all_axes[0].get_figure().colorbar(  # type: ignore[union-attr]  # axes always lie in a figure
            ScalarMappable(norm, cmap), ax=all_axes, spacing="uniform", ticks=norm.boundaries, extendfrac=0.07,
            aspect=26, pad=0.02,
        )  # fmt: skip
        bar.ax.set_yticklabels([_level(level) for level in self.levels])
        bar.ax.minorticks_off()
        bar.ax.set_facecolor("none")
        bar.ax.tick_params(color=theme.muted, labelcolor=theme.muted, labelsize=theme.points("xtick.labelsize"))
        bar.outline.set_visible(False)  # type: ignore[operator]  # a spine; the stubs do not say so
        bar.set_label(self.label, color=theme.text, fontsize=theme.points("axes.labelsize"))
        return bar


def _level(level: float) -> str:
    return (f"{level:g}" if 1e-4 <= abs(level) < 1e5 else rf"$10^{{{np.log10(level):.0f}}}$").replace("-", "−")


def _sequential(label: str, levels: tuple[float, ...], on_scale: Scaling = np.log) -> ColorScale:
    return ColorScale(label, levels, lambda theme: theme.sequential, on_scale)


_BOTH_SIDES = (*(-z for z in reversed(Z_LEVELS)), *Z_LEVELS)
Z = ColorScale("$z$ (null standard deviations)", _BOTH_SIDES, lambda theme: theme.diverging)
Q = ColorScale(
    "$q$, all statistics together",
    Q_LEVELS,
    lambda theme: [theme.diverging[place] for place in _Q_COLOURS],
    lambda q: -np.log10(q),
)
RATIO = ColorScale("value over the null's median", _BOTH_RATIOS, lambda theme: theme.diverging, np.log)
MOVED_SHARE = _sequential("moved share (%)", (2.0, 4.0, 8.0, 15.0, 25.0, 40.0, 55.0, 70.0), np.asarray)
COMPOSING_SHARE = _sequential("pairs that compose (%)", (0.1, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 70.0), np.asarray)
DENSITY = _sequential("density of $(w - \\bar w)/s$", (1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.4))
MAGNITUDE_DENSITY = _sequential("density of $\\log_{10}|w|$", (1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.2, 0.5, 0.9))
LOG_DENSITY = _sequential(r"density per unit of $\ln\lambda$", (0.03, 0.06, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2))
CHANGE = _sequential("norm of the change over the earlier norm", (3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0))
SHARE = _sequential("eigenvalue over the model's mean", (1e-4, 1e-3, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0))
