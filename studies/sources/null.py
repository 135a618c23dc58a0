"""Recipe ``null``: matrices that learned nothing, at the posts' own sizes: post 1, figures 1-4; post 2, figure 1."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from scipy import stats

from rmtbase import laws
from rmtbase.drawing.null_curves import null_spectrum
from rmtbase.drawing.theme import LIGHT
from rmtbase.ensembles import Ensemble, gaussian_matrix, low_rank_product
from rmtbase.laws import GaussianChain, naive_marchenko_pastur, product_element
from rmtbase.montecarlo import baseline, draw_spectra, element_baseline
from studies.sources.drawing import canvas, legend_below, looks, styled, titled
from studies.sources.recipe import Figure, Null, Result, Row, Run
from studies.sources.verdicts import Claim, Finding, Kind, Verdict, corrected, decide, decided, unresolved, within

COVERS = {
    "post 1, figure 1": "done",
    "post 1, figure 2": "done",
    "post 1, figure 3": "done",
    "post 1, figure 4": "done",
    "post 2, figure 1": "done",
}
D_MODEL, D_HEAD = 1000, 500
SIGMAS = (0.5, 1.0, 2.0)
RANKS = (100, 250, 500, 750, 1000)
ELEMENT_RANKS = (10, 25, 50, 100, 200, 500, 1000)
GPT2 = (768, 64)
DRAWS = {"square": (3, 20), "product": (10, 100), "ranks": (4, 20), "elements": (2, 10), "gpt2": (1000, 10_000)}
"""Of each simulation: quick, and else; ranks below d are drawn d/h times as often, so that each has as many values."""
BAND = (0.025, 0.5, 0.975)
BINS = 40


@dataclass(frozen=True)
class Case:
    """Kind of random matrix, simulated at σ = 1 and scaled, with its laws.

    Attributes:
        label: label in the legend.
        singular_values: of every draw, descending: (draw, rank).
        elements: its row of a table of elements, at σ = 1.
        law: law of its nonzero eigenvalues λ.
        element_law: law of one element.
        scale: factor by which elements are larger than in the table of elements.
    """

    label: str
    singular_values: np.ndarray
    elements: xr.Dataset
    law: GaussianChain
    element_law: Any
    scale: float = 1.0

    def ordered(self) -> np.ndarray:
        """Quantiles of each index at 2.5 %, 50 % and 97.5 % of the draws: (3, rank)."""
        return np.quantile(self.singular_values, BAND, axis=0)

    def distance(self) -> float:
        """Largest distance of the median spectrum's distribution from the law's; it is the same on λ and on s."""
        median = self.ordered()[1]
        expected = 1.0 - (np.arange(median.size) + 0.5) / median.size
        return float(np.abs(self.law.cdf(median**2) - expected).max())


def make(run: Run) -> Result:
    draws = {name: both[0] if run.quick else both[1] for name, both in DRAWS.items()}
    of_rank = {h: -(-draws["ranks"] * D_MODEL // h) for h in RANKS}
    ranks = {h: _singular_values(low_rank_product(D_MODEL, h), of_rank[h]) / np.sqrt(D_MODEL) for h in RANKS}
    half = _singular_values(low_rank_product(D_MODEL, D_HEAD), draws["product"]) / np.sqrt(D_MODEL)
    square = _singular_values(gaussian_matrix(D_MODEL, D_MODEL), draws["square"])
    elements = element_baseline(
        [gaussian_matrix(D_MODEL, D_MODEL, method="dense"), *((D_MODEL, h) for h in sorted({*RANKS, *ELEMENT_RANKS}))],
        draws=draws["elements"],
    )
    gpt2 = baseline(*GPT2, draws=draws["gpt2"])
    full = [_full_rank(square, elements.isel(case=0), sigma) for sigma in SIGMAS]
    scaled = [_product(half, _of_rank(elements, D_HEAD), D_HEAD, sigma) for sigma in SIGMAS]
    products = [_product(ranks[h], _of_rank(elements, h), h, label=f"$h = {h}$") for h in RANKS]
    figures = (
        Figure(
            "post1-figure-01",
            both_ways(full, D_MODEL, "W"),
            f"Full-rank matrices, d = {D_MODEL}, elements N(0, σ), {draws['square']} draws. Above as published: the "
            "normal law, the singular values, and their density P(λ), where λ is the post's name for the singular "
            "value s, not for s². Below on the laws (lines): normal, quantiles of Marchenko–Pastur, and its density of "
            "eigenvalues λ = s² per unit of ln λ.",
            "post 1, figure 1",
        ),
        Figure(
            "post1-figure-02",
            both_ways(scaled, D_MODEL),
            f"W_QK/√d at d = {D_MODEL}, h = {D_HEAD}, σ of both factors, {draws['product']} draws. {_BOTH}",
            "post 1, figure 2",
        ),
        Figure(
            "post1-figure-03",
            both_ways(products, D_MODEL),
            f"W_QK/√d at d = {D_MODEL}, σ = 1, several h, {min(of_rank.values())} to {max(of_rank.values())} draws, so "
            f"that each has at least {draws['ranks'] * D_MODEL} values. {_BOTH}",
            "post 1, figure 3",
        ),
        Figure(
            "post1-figure-04",
            properties(elements),
            f"Elements of W_QK/√d at d = {D_MODEL}, σ = 1, against h. Right: D_KL as a histogram of 120 bins reads it "
            "(points), its own bias (dotted), and the law's exact divergence (dashed).",
            "post 1, figure 4",
        ),
        Figure(
            "post2-figure-01",
            gpt2_spectrum(gpt2, draws["gpt2"]),
            f"Eigenvalues of W_QK/√d at (768, 64), σ = 1, {draws['gpt2']} draws; below: the smallest modes and the "
            "upper edge. The post does not give its moment method. Here: the Marchenko–Pastur law of the product's "
            "mean and variance, and the same times the polynomial that gives it the product's first four moments. Both "
            "come near the edges of the free product, which is the whole law, and miss them; eigenvalues beyond its "
            "edges are those of finite heads.",
            "post 2, figure 1",
        ),
    )
    rows = [*_rows_of_square(full[1]), *_rows_of_products(scaled[1], products), *_rows_of_elements(elements)]
    return Result(figures, (*rows, *_rows_of_gpt2(gpt2)))


_BOTH = (
    "Above as published: the normal law of the elements, all d singular values, of which d − h are zero, and their "
    "density P(λ), where λ is the post's name for the singular value s, not for s²; bars left of 0 are shares of "
    "zeros, and dotted lines and triangles are the post's λ±, the edges of one factor. Below corrected: the exact law "
    "of an element, and the free product's spectrum of the h values that are not zero, of eigenvalues λ = s²."
)


def both_ways(cases: Sequence[Case], d_model: int, matrix: str = "W_{QK}") -> Drawing:
    """Elements, singular values and spectral density: as post 1 has them, and with the laws of what is not zero."""
    figure, grid = canvas(2, 3, 11.0, 3.2)
    _panels(grid[1], cases, matrix)
    _as_published(grid[0], cases, d_model, matrix)
    grid[1, 1].set_xlim(grid[0, 1].get_xlim())
    above = ("as published: elements", "all singular values", "density of the singular values")
    below = ("corrected: elements", "singular values that are not zero, 95 % and law", "density of the eigenvalues")
    if matrix == "W":
        below = ("elements and law", "singular values, 95 % and law", "density of the eigenvalues")
    for ax, words in zip(grid.flat, above + below, strict=True):
        ax.set_title(words, fontsize=10.5)
    legend_below(figure, [grid[0, 0]])
    return figure


def _as_published(axes: Sequence[Axes], cases: Sequence[Case], d_model: int, matrix: str) -> None:
    """Draw all d singular values with their zeros, their density, the normal law, and the published edges."""
    left, middle, right = axes
    highest = float(np.sqrt(max(case.law.support[1] for case in cases)))
    edges = np.linspace(0.0, 1.1 * highest, 111)
    zeros, peak = [], 0.0
    for case, look in zip(cases, looks(len(cases)), strict=True):
        _elements(left, case, look["color"])
        rank, sigma = case.singular_values.shape[1], float(case.element_law.std())
        x = np.linspace(-4.0 * sigma, 4.0 * sigma, 401)
        line = {"color": look["color"], "ls": look["style"], "lw": 1.4}
        left.plot(x, stats.norm(scale=sigma).pdf(x), label=case.label, **line)
        every = np.concatenate([case.ordered()[1], np.zeros(d_model - rank)])
        middle.plot(np.arange(1, d_model + 1), every, **line)
        share = rank / d_model
        density = np.histogram(case.singular_values, edges, density=True)[0] * share
        right.stairs(density, edges, color=look["color"], ls=look["style"], lw=1.2)
        peak = max(peak, float(density.max()))
        zeros.append(1.0 - share)
        if matrix != "W":
            published = [edge * case.scale for edge in published_edges(d_model, rank)]
            middle.plot([rank, 1], published, "<", color=look["color"], mec=LIGHT.surface, ms=8, zorder=4)
            for edge in published:
                right.axvline(edge, color=look["color"], ls=":", lw=0.8)
    _reach(left, cases)
    middle.set_ylim(bottom=0.0)
    right.set_ylim(0.0, 1.15 * peak)
    right.set_xlim(-0.02 * highest, 1.1 * highest)
    _bars_of_zeros(right, zeros)
    over = r"/\sqrt{d}" if matrix != "W" else ""
    titled(left, "", rf"element $w$ of ${matrix}{over}$", "$P(w)$")
    titled(middle, "", "index $k$", r"singular value $s_k$ (the post's $\lambda$)")
    titled(right, "", r"$\lambda$, in the post the singular value $s$", r"$P(\lambda)$")


def _bars_of_zeros(ax: Axes, shares: Sequence[float]) -> None:
    """Draw the share of values that are zero as bars left of zero, from none to all over the height of the axes."""
    highest, top = ax.get_xlim()[1], ax.get_ylim()[1]
    if not any(shares):
        return
    width = 0.16 * highest / len(shares)
    places = -0.02 * highest - width * (np.arange(len(shares), 0, -1) - 0.5)
    colours = [look["color"] for look in looks(len(shares))]
    ax.bar(places, top * np.array(shares), width=0.8 * width, color=colours)
    ax.axvline(-0.01 * highest, color=LIGHT.muted, lw=0.8)
    ax.set_xlim(-0.19 * highest, highest)
    ax.set_xticks([tick for tick in ax.get_xticks() if 0 <= tick <= highest])
    percent = ", ".join(f"{100 * share:.3g}" for share in dict.fromkeys(shares))
    ax.text(0.2, 0.98, f"bars: {percent} % of the values are 0", transform=ax.transAxes, va="top", fontsize=8.5,
            color=LIGHT.muted, bbox={"facecolor": LIGHT.surface, "edgecolor": "none", "pad": 1.0})  # fmt: skip


def _panels(axes: Sequence[Axes], cases: Sequence[Case], matrix: str) -> None:
    """Draw the elements and the values that are not zero, with their laws."""
    left, middle, right = axes
    for case, look in zip(cases, looks(len(cases)), strict=True):
        line = {"color": look["color"], "ls": look["style"], "lw": 1.4}
        _elements(left, case, look["color"])
        reach = 4.0 * float(case.element_law.std())
        x = np.linspace(-reach, reach, 401)
        left.plot(x, case.element_law.pdf(x), label=case.label, **line)
        low, median, high = case.ordered()
        index = np.arange(1, median.size + 1)
        middle.fill_between(index, low, high, color=look["color"], alpha=0.3, lw=0)
        middle.plot(index, np.sqrt(case.law.ppf(1.0 - (index - 0.5) / index.size)), **line)
        lower, upper = case.law.support
        begin = max(0.7 * lower, 1e-4 * upper)
        edges = np.geomspace(begin, 1.2 * upper, BINS + 1)
        counts, _ = np.histogram(case.singular_values**2, edges)
        share = counts / case.singular_values.size / np.diff(np.log(edges))
        right.stairs(share, edges, fill=True, color=look["color"], alpha=0.25)
        x = np.geomspace(max(lower, begin), upper, 600)
        right.plot(x, np.asarray(case.law.pdf(x)) * x, **line)
    _reach(left, cases)
    middle.set_ylim(bottom=0.0)
    right.set_xscale("log")
    right.set_ylim(bottom=0.0)
    over = r"/\sqrt{d}" if matrix != "W" else ""
    titled(left, "elements", rf"element $w$ of ${matrix}{over}$", "$P(w)$")
    titled(middle, "singular values, 95 % and law", "index $k$", "$s_k$")
    titled(right, "spectral density", r"eigenvalue $\lambda = s^2$", r"density per unit of $\ln\lambda$")


def _elements(ax: Axes, case: Case, colour: Any) -> None:
    edges = case.elements["bin_edge"].values * case.scale
    ax.stairs(case.elements["density"].values / case.scale, edges, fill=True, color=colour, alpha=0.25)


def _reach(ax: Axes, cases: Sequence[Case]) -> None:
    widest = max(float(case.element_law.std()) for case in cases)
    ax.set_xlim(-3.2 * widest, 3.2 * widest)


def properties(elements: xr.Dataset) -> Drawing:
    """Width and entropy, and the divergence from a normal law, against h."""
    figure, ((left, middle, right),) = canvas(1, 3, 12.0, 3.6)
    cases = [_of_rank(elements, h) for h in ELEMENT_RANKS]
    h = np.array(ELEMENT_RANKS, dtype=float)
    grid = np.geomspace(h[0], h[-1], 200)
    simulated = {"color": LIGHT.observed, "marker": "o", "ls": "none", "ms": 5, "label": "simulated"}
    analytic = {"color": LIGHT.free_law, "ls": "--", "lw": 1.4, "label": "law"}
    left.plot(h, [_mean(one, "std") / np.sqrt(D_MODEL) for one in cases], **simulated)
    left.plot(grid, np.sqrt(grid / D_MODEL), **analytic)
    middle.plot(h, [_entropy(one) for one in cases], **simulated)
    middle.plot(grid, 0.5 * np.log(2 * np.pi * np.e * grid / D_MODEL), **analytic)
    right.plot(h, [_mean(one, "histogram_kl") for one in cases], **simulated)
    right.plot(h, [product_element(D_MODEL, int(one)).kl_to_normal() for one in h], **analytic)
    right.plot(h, [_histogram_bias(one) for one in cases], color=LIGHT.null, ls=":", label="bias of the histogram")
    right.axhline(1e-3, color=LIGHT.flagged, lw=0.9, label="published: at most $10^{-3}$")
    for ax in (left, middle, right):
        ax.set_xscale("log")
    left.set_yscale("log")
    right.set_yscale("log")
    titled(left, r"width: $\sqrt{h/d}$", "$h$", r"$\sigma$ of $W_{QK}/\sqrt{d}$")
    titled(middle, r"entropy: $\frac{1}{2}\ln(2\pi e\,h/d)$", "$h$", "$S$ (nats)")
    titled(right, "divergence from a normal law", "$h$", r"$D_{KL}$ (nats)")
    legend_below(figure, [right])
    return figure


def gpt2_spectrum(table: xr.Dataset, draws: int) -> Drawing:
    """Draw the density of the null of GPT-2's heads: whole, its smallest modes, and its upper edge."""
    figure = Drawing(figsize=(11.0, 7.0), layout="constrained", facecolor=LIGHT.surface)
    grid = figure.add_gridspec(2, 2)
    whole, lower, upper = (styled(figure.add_subplot(grid[place])) for place in ((0, slice(None)), (1, 0), (1, 1)))
    law = laws.low_rank_product(d_model=GPT2[0], d_head=GPT2[1])
    by_two, by_four, (first, last) = by_moments(law)
    x = first + (last - first) * 0.5 * (1.0 - np.cos(np.linspace(0.0, np.pi, 400)))
    for ax in (whole, lower, upper):
        null_spectrum(table, ax=ax, legend=False)
        ax.plot(x, by_two(x), color=LIGHT.flagged, ls="-.", lw=1.3, label="moment method: two moments")
        ax.plot(x, by_four(x), color=LIGHT.observed, ls=(0, (1, 1.2)), lw=1.6, label="moment method: four moments")
        ax.set_title("")
    low, high = law.support
    naive = naive_marchenko_pastur(d_model=GPT2[0], d_head=GPT2[1]).support
    lower.set_xlim(whole.get_xlim()[0], naive[0] + 0.03 * (high - low))
    upper.set_xlim(naive[1] - 0.08 * (high - low), whole.get_xlim()[1])
    for ax, words in ((lower, "smallest modes, logarithmic"), (upper, "upper edge, logarithmic")):
        ax.set_yscale("log")
        ax.set_ylim(1e-3 / draws, 2.5e-3 if ax is lower else 5e-4)  # down to one eigenvalue in a bin
        ax.set_title(words, fontsize=10.5)
    whole.set_title(f"all, {draws} draws", fontsize=10.5)
    legend_below(figure, [whole], columns=3)
    return figure


