r"""Divergence of the elements of each head's matrices from their initial law, with its null.

.. math:: D_{\mathrm{KL}}(P \,\|\, P_0) = \int P \ln(P/P_0)

P is the law of the n elements of a matrix. P₀ is either the normal law of the initial standard deviation σ₀, or the law
of the elements of another checkpoint, of which there are n₀.

*Against a law*, D = D(P ‖ N(w̄, s²)) + D(N(w̄, s²) ‖ N(0, σ₀²)). The second term is to leading order
(s²/σ₀² − 1)²/4 + w̄²/(2σ₀²). If nothing was learned, its two parts are v/4 and 1/(2n) times a χ² variable each, where v
is the variance of s²/σ₀²: 2/n for independent elements, and exactly (2 + 6/h + 2(m + m' − 2)/h)/n for the n = m m'
elements of W_QK, as those in a row or column share its norm. The first term does not depend on location or scale, so
for normal elements it is independent of w̄ and s (Basu's theorem). Its null is that of ``kl_matched_normal``.

*Against a sample*, D = Σ p ln(p/p₀) over k cells. For two samples of one law it is (1/n + 1/n₀)/2 times a quadratic
form of normal variables, Σ λ_i χ²₁. For independent elements this is χ² of k − 1 degrees of freedom, whatever the law.
For W_QK the counts of cells have the covariance n[diag(π) − ππᵀ + (m + m' − 2) C], where C is the covariance of the
shares of a row given its norm. A gamma distribution with the first three cumulants of the quadratic form is used.

Source: S. Kullback and R. A. Leibler, Ann. Math. Stat. 22, 79 (1951); D. Basu, Sankhyā 15, 377 (1955).
"""

import math
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from scipy.special import chdtrc, gammaincinv, ndtr, rel_entr

from rmtbase.errors import ParameterError
from rmtbase.heads.factors import holds_product
from rmtbase.heads.read_sites import read_factors
from rmtbase.laws import Distribution, element_null, normal_kl, product_element_null
from rmtbase.linalg import available_cores
from rmtbase.models import Site, WeightMatrices, open_model
from rmtbase.nulls import SMALLEST_P_VALUE
from rmtbase.parameters import require_positive_number
from rmtbase.progress import SILENT, Progress
from rmtbase.results.scores import layer_coordinates
from rmtbase.results.scores._element_scores import element_blocks
from rmtbase.statistics import ElementSketch, element_sketch
from rmtbase.tables import CIRCUITS, Circuit

_SIZES = ("place", "n_heads", "n_key_heads", "d_head", "d_query", "d_key")
_MATCHED = "kl_matched_normal"
_CELLS_PER_DEVIATION = 4
_FEWEST = 25  # elements of the other checkpoint in a cell
_MOST_CELLS = 1 << 12  # on either side
_CIRCUITS = tuple(CIRCUITS[name] for name in ("query", "key", "qk"))
_Z = np.linspace(0.0, 8.0, 201)  # of the one direction whose variance is much larger
_DENSITY = np.exp(-0.5 * _Z**2) * np.where(_Z > 0.0, 1.0, 0.5)
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(8)
_NORMS = 512  # quantiles of the norm of a row


class _Divergence(NamedTuple):
    observed: float
    null_mean: float = math.nan
    null_std: float = math.nan
    p_value: float = math.nan


