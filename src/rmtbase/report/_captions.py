"""What each figure of a page shows, and how to read it."""

from __future__ import annotations

from typing import NamedTuple

import xarray as xr

from rmtbase.tables import null_method


class Caption(NamedTuple):
    """The words of a figure.

    Attributes:
        title: what it shows.
        reading: how to read it.
        description: what a reader who cannot see it is told.
    """

    title: str
    reading: str
    description: str


_CAPTIONS = {
    "z-heat-map": Caption(
        "How far every head is from random",
        "One cell per head. Grey heads look random; blue ones lie below the null's mean and orange ones above, the "
        "stronger the farther. A dot marks q < 0.05. The colours change at the same z in every report, so that two "
        "models can be laid side by side.",
        "Heat maps of z-scores by layer and head, one for each of four statistics.",
    ),
    "ordered-eigenvalues": Caption(
        "Where in the spectrum the heads leave the null",
        "Eigenvalues of three heads, each divided by the head's own scale, over the band in which a random head's "
        "eigenvalue of that rank lies. A curve that starts above the band and ends below it has put its weight on few "
        "directions.",
        "Ordered eigenvalues of the farthest, the middle and the nearest head, over the bands of the null.",
    ),
    "statistics-by-layer": Caption(
        "Where in the model the heads leave the null",
        "Every head as a point, in order within its layer; filled where q < 0.05. In the grey band lie 99 % of random "
        "heads. A statistic that scales with the weights is divided by the mean of the head's own null.",
        "Four statistics of every head by layer, with layer means, against the band that holds 99 % of null heads.",
    ),
    "p-value-qq": Caption(
        "Whether all the p-values together look random",
        "The heads' p-values, sorted, against what as many random heads would give. Points along the line and inside "
        "the band: nothing learned shows. Points above it: more small p-values than chance gives. The number of null "
        "draws sets a floor to any p-value (the dashed line; half of it for all statistics together).",
        "Sorted p-values of all heads against those expected under the null, with a 95 % band.",
    ),
    "null-spectrum": Caption(
        "The null itself",
        "All eigenvalues of a random head at this shape: simulated, and the free-product law that they tend to. The "
        "Marchenko–Pastur law of a single factor, often used in its place, is too narrow: it would call ordinary "
        "eigenvalues outliers.",
        "Density of the null's eigenvalues: Monte Carlo, free-product law, and the narrower Marchenko–Pastur law.",
    ),
    "matrix-z-heat-map": Caption(
        "How far every weight matrix is from independent Gaussian elements",
        "One cell per matrix, colours as above. Positive excess kurtosis means heavier tails than a Gaussian's.",
        "Heat maps of z-scores by layer and component, one for each element-wise statistic.",
    ),
}

_ANALYTIC_CAPTIONS = _CAPTIONS | {
    "p-value-qq": _CAPTIONS["p-value-qq"]._replace(
        reading="The heads' p-values, sorted, against what as many random heads would give. Points along the line and "
        "inside the band: nothing learned shows. Points above it: more small p-values than chance gives. Above 4 they "
        "are extrapolations of the right order of magnitude, and they end at 16.",
    ),
    "null-spectrum": Caption(
        "The null itself",
        "The free-product law, which all eigenvalues of a random head tend to as shapes grow. The Marchenko–Pastur law "
        "of a single factor, often used in its place, is too narrow: it would call ordinary eigenvalues outliers.",
        "Density of the null's eigenvalues: free-product law, and the narrower Marchenko–Pastur law.",
    ),
}

_OWN_NULL_CAPTIONS = _CAPTIONS | {
    "z-heat-map": _CAPTIONS["z-heat-map"]._replace(
        title="How far every head is from its own null",
        reading="One cell per head. Grey heads look like their own resampled matrices; blue ones lie below their "
        "null's mean and orange ones above, the stronger the farther. A dot marks q < 0.05. The colours change at the "
        "same z in every report, so that two models can be laid side by side.",
    ),
    "ordered-eigenvalues": Caption(
        "Where in the spectrum the heads leave their nulls",
        "Eigenvalues of three heads, each divided by the head's own scale, over the band, in the head's colour, in "
        "which its resampled eigenvalue of that rank lies. Each head has a null of its own.",
        "Ordered eigenvalues of the farthest, the middle and the nearest head, each over the band of its own null.",
    ),
    "statistics-by-layer": Caption(
        "Where in the model the heads leave their nulls",
        "Every head as a point, in order within its layer; filled where q < 0.05. The bar behind it holds 99 % of the "
        "draws of its own null. A statistic that scales with the weights is divided by the mean of that null.",
        "Four statistics of every head by layer, with layer means, against bars that hold 99 % of each head's null.",
    ),
    "p-value-qq": _CAPTIONS["p-value-qq"]._replace(
        reading="The heads' p-values, sorted, against what as many heads of the null would give. Points along the line "
        "and inside the band: the null explains the heads. Points above it: more small p-values than chance gives. The "
        "number of draws of each head sets a floor to any p-value (the dashed line; half of it for all statistics "
        "together).",
    ),
}


def captions(scores: xr.DataTree) -> dict[str, Caption]:
    """The captions of a scores tree's figures by name."""
    of = {"analytic": _ANALYTIC_CAPTIONS, "resampled": _OWN_NULL_CAPTIONS}
    return of.get(null_method(scores.attrs), _CAPTIONS)