def by_moments(law: GaussianChain) -> tuple[Callable, Callable, tuple[float, float]]:
    """Densities with the first two and the first four moments of a law, and the ends of both.

    The first is the Marchenko–Pastur law m (1 ± √r)² of the same mean m and relative variance r; the second is the
    first times 1 + c₃ p₃ + c₄ p₄, with polynomials p orthonormal in the first. It can be negative, as such expansions
    can.
    """
    mean, ratio = law.moment(1), law.moment(2) / law.moment(1) ** 2 - 1.0
    root = np.sqrt(ratio)

    def two(x: np.ndarray) -> np.ndarray:
        t = (np.asarray(x) / mean - 1.0 - ratio) / (2.0 * root)
        return np.sqrt(np.fmax(1.0 - t**2, 0.0)) / (np.pi * root * np.asarray(x))

    nodes = np.cos(np.pi * (np.arange(400) + 0.5) / 400)  # Gauss–Chebyshev: exact for polynomials times √(1 − t²)
    x = mean * (1.0 + ratio + 2.0 * root * nodes)
    weight = np.pi / 400 * np.sqrt(1.0 - nodes**2) * two(x) * 2.0 * root * mean
    powers = np.stack([(x / mean) ** k for k in range(5)])
    lower = np.linalg.cholesky((powers * weight) @ powers.T)
    expected = np.linalg.solve(lower, [law.moment(k) / mean**k for k in range(5)])  # E[p_k] under the law

    def four(x: np.ndarray) -> np.ndarray:
        basis = np.linalg.solve(lower, np.stack([(np.asarray(x) / mean) ** k for k in range(5)]))
        return two(x) * (expected @ basis)

    return two, four, (mean * (1.0 - root) ** 2, mean * (1.0 + root) ** 2)