def element_divergence(
    model: WeightMatrices | Path | str, initial: WeightMatrices | Path | str | float, progress: Progress = SILENT
) -> xr.Dataset:
    """Measure how far the elements of each head's W_Q, W_K and W_QK are from their initial law.

    The p-value is the probability of a divergence as large if nothing was learned: the elements of W_Q and W_K are
    independent, with the initial law, and W_QK is their product. For W_QK that law must be normal; for W_Q and W_K
    against another checkpoint it can be any.

    An earlier checkpoint of the same run is no independent sample. As long as the elements are nearly those of the
    first checkpoint, the divergence is below its null mean, down to zero, and the p-value is conservative.

    Args:
        model: a folder, a hub id, ``"demo"``, or an opened model.
        initial: the initial law. A number is the standard deviation σ₀ of the normal elements of W_Q and W_K; then
            W_QK is compared with the normal law of its initial standard deviation √d_head σ₀², from which the null has
            the small divergence of a product. A model is another checkpoint with the same heads, such as the first. Its
            law is known only where it has elements: cells are a quarter of a standard deviation wide, and cells with
            fewer than 25 of its elements are joined, which makes large divergences too small.
        progress: shows the layers, and receives notes on heads without a null.

    Returns:
        ``observed``, ``null_mean`` and ``null_std`` in nats and ``p_value``, each (layer, head, component); NaN where a
        layer has no such head. No null is known if a matrix is a product of stored ones, nor for few elements.

    Raises:
        ParameterError: σ₀ is not a positive number, or the models differ in the places or sizes of their heads.
        CheckpointError: a checkpoint cannot be read.
    """
    sigma0 = require_positive_number("initial", initial) if isinstance(initial, float | int) else None
    sources: list[Any] = [model] if sigma0 is not None else [model, initial]
    compared = [source if isinstance(source, WeightMatrices) else open_model(source) for source in sources]
    opened = compared[0]
    sizes = [[[getattr(site, name) for name in _SIZES] for site in weights.sites] for weights in compared]
    if sizes[0] != sizes[-1]:
        expected = f"a model whose heads have the places and sizes of {opened.name}"
        raise ParameterError("initial", compared[-1].name, expected)
    n_heads = max(max(site.n_heads, site.n_key_heads) for site in opened.sites)
    numbers = np.full((len(opened.sites), n_heads, len(_CIRCUITS), len(_Divergence._fields)), np.nan)
    advance = progress.bar("comparing heads", len(opened.sites))
    with ThreadPoolExecutor(available_cores()) as pool:
        for index, site in enumerate(opened.sites):
            for k, circuit in enumerate(_CIRCUITS):
                heads = zip(*(_sketches(weights, index, circuit, pool) for weights in compared), strict=True)
                null = _null(site, circuit)
                if null is None:
                    progress.note(f"{site.place}, {circuit.symbol}: no null of its elements is known")
                if sigma0 is None:
                    rows = [_from_sample(sketch, reference, null) for sketch, reference in heads]
                else:
                    sigma = sigma0 if len(circuit.factors) == 1 else math.sqrt(site.d_head) * sigma0**2
                    rows = [_from_normal(sketch, sigma, null) for (sketch,) in heads]
                numbers[index, : len(rows), k] = rows
            advance(1)
    coords = layer_coordinates([site.place for site in opened.sites])
    coords |= {"head": np.arange(n_heads), "component": [circuit.symbol for circuit in _CIRCUITS]}
    dims = ("layer", "head", "component")
    return xr.Dataset({name: (dims, numbers[..., k]) for k, name in enumerate(_Divergence._fields)}, coords)


