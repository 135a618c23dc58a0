"""The figures of a trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import xarray as xr

from rmtbase.drawing.axes import model_title
from rmtbase.drawing.groups import elements_of, heads_of, matrices_of
from rmtbase.drawing.layout import Drawing, Look, Single, legend_of_all, panels
from rmtbase.drawing.picture import Picture
from rmtbase.results.scores.figures import (
    MAIN_ELEMENT_STATISTICS,
    MAIN_STATISTICS,
    magnitudes_along_steps,
    weibull_plane,
)
from rmtbase.results.trajectory.figures._along_steps import departures, spectra_along_steps, statistic_along_steps


def drawings(tree: xr.DataTree, look: Look) -> dict[str, Drawing]:
    """Return the figures of a trajectory by name; figures of single statistics are drawn only on request."""
    heads = heads_of(tree)
    held = heads["statistic"].values.tolist()
    main = [name for name in MAIN_STATISTICS if name in held]
    drawings = {"statistics-along-steps": Drawing(partial(_several, tree, main, "heads", look))}
    if "departures" in tree.children:
        layers = heads.sizes.get("layer", 1)
        draw = Single(departures, look, tree, height=min(1.6 + 0.5 * layers, 8.0))
        drawings["departures"] = Drawing(draw)
    if str(tree.attrs["null_method"]) != "resampled":
        drawings["spectra-along-steps"] = Drawing(Single(spectra_along_steps, look, tree))
    for name in held:
        draw = Single(statistic_along_steps, look, tree, statistic=name)
        drawings[f"along-steps-{name}"] = Drawing(draw, standard=False)
    if "matrices" in tree.children:
        of_matrices = matrices_of(tree)["statistic"].values.tolist()
        main = [name for name in ("weibull_shape", "weibull_scale", "excess_kurtosis") if name in of_matrices]
        drawings["matrices-along-steps"] = Drawing(partial(_several, tree, main, "matrices", look))
        if "weibull_shape" in of_matrices:
            drawings["weibull-plane"] = Drawing(Single(weibull_plane, look, tree))
        if "log_magnitude_histogram" in matrices_of(tree):
            for name in matrices_of(tree)["component"].values.tolist():
                draw = Single(magnitudes_along_steps, look, tree, component=name)
                drawings[f"magnitudes-along-steps-{name}"] = Drawing(draw, standard=False)
        for name in [*of_matrices, "sigma"]:
            draw = Single(statistic_along_steps, look, tree, statistic=name, group="matrices")
            drawings[f"matrices-along-steps-{name}"] = Drawing(draw, standard=False)
    if "elements" in tree["heads"].children:
        of_elements = elements_of(tree)["statistic"].values.tolist()
        main = [name for name in MAIN_ELEMENT_STATISTICS if name in of_elements]
        drawings["elements-along-steps"] = Drawing(partial(_several, tree, main, "elements", look), standard=False)
    return drawings


def _several(tree: xr.DataTree, names: Sequence[str], group: str, look: Look) -> Picture:
    options = {name: {"table": tree, "statistic": name, "group": group} for name in names}
    plain = partial(statistic_along_steps, legend=False)
    figure = panels(plain, options, look, 2, share_y=False, title=model_title(tree))
    legend_of_all(figure, look.theme)
    return figure