def _singular_values(ensemble: Ensemble, draws: int) -> np.ndarray:
    """Singular values of every draw, descending: (draw, rank)."""
    return np.concatenate([chunk.singular_values for chunk in draw_spectra(ensemble, draws, 0)])


def _full_rank(singular_values: np.ndarray, elements: xr.Dataset, sigma: float) -> Case:
    law = GaussianChain(dims=(D_MODEL, D_MODEL), sigmas=(sigma,), normalization="none")
    return Case(rf"$\sigma = {sigma:g}$", sigma * singular_values, elements, law, stats.norm(scale=sigma), sigma)


def _product(singular_values: np.ndarray, elements: xr.Dataset, h: int, sigma: float = 1.0, label: str = "") -> Case:
    """Case of W_QK/√d; the table of elements is that of the raw product."""
    keywords = {"d_model": D_MODEL, "d_head": h, "sigma_q": sigma, "sigma_k": sigma}
    over = elements.assign(
        bin_edge=elements["bin_edge"] / np.sqrt(D_MODEL), density=elements["density"] * np.sqrt(D_MODEL)
    )
    law, element = laws.low_rank_product(**keywords), product_element(**keywords)
    return Case(label or rf"$\sigma = {sigma:g}$", sigma**2 * singular_values, over, law, element, sigma**2)


