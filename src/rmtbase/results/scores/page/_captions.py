"""Captions of a page's figures: what each shows, and how to read it."""

from __future__ import annotations

from typing import NamedTuple

import xarray as xr

from rmtbase.results.scores.summary import Summary
from rmtbase.results.scores.words import compared_plainly
from rmtbase.tables import Circuit


class Caption(NamedTuple):
    title: str  # subject of the figure
    reading: str  # explanation of how to read it
    description: str  # alternative text for readers who cannot see it


_SHARED = {
    "random": "random heads",
    "unlike": "random ones",
    "far": "random",
    "grey": "Grey heads could be random, hatched ones could not be tested",
    "moved": "It says how much the spectrum differs, not why: strong directions and unequal axes both move it. ",
    "divided": "the median of a random head's eigenvalue of that rank; in the band lie those of random heads",
    "over": "over the bands of the null",
    "band": "In the grey band lie 99 % of random heads, and the dark bars are the layers' medians",
    "against": "the band that holds 99 % of null heads",
    "explained": "nothing learned shows",
    "floor": "The number of null draws sets a floor to any p-value: the dashed line to that of one statistic, the "
    "dotted line, half of it, to that of all together.",
    "spectrum": "All eigenvalues of a random head at this shape: simulated, and the free-product law that they tend to",
    "densities": "Monte Carlo, free-product law",
}
_BY_METHOD = {
    "simulated": _SHARED,
    "analytic": _SHARED
    | {
        "floor": "Above 4 they are extrapolations of the right order of magnitude, and they end at 16.",
        "spectrum": "The free-product law, which all eigenvalues of a random head tend to as shapes grow",
        "densities": "free-product law",
    },
    "resampled": _SHARED
    | {
        "random": "its own resampled copies",
        "unlike": "their own copies",
        "far": "its own null",
        "grey": "Grey heads look like their own resampled copies, hatched ones could not be tested",
        "moved": "",
        "divided": "the median of the head's resampled eigenvalue of that rank, over the band, in the head's colour, "
        "in which these lie",
        "over": "each over the band of its own null",
        "band": "The bar behind it holds 99 % of the draws of its own null",
        "against": "bars that hold 99 % of each head's null",
        "explained": "the null explains the heads",
    },
}
"""Words of captions about a null, by how it is known."""

