"""Parts of axes that a test looks at: lines by their label, cells of a map, bands."""

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection, QuadMesh


def line(ax, label):
    """The only line with that label, or whose label holds these words."""
    (found,) = [one for one in ax.lines if one.get_label() == label] or [
        one for one in ax.lines if label in str(one.get_label())
    ]
    return found


def mesh_of(ax):
    """The cells of a map, the first if there are others beside them."""
    return next(one for one in ax.collections if isinstance(one, QuadMesh))


def cells(ax):
    """The values of a map; NaN where there is no colour."""
    return np.ma.filled(mesh_of(ax).get_array(), np.nan)


def bands(ax):
    return {one.get_label(): one for one in ax.collections if isinstance(one, PolyCollection)}


def line_collections(ax):
    return [one for one in ax.collections if isinstance(one, LineCollection)]


def hatched(ax):
    """Row and column of each cell that is marked as not testable."""
    marks = [one for one in ax.collections if one.get_label() == "not testable"]
    return {
        tuple(np.round(ends.mean(axis=0)).astype(int)[::-1].tolist()) for one in marks for ends in one.get_segments()
    }