def _of_rank(elements: xr.Dataset, h: int) -> xr.Dataset:
    return elements.isel(case=int(np.flatnonzero(elements["d_head"].values == h)[0]))


def _mean(table: xr.Dataset, statistic: str) -> float:
    return float(table["mean"].sel(statistic=statistic))


def _entropy(table: xr.Dataset) -> float:
    return _mean(table, "histogram_entropy") - 0.5 * np.log(D_MODEL)


def _histogram_bias(table: xr.Dataset) -> float:
    """(occupied bins - 1)/(2 d²)."""
    return float((np.count_nonzero(table["density"].values) - 1) / (2 * D_MODEL**2))


def published_edges(d_model: int, h: int) -> tuple[float, float]:
    """Return √h |1 ± √(d/h)|, which post 1 has for the edges of W_QK at σ = 1."""
    lower, upper = (float(np.sqrt(h) * abs(1.0 + sign * np.sqrt(d_model / h))) for sign in (-1.0, 1.0))
    return lower, upper


MARGIN = 0.01
"""Margin of *is the law's*: a simulated mean within this share of it."""


def _law(observed: float, expected: float, margin: float = MARGIN, error: float = 0.0) -> Claim:
    """Claim that a simulated number is that of a law, up to a share of it, or of one where it is smaller."""
    return within(observed, expected, margin * max(1.0, abs(expected)), error, Kind.LAW)


