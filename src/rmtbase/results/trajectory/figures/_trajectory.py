"""The figures of a trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import xarray as xr

from rmtbase.drawing.axes import model_title
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.groups import elements_of, heads_of, matrices_of
from rmtbase.drawing.layout import FigureRecipe, FigureStyle, Single, legend_of_all, panels
from rmtbase.results.scores.figures import (
    MAIN_ELEMENT_STATISTICS,
    MAIN_STATISTICS,
    magnitudes_along_steps,
    weibull_plane,
)
from rmtbase.results.trajectory.figures._along_steps import departures, spectra_along_steps, statistic_along_steps


def figure_recipes(tree: xr.DataTree, style: FigureStyle) -> dict[str, FigureRecipe]:
    """Return the figures of a trajectory by name; figures of single statistics are drawn only on request."""
    heads = heads_of(tree)
    held = heads["statistic"].values.tolist()
    main = [name for name in MAIN_STATISTICS if name in held]
    recipes = {"statistics-along-steps": FigureRecipe(partial(_several, tree, main, "heads", style))}
    if "departures" in tree.children:
        layers = heads.sizes.get("layer", 1)
        draw = Single(departures, style, tree, height=min(1.6 + 0.5 * layers, 8.0))
        recipes["departures"] = FigureRecipe(draw)
    if str(tree.attrs["null_method"]) != "resampled":
        recipes["spectra-along-steps"] = FigureRecipe(Single(spectra_along_steps, style, tree))
    for name in held:
        draw = Single(statistic_along_steps, style, tree, statistic=name)
        recipes[f"along-steps-{name}"] = FigureRecipe(draw, standard=False)
    if "matrices" in tree.children:
        of_matrices = matrices_of(tree)["statistic"].values.tolist()
        main = [name for name in ("weibull_shape", "weibull_scale", "excess_kurtosis") if name in of_matrices]
        recipes["matrices-along-steps"] = FigureRecipe(partial(_several, tree, main, "matrices", style))
        if "weibull_shape" in of_matrices:
            recipes["weibull-plane"] = FigureRecipe(Single(weibull_plane, style, tree))
        if "log_magnitude_histogram" in matrices_of(tree):
            for name in matrices_of(tree)["component"].values.tolist():
                draw = Single(magnitudes_along_steps, style, tree, component=name)
                recipes[f"magnitudes-along-steps-{name}"] = FigureRecipe(draw, standard=False)
        for name in [*of_matrices, "sigma"]:
            draw = Single(statistic_along_steps, style, tree, statistic=name, group="matrices")
            recipes[f"matrices-along-steps-{name}"] = FigureRecipe(draw, standard=False)
    if "elements" in tree["heads"].children:
        of_elements = elements_of(tree)["statistic"].values.tolist()
        main = [name for name in MAIN_ELEMENT_STATISTICS if name in of_elements]
        recipes["elements-along-steps"] = FigureRecipe(partial(_several, tree, main, "elements", style), standard=False)
    return recipes


def _several(tree: xr.DataTree, names: Sequence[str], group: str, style: FigureStyle) -> ThemedFigure:
    options = {name: {"table": tree, "statistic": name, "group": group} for name in names}
    plain = partial(statistic_along_steps, legend=False)
    figure = panels(plain, options, style, 2, share_y=False, title=model_title(tree))
    legend_of_all(figure, style.theme)
    return figure