def _sketches(model: WeightMatrices, site: int, circuit: Circuit, pool: Executor) -> list[ElementSketch]:
    factors = read_factors(model, site, circuit)
    heads = len(factors[0])

    def sketch(head: int) -> ElementSketch:
        return element_sketch(element_blocks(*(factor[head * len(factor) // heads] for factor in factors)))

    return list(pool.map(sketch, range(heads)))


@dataclass(frozen=True)
class _Null:
    matched: Distribution  # law of ``kl_matched_normal``
    count: int  # number n of elements
    rank: int = 0  # number of products in an element of W_QK; 0 for the independent elements of a single matrix
    neighbours: int = 0  # number of elements that share a row or a column with an element of W_QK

    @property
    def scale_variance(self) -> float:
        """Variance v of s²/σ₀²."""
        shared = (6.0 + 2.0 * self.neighbours) / self.rank if self.rank else 0.0
        return (2.0 + shared) / self.count

    def weights(
        self, share: Float[np.ndarray, " cell"], edges: Float[np.ndarray, " edge"]
    ) -> Float[np.ndarray, " cell"]:
        """Return the λ_i of the counts in cells, ascending."""
        form = np.diag(share) - np.outer(share, share)
        if self.rank:
            norm = np.sqrt(2.0 / self.rank * gammaincinv(0.5 * self.rank, (np.arange(_NORMS) + 0.5) / _NORMS))
            shares_of_row = np.diff(ndtr(edges / norm[:, None]), axis=1, prepend=0.0, append=1.0)
            form += self.neighbours * np.cov(shares_of_row.T, ddof=0)
        return np.linalg.eigvalsh(form / np.sqrt(np.outer(share, share)))


def _null(site: Site, circuit: Circuit) -> _Null | None:
    if any(holds_product(getattr(site, factor.name)) for factor in circuit.factors):
        return None
    sizes = [getattr(site, name) for name in circuit.dims]
    count = sizes[0] * sizes[-1]
    try:
        if len(circuit.factors) == 1:
            return _Null(element_null(_MATCHED, count), count)
        law = product_element_null(_MATCHED, *sizes)
    except ParameterError:
        return None
    return _Null(law, count, sizes[1], sizes[0] + sizes[-1] - 2)


def _from_normal(sketch: ElementSketch, sigma: float, null: _Null | None) -> _Divergence:
    mean, std = sketch.sums.mean, sketch.moments().std
    if std == 0.0:
        return _Divergence(math.nan)
    # In two terms, as the cells of the first make it too small by their width squared where the laws are far apart.
    observed = sketch.kl_to_normal(mean, std) + float(normal_kl(std, sigma, mean))
    if null is None:
        return _Divergence(observed)
    of_scale, of_mean = 0.25 * null.scale_variance, 0.5 / null.count
    # The law of kl_matched_normal includes 1/n, the mean of what two fitted parameters take away.
    matched = observed + 1.0 / null.count - of_scale * _Z[:, None] ** 2 - of_mean * _NODES**2
    p_value = float(_DENSITY @ null.matched.sf(matched) @ _WEIGHTS / (_DENSITY.sum() * _WEIGHTS.sum()))
    null_mean = null.matched.mean() - 1.0 / null.count + of_scale + of_mean
    null_std = math.sqrt(null.matched.var() + 2.0 * of_scale**2 + 2.0 * of_mean**2)
    return _Divergence(observed, null_mean, null_std, max(p_value, SMALLEST_P_VALUE))


def _from_sample(sketch: ElementSketch, initial: ElementSketch, null: _Null | None) -> _Divergence:
    if 0.0 in (sketch.moments().std, initial.moments().std):
        return _Divergence(math.nan)
    edges, counts = _common_cells(sketch, initial)
    p, p0 = (count / count.sum() for count in counts)
    observed = float(np.sum(rel_entr(p, p0)))
    if null is None:
        return _Divergence(observed)
    moments = sketch.merged(initial).moments()
    unit = 0.5 / sketch.count + 0.5 / initial.count
    weights = unit * null.weights(counts.sum(axis=0) / counts.sum(), (edges - moments.mean) / moments.std)
    p_value = max(_quadratic_sf(observed, weights), SMALLEST_P_VALUE)
    return _Divergence(observed, weights.sum(), math.sqrt(2.0 * np.sum(weights**2)), p_value)


def _quadratic_sf(x: float, weights: Float[np.ndarray, " direction"]) -> float:
    """P(Σ λ_i χ²₁ > x), exactly in the largest λ; the others as a gamma variable with their first three cumulants."""
    *smaller, largest = weights
    first, second, third = (math.factorial(k) * 2.0**k * float(np.sum(np.power(smaller, k + 1))) for k in range(3))
    freedom = 8.0 * second**3 / third**2
    score = (x - largest * _Z**2 - first) / math.sqrt(second)
    beyond = chdtrc(freedom, np.maximum(freedom + math.sqrt(2.0 * freedom) * score, 0.0))
    return float(_DENSITY @ beyond / _DENSITY.sum())


def _common_cells(
    sketch: ElementSketch, initial: ElementSketch
) -> tuple[Float[np.ndarray, " edge"], Int[np.ndarray, "sample cell"]]:
    """Return the edges between cells, and the counts of both samples; the outermost cells are open."""
    samples, sums = (sketch, initial), initial.sums
    width = min(sample.moments().std for sample in samples) / _CELLS_PER_DEVIATION
    low, high = ((end - sums.mean) / width for end in (sums.smallest, sums.largest))
    places = np.arange(math.floor(max(low, -_MOST_CELLS)), math.ceil(min(high, _MOST_CELLS)) + 1) + 0.5
    edges = sums.mean + width * places
    for sample in samples:  # to where no stored number lies
        edges = np.unique(sample.bins.between(edges))
    cells = [np.searchsorted(edges, sample.bins.mean, side="right") for sample in samples]
    binned = zip(cells, samples, strict=True)
    counts = np.array([np.bincount(cell, sample.bins.count, edges.size + 1) for cell, sample in binned], np.int64)
    first, elements = [0], 0
    for k, count in enumerate(counts[1].tolist()):
        if elements >= _FEWEST and counts[1, k:].sum() >= _FEWEST:
            first.append(k)
            elements = 0
        elements += count
    return edges[np.array(first[1:], dtype=int) - 1], np.add.reduceat(counts, first, axis=1)