def nearer(observed: float, published: float, law: float) -> Verdict:
    """Decide on a formula that the law replaces: corrected if the law is within its margin and the formula is not."""
    formula, own = (decide(_edge(observed, value)) for value in (published, law))
    if formula is not Finding.AGREES and own is Finding.AGREES:
        return corrected("errata, 2")
    return decided(_edge(observed, published))


EDGE_MARGIN = 0.1
"""Margin of an edge: of the largest and the smallest value of a finite matrix, as a share of the edge or of one."""


def _edge(observed: float, edge: float) -> Claim:
    return _law(observed, edge, EDGE_MARGIN)


def _rows_of_square(case: Case) -> list[Row]:
    place, distance = "post 1, figure 1", case.distance()
    words = "largest difference of the distribution of singular values from Marchenko–Pastur's, σ = 1"
    reach = np.log(D_MODEL) / D_MODEL
    null = Null(low=0.0, high=reach, of="ln(d)/d, how far eigenvalues stray")
    said = decided(Claim(Kind.LAW, distance, low=0.0, high=reach))
    rows = [Row(place, words, "follows", distance, null, said, one, "the same on both") for one in ("λ", "s")]
    law = laws.null("largest_eigenvalue", dims=(D_MODEL, D_MODEL), normalization="none")
    draws = case.singular_values.shape[0]
    for convention, power in (("s", 1), ("λ", 2)):
        observed = float((case.singular_values[:, 0] ** power).mean())
        mean, sd = law.mean() ** (power / 2), 0.5 * power * law.std() * law.mean() ** (power / 2 - 1)
        edge = (2 * np.sqrt(D_MODEL)) ** power
        said = decided(_law(observed, edge, error=float(sd / np.sqrt(draws))))
        note = f"within {100 * MARGIN:g} %; the law's edge is the limit, not the mean"
        words = f"largest of W, σ = 1, mean of {draws}"
        null = Null(mean, sd, of="one draw")
        rows.append(Row(place, words, f"the law's edge {edge:.5g}", observed, null, said, convention, note))
    return rows