_CAPTIONS = {
    "moved-share-map": Caption(
        "Map of all heads",
        "One cell per head: its moved share, in percent. That is the share of its strength that would have to move "
        "between its ordered directions to give it the mean spectrum of {random}. {moved}Whether a head differs is "
        "tested by its whole spectrum. The colours change at the same shares in every report.",
        "A map of the moved share, by layer and head.",
    ),
    "omnibus-map": Caption(
        "Which heads look unlike {unlike}",
        "One cell per head, by one test of all its statistics together. {grey}; the stronger its colour, the smaller "
        "its q-value. A dot marks q < 0.05: of all heads with a dot, at most one in twenty is expected to have it by "
        "chance.",
        "A map of the q-values of all statistics together, by layer and head.",
    ),
    "heads-by-statistic": Caption(
        "By which statistics they differ",
        "How many heads have q < 0.05 by each statistic by itself. Statistics that flag all heads mean that the whole "
        "spectrum has changed; a single statistic that stands out shows what has changed.",
        "Bars: for each statistic, how many heads it flags by itself.",
    ),
    "z-heat-map": Caption(
        "How far every head is from {far}",
        "One cell per head. {grey}; blue ones lie below the null's mean and orange ones above, the stronger the "
        "farther: z is counted in null standard deviations, of the logarithm where the title says ln. A dot marks "
        "q < 0.05. The colours change at the same z in every report, so that two models can be laid side by side.",
        "Heat maps of z-scores by layer and head, one for each of four statistics.",
    ),
    "ordered-eigenvalues": Caption(
        "Where in the spectrum the heads differ from {unlike}",
        "Eigenvalues of up to three heads at the head's own scale, each divided by {divided}. A curve that starts "
        "above the band and ends below it has put its weight on few directions.",
        "Ordered eigenvalues of the farthest, the middle and the nearest head, {over}.",
    ),
    "statistics-by-layer": Caption(
        "Where in the model the heads differ from {unlike}",
        "Every head as a point, in order within its layer; filled where q < 0.05. {band}. A statistic that scales with "
        "the weights is shown over the mean of the head's own null, or, where the axis has a minus, less that mean.",
        "Four statistics of every head by layer, with layer medians, against {against}.",
    ),
    "elements-by-layer-W_QK": Caption(
        "How the elements of each head's W_QK are distributed",
        "Every head as a point at its layer: the spread of its elements, with that of a normal law fitted to their "
        "core; how far they are from the normal law of the same spread, by divergence and by entropy; and the Weibull "
        "shape of their body. In the grey bands lie 95 % of random heads, whose product of two normal matrices is no "
        "normal law either.",
        "Spread, divergence, entropy and Weibull shape of every head's elements by layer, against the null's bands.",
    ),
    "p-value-qq": Caption(
        "Whether all the p-values together look random",
        "The heads' p-values, sorted, against what as many heads of the null would give. Points along the line and "
        "inside the band: {explained}. Points above it: more small p-values than chance gives. {floor}",
        "Sorted p-values of all heads against those expected under the null, with a 95 % band.",
    ),
    "null-spectrum": Caption(
        "The null itself",
        "{spectrum}. The Marchenko–Pastur law of a single factor, often used in its place, is too narrow: it would "
        "call ordinary eigenvalues outliers.",
        "Density of the null's eigenvalues: {densities}, and the narrower Marchenko–Pastur law.",
    ),
    "matrix-z-heat-map": Caption(
        "How far every weight matrix is from independent Gaussian elements",
        "One cell per matrix, colours as above. Positive excess kurtosis means heavier tails than a Gaussian's.",
        "Heat maps of z-scores by layer and component, one for each of several statistics of their elements.",
    ),
    "weibull-by-layer": Caption(
        "Whether the bodies of weight matrices have kept their shape",
        "The Weibull shape k and scale λ of the middle 80 % of each matrix's magnitudes, λ over their root mean "
        "square. Each grey band holds 95 % of random matrices of one size: the larger the matrix, the narrower. "
        "Matrices below it have more of their weights near zero and far out than random ones.",
        "Weibull shape and scale of every weight matrix by layer, against the bands of random matrices of their sizes.",
    ),
    "expert-z-heat-map": Caption(
        "How far every expert is from independent Gaussian elements",
        "One cell per expert, by the excess kurtosis of each of its matrices, colours as above.",
        "Heat maps of z-scores by layer and expert, one for each of an expert's matrices.",
    ),
}

_SINGLE = {"query": "queries", "key": "keys", "value": "values", "output": "outputs"}


def captions(scores: xr.DataTree, by_statistic: str) -> dict[str, Caption]:
    words = _BY_METHOD[scores.attrs["null_method"]]
    named = {name: Caption(*(text.format(**words) for text in caption)) for name, caption in _CAPTIONS.items()}
    if by_statistic:
        named["heads-by-statistic"] = named["heads-by-statistic"]._replace(description=by_statistic)
    return named


def of_circuit(circuit: Circuit) -> Caption:
    """Return the caption of the map of a further circuit."""
    noun, symbol = circuit.noun, circuit.symbol
    return Caption(
        f"Which {noun}s look unlike random ones by {symbol}",
        f"One cell per {noun}, by one test of all statistics of its {symbol} together; colours and dots as in the map "
        "of W_QK. The q-values are over all of them.",
        f"A map of the q-values of {symbol}, by layer and {noun}.",
    )


def circuit_words(circuit: Circuit) -> tuple[str, str]:
    """Return the title of a further circuit's section, and a sentence about the circuit."""
    if circuit.name not in _SINGLE:
        return "What heads write", "says what a head writes for what it reads, whatever it attends to."
    sides = _SINGLE[circuit.name]
    shows = f"shows a direction that training gave only to the {sides}"
    return f"{sides.capitalize()} by themselves", f"{shows}, long before it can be seen in a product of two matrices."


def opening(scores: xr.DataTree, summary: Summary, name: str) -> str:
    """Write a sentence or two for a reader without statistics: the comparison, and how sure its result is."""
    compared = compared_plainly(scores, name)
    if not summary.findings:
        return compared
    return f"{compared} At most {summary.level:.0%} of the heads that differ are expected to differ by chance."