def _rows_of_products(half: Case, products: Sequence[Case]) -> list[Row]:
    median = half.ordered()[1]
    lower, upper = half.law.support
    said = decided(_law(float(median[-1] ** 2 / lower), 1.0, EDGE_MARGIN))
    rows = [
        Row(
            "post 1, figure 2",
            f"the {D_HEAD}th, the last that is not zero, over the largest",
            "sharp cutoff at d_h",
            float((median[-1] / median[0]) ** power),
            Null(float((lower / upper) ** (power / 2)), of="the law's edges"),
            said,
            convention,
            f"the last within {100 * EDGE_MARGIN:g} % of the law's edge; beyond it all are zero",
        )
        for convention, power in (("s", 1), ("λ", 2))
    ]
    for case, h in zip(products, RANKS, strict=True):
        edges = np.sqrt(case.law.support)
        ends = zip(("lower", "upper"), published_edges(D_MODEL, h), edges, case.ordered()[1, [-1, 0]], strict=True)
        for name, published, law, observed in ends:
            said = nearer(observed, published, law)
            note = "" if decide(_edge(law, published)) is Finding.AGREES else "the formula is that of one factor"
            words = f"{name} edge of W_QK/√d, h = {h}, σ = 1"
            rows += [
                Row("post 1, figure 3", words, published**power, observed**power,
                    Null(law**power, of="edge of the free product"), said, convention, note)
                for convention, power in (("s", 1), ("λ", 2))
            ]  # fmt: skip
    return rows


MOST_DIVERGENCE = 1.5e-3
"""What rounds to *at most ~10⁻³*."""


def _rows_of_elements(elements: xr.Dataset) -> list[Row]:
    place, rows = "post 1, figure 4", []
    for h in ELEMENT_RANKS:
        one, law = _of_rank(elements, h), product_element(D_MODEL, h)
        width, entropy = _mean(one, "std") / np.sqrt(D_MODEL), _entropy(one)
        read, exact = _mean(one, "histogram_kl"), law.kl_to_normal()
        claim = Claim(Kind.LAW, exact, high=MOST_DIVERGENCE)
        said = decided(claim) if decide(claim) is Finding.AGREES else corrected("errata, 6")
        rows += [
            _near(place, f"σ of W_QK/√d, h = {h}", np.sqrt(h / D_MODEL), width, 0.01, law.std()),
            _near(
                place, f"entropy, h = {h}", 0.5 * np.log(2 * np.pi * np.e * h / D_MODEL), entropy, 0.02, law.entropy()
            ),
            Row(
                place,
                f"D_KL from a normal law, h = {h}",
                "at most ~10⁻³",
                read,
                Null(exact, of="exact, of the law"),
                said,
                "",
                f"a histogram adds {_histogram_bias(one):.1e}",
            ),
        ]
    return rows


def _near(place: str, quantity: str, published: float, observed: float, margin: float, law: float) -> Row:
    """Compare a formula that holds to a stated share of its value."""
    said, note = decided(_law(float(observed), float(published), margin)), f"within {100 * margin:g} %"
    null = Null(float(law), of="law of one element")
    return Row(place, quantity, float(published), float(observed), null, said, note=note)


def _rows_of_gpt2(table: xr.Dataset) -> list[Row]:
    place, (d_model, h) = "post 2, figure 1", GPT2
    law, naive = laws.low_rank_product(d_model=d_model, d_head=h), naive_marchenko_pastur(d_model=d_model, d_head=h)
    largest = laws.null("largest_eigenvalue", d_model=d_model, d_head=h)
    row = table.isel(case=0)
    beyond = float((row["sample"].sel(statistic="largest_eigenvalue").values > naive.support[1]).mean())
    draws, rows = int(row["draws"]), []
    moments = by_moments(law)[2]
    for convention, power in (("λ", 1.0), ("s", 0.5)):
        of_spectrum = row["sample"].sel(statistic="largest_eigenvalue").values ** power
        mean, sd = largest.mean() ** power, power * largest.std() * largest.mean() ** (power - 1.0)
        error = float(of_spectrum.std(ddof=1) / np.sqrt(of_spectrum.size))
        outside = Claim(Kind.LAW, float(of_spectrum.mean()), low=naive.support[1] ** power, error=error)
        published = f"beyond Marchenko–Pastur's {naive.support[1] ** power:.4g}"
        note = f"the product's own edge is {law.support[1] ** power:.4g}"
        rows += [
            Row(place, f"largest, mean of {draws}", published, float(of_spectrum.mean()), Null(mean, sd, of="one head"),
                decided(outside), convention, note),
            Row(place, "share of heads whose largest is beyond the Marchenko–Pastur edge", None, beyond,
                Null(float(largest.sf(naive.support[1])), of="law"), corrected("errata, 2"), convention,
                "the edge of one factor: to be beyond it says nothing of learning"),
        ]  # fmt: skip
        rows += [
            Row(place, f"{name} edge by a moment method of two moments", words, end**power,
                Null(edge**power, of="edge of the free product"), unresolved(), convention,
                "the post does not give its moment method; this is Marchenko–Pastur's law of the product's mean and "
                "variance")
            for name, words, end, edge in zip(("lower", "upper"), (None, "well-captured"), moments, law.support,
                                              strict=True)
        ]  # fmt: skip
        smallest = laws.null("smallest_eigenvalue", d_model=d_model, d_head=h)
        found = row["sample"].sel(statistic="smallest_eigenvalue").values ** power
        null = Null(smallest.mean() ** power, power * smallest.std() * smallest.mean() ** (power - 1.0), of="one head")
        assert null.mean is not None  # it has one
        error = float(found.std(ddof=1) / np.sqrt(found.size) / null.mean)
        near = within(float(found.mean() / null.mean), 1.0, MARGIN, error, Kind.LAW)
        words, note = f"smallest, mean of {draws}", f"within {100 * MARGIN:g} %; the product's own edge is "
        note += f"{law.support[0] ** power:.4g}"
        rows.append(Row(place, words, None, float(found.mean()), null, decided(near), convention, note))
        for statistic in ("normalized_participation_ratio", "condition_number"):
            name = statistic if convention == "λ" else f"{statistic}_singular"
            null = laws.null(name, d_model=d_model, d_head=h)
            found, error = (float(row[one].sel(statistic=name)) for one in ("mean", "standard_error"))
            said = decided(within(found / null.mean(), 1.0, MARGIN, error / null.mean(), Kind.LAW))
            words = f"{statistic.replace('_', ' ')}, mean of {draws}"
            rows.append(
                Row(place, words, None, found, Null(null.mean(), null.std(), of="one head, law"), said, convention)
            )
    return rows
