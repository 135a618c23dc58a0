"""The follow-up's pictures: spectra along training, by layer and by run, and the toy model of the residual stream."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import jax
import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from rmtbase.drawing.theme import LIGHT, Theme
from rmtbase.ensembles import gaussian_matrix, logistic_matrix, residual_path
from rmtbase.laws import ResidualPath, ResidualUpdate, marchenko_pastur
from rmtbase.results.trajectory.figures._animation import animation_of
from studies.sources.drawing import canvas, legend_below, titled
from studies.sources.recipe import Figure
from studies.sources.spectra import COMPONENTS, QKV, WIDEST, Spectrum, edges, independent_density

SOURCE = "follow-up"
NAMES = {QKV: "QKV", "attention_output": "attention output", "mlp_in": "MLP in", "mlp_out": "MLP out"}
DEPTHS = (1, 2, 4, 10, 16, 20, 32)
LOWEST, HIGHEST = 1e-2, 8.0
"""Of the axes of densities: the same in all pictures and frames."""
_WIDEST_TOY = 9.0
_SEED = 0
Spectra = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Course:
    """Singular values along the training of one run.

    Attributes:
        name: of the run.
        steps: of its checkpoints.
        spectra: of each, by ``"LAYER COMPONENT"``.
    """

    name: str
    steps: tuple[int, ...]
    spectra: tuple[Spectra, ...]


def layers_of(spectra: Spectra) -> list[int]:
    """List the layers whose singular values are held."""
    return sorted({int(key.partition(" ")[0]) for key in spectra})


def middle(spectra: Spectra, component: str) -> Spectrum | None:
    """Spectrum of a matrix of the middle layer, ``n_layers // 2`` as in the source."""
    held = spectra.get(f"{len(layers_of(spectra)) // 2} {component}")
    return None if held is None else Spectrum(held)


def independent_edge(rows: int, columns: int) -> float:
    """Largest singular value of independent elements over their root mean square, in the limit."""
    small, large = min(rows, columns), max(rows, columns)
    law = marchenko_pastur(small, large, large**-0.5)
    return float(np.sqrt(law.support[1] / law.mean()))


@lru_cache(maxsize=32)
def references(rows: int, columns: int, draws: int) -> Float[np.ndarray, "2 draw index"]:
    """Singular values over their root mean square of Gaussian and of logistic matrices, simulated.

    Over the root mean square nothing of a fitted location-free law is left but its shape, so that these are the
    source's matrices "of fitted parameters", whatever the weights are.
    """
    found = []
    for ensemble in (gaussian_matrix(rows, columns), logistic_matrix(rows, columns, 1.0)):
        keys = jax.random.split(jax.random.key(_SEED), draws)
        values = [np.linalg.svd(np.asarray(ensemble.sample(key).matrix, dtype=float), compute_uv=False) for key in keys]
        found.append([one / np.sqrt(np.mean(one**2)) for one in values])
    return np.array(found)


def draw_spectrum(
    one: Spectrum,
    ax: Axes,
    theme: Theme = LIGHT,
    other: Spectrum | None = None,
    labels: tuple[str, str] = ("trained", ""),
) -> Axes:
    """Draw the histogram of one matrix, or of two runs', beside simulated references and their law."""
    gaussian, logistic = references(one.rows, one.columns, 4)
    widths = np.diff(edges())
    for values, colour, style, label in (
        (gaussian, theme.null, "-", "Gaussian, simulated"), (logistic, theme.naive, ":", "logistic, simulated"),
    ):  # fmt: skip
        density = np.histogram(values, edges())[0] / (values.size * widths)
        ax.stairs(np.fmax(density, LOWEST / 10), edges(), color=colour, linestyle=style, linewidth=1.1, label=label)
    x = np.linspace(1e-3, WIDEST, 900)
    law = independent_density(one.rows, one.columns, x)
    ax.plot(x, np.where(law > 0, law, np.nan), color=theme.free_law, linestyle="--", linewidth=1.5, label="law of both")
    ax.stairs(np.fmax(one.density(), LOWEST / 10), edges(), baseline=LOWEST / 10, fill=True, facecolor=theme.observed,
              alpha=0.4, linewidth=0, label=labels[0])  # fmt: skip
    if other is not None:
        ax.stairs(np.fmax(other.density(), LOWEST / 10), edges(), color=theme.flagged, linewidth=1.5, label=labels[1])
    ax.set_yscale("log")
    ax.set_xlim(0, WIDEST)
    ax.set_ylim(LOWEST, HIGHEST)
    ax.set_xlabel("singular value / root mean square")
    ax.set_ylabel("density")
    return ax


def _frame(
    one: Spectrum, *, ax: Axes, theme: Theme, other: Spectrum | None = None, labels: tuple[str, str] = ("trained", "")
) -> Axes:
    draw_spectrum(one, ax, theme, other, labels)
    ax.legend(loc="upper right", frameon=False, fontsize=9)
    return ax


def moving(course: Course, quick: bool) -> Iterator[Figure]:
    """Figures 1 to 4: the middle layer's matrices along training, as moving histograms on axes that stay."""
    for number, name in enumerate(COMPONENTS, 1):
        spectra = [middle(one, name) for one in course.spectra]
        known = [one for one in spectra if one is not None]
        if len(known) < len(course.steps):
            continue
        frames = [partial(_frame, one) for one in known]
        rows, columns = known[0].rows, known[0].columns
        caption = (
            f"{NAMES[name]}, {rows} × {columns}, of the middle layer: {course.name}, {len(frames)} checkpoints to "
            f"step {course.steps[-1]}. Singular values over their root mean square; simulated Gaussian and logistic "
            "matrices of the same shape, of one law (dashed; errata, 9). Axes are the same in all frames and figures."
        )
        title = f"{course.name}: {NAMES[name]}"
        yield Figure(
            f"followup-figure-{number}",
            animation_of(course.steps, frames, title),
            caption,
            f"{SOURCE}, figure {number}",
        )


def two_moving(first: Course, second: Course) -> Figure:
    """Figure 7: QKV of two runs of one recipe, moving together."""
    steps = [step for step in first.steps if step in second.steps]
    frames = []
    for step in steps:
        both = [middle(course.spectra[course.steps.index(step)], QKV) for course in (first, second)]
        if both[0] is not None and both[1] is not None:
            frames.append(partial(_frame, both[0], other=both[1], labels=(first.name, second.name)))
    caption = (
        f"QKV of the middle layer of {first.name} (filled) and {second.name} (line), at {len(frames)} common steps, "
        "beside untrained matrices. No two of them share initial weights or batches."
    )
    return Figure(
        "followup-figure-7",
        animation_of(steps, frames, f"{first.name}, {second.name}: QKV"),
        caption,
        f"{SOURCE}, figure 7",
    )


def label_singular_values(axes: Iterable[Axes]) -> None:
    """Name what the lowest panels of a grid have along them."""
    for ax in axes:
        ax.set_xlabel("singular value / rms", fontsize=9)


def checkpoints(shown: Mapping[str, Spectra]) -> Figure:
    """Figures 1 to 4 as stills: four matrices at each checkpoint."""
    figure, grid = canvas(len(COMPONENTS), len(shown), width=11.0, height=2.2, sharex=True, sharey=True)
    for row, name in zip(grid, COMPONENTS, strict=True):
        for ax, (step, spectra) in zip(row, shown.items(), strict=True):
            one = middle(spectra, name)
            if one is None:
                ax.set_axis_off()
                continue
            draw_spectrum(one, ax)
            titled(ax, f"{NAMES[name]}, {step}", "", "density" if ax is row[0] else "")
    label_singular_values(grid[-1])
    legend_below(figure, [grid[0, 0]], 4)
    caption = (
        "The middle layer's four matrices at each checkpoint: singular values over their root mean square, simulated "
        "Gaussian and logistic matrices of the same shape, and the law of both."
    )
    return Figure("followup-figures-1-to-4", figure, caption, f"{SOURCE}, figure 1")


def toy_model(quick: bool) -> Figure:
    """Figure 5: the toy model at several depths, simulated, with the laws of P and of P − I."""
    width, draws = (128, 64) if quick else (512, 16)
    figure, grid = canvas(2, 4, width=11.0, height=2.7, sharex=True, sharey=True)
    bins = np.linspace(0.0, _WIDEST_TOY, 61)
    x = np.geomspace(1e-3, _WIDEST_TOY, 900)
    for ax, depth in zip(grid.flat, DEPTHS, strict=False):
        keys = jax.random.split(jax.random.key(depth), draws)
        ensemble = residual_path(width, depth, 1.0)
        values = [np.linalg.svd(np.asarray(ensemble.sample(key).matrix, dtype=float), compute_uv=False) for key in keys]
        scaled = np.concatenate([one / np.sqrt(np.mean(one**2)) for one in values])
        density = np.histogram(scaled, bins)[0] / (scaled.size * np.diff(bins))
        ax.stairs(np.fmax(density, 1e-4), bins, baseline=1e-4, fill=True, facecolor=LIGHT.null, alpha=0.45, linewidth=0,
                  label="simulated P")  # fmt: skip
        path = ResidualPath(depth, 1.0)
        unit = float(np.sqrt(path.mean()))
        ax.plot(x, unit * path.pdf_singular_values(unit * x), color=LIGHT.text, linewidth=1.3, label="law of P")
        if depth <= 16:
            update = ResidualUpdate(depth, 1.0)
            own = float(np.sqrt(update.mean()))
            ax.plot(
                x,
                own * update.pdf_singular_values(own * x),
                color=LIGHT.naive,
                linestyle="--",
                linewidth=1.2,
                label="law of P − I",
            )
        circle = np.linspace(0.0, 2.0, 300)[:-1]
        ax.plot(
            circle,
            np.sqrt(4 - circle**2) / np.pi,
            color=LIGHT.free_law,
            linestyle=":",
            linewidth=1.4,
            label="Gaussian matrix: law",
        )
        edge = float(np.sqrt(path.support[1])) / unit
        ax.axvline(edge, color=LIGHT.flagged, linewidth=0.9, label="where the law ends")
        titled(ax, f"depth {depth}, edge {edge:.2f}", "", "")
        ax.set_yscale("log")
        ax.set_ylim(3e-3, 30.0)
        ax.set_xlim(0, _WIDEST_TOY)
    grid.flat[-1].set_axis_off()
    label_singular_values((*grid[-1, :3], grid[0, -1]))
    for ax in grid[:, 0]:
        ax.set_ylabel("density", fontsize=9)
    legend_below(figure, [grid[0, 0]], 5)
    caption = (
        f"P = Π (I + G/√d) at σ = 1, d = {width}, {draws} draws, on one pair of axes. At depth 1 it is P − I that is "
        "the quarter circle, not P (errata, 10). The tail ends at every depth (errata, 11). The law of P − I is drawn "
        "to depth 16, where it is that of P to the eye."
    )
    return Figure("followup-figure-5", figure, caption, f"{SOURCE}, figure 5")


def by_layer(spectra: Spectra) -> Figure:
    """Figure 6: the spectrum of each matrix, layer by layer."""
    figure, grid = canvas(2, 2, width=10.0, height=3.0, sharex=True, sharey=True)
    layers = layers_of(spectra)
    colours = mpl.colormaps["viridis"](np.linspace(0.05, 0.85, len(layers)))
    x = np.linspace(1e-3, WIDEST, 900)
    middles = 0.5 * (edges()[1:] + edges()[:-1])
    for ax, name in zip(grid.flat, COMPONENTS, strict=True):
        held = [spectra.get(f"{layer} {name}") for layer in layers]
        for k, (layer, values) in enumerate(zip(layers, held, strict=True)):
            if values is None:
                continue
            one = Spectrum(values)
            named = len(layers) <= 8 or layer in (layers[0], layers[-1])
            density = one.density()
            ax.plot(middles, np.where(density > 0, density, np.nan), color=colours[k], linewidth=1.0,
                    marker="os^D"[k % 4], markersize=3, label=f"layer {layer}" if named else "")  # fmt: skip
        first = next((Spectrum(values) for values in held if values is not None), None)
        if first is not None:
            law = independent_density(first.rows, first.columns, x)
            ax.plot(
                x,
                np.where(law > 0, law, np.nan),
                color=LIGHT.free_law,
                linestyle="--",
                linewidth=1.5,
                label="independent elements",
            )
        titled(ax, NAMES[name], "", "density" if ax in grid[:, 0] else "")
        ax.set_yscale("log")
        ax.set_ylim(LOWEST, HIGHEST)
        ax.set_xlim(0, WIDEST)
    label_singular_values(grid[-1])
    legend_below(figure, [grid[0, 0]], 6)
    caption = (
        "Every layer's matrices at the last checkpoint. The source's idea, that later layers have less depth to go and "
        "are more Gaussian, asks the outputs (attention output, MLP out) to come nearer to the dashed law with depth."
    )
    return Figure("followup-figure-6", figure, caption, f"{SOURCE}, figure 6")


def norms(runs: Sequence[Course]) -> Iterator[Figure]:
    """Figures 8 to 10: norms of QKV, MLP in and MLP out by block along training, of two runs."""
    for number, name in ((8, QKV), (9, "mlp_in"), (10, "mlp_out")):
        figure, (row,) = canvas(1, 2, width=10.0, height=3.4, sharex=True, sharey=True)
        layers = layers_of(runs[0].spectra[0])
        colours = mpl.colormaps["viridis"](np.linspace(0.05, 0.85, len(layers)))
        for ax, course in zip(row, runs[:2], strict=True):
            start = []
            for k, layer in enumerate(layers):
                held = [one[f"{layer} {name}"] for one in course.spectra]
                norm = np.array([np.linalg.norm(values[2:]) for values in held])
                start.append(norm[0])
                named = len(layers) <= 8 or layer in (layers[0], layers[-1])
                ax.plot(course.steps, norm, color=colours[k], marker="os^D"[k % 4], markersize=3, linewidth=1.2,
                        label=f"block {layer}" if named else "")  # fmt: skip
            ax.axhline(float(np.mean(start)), color=LIGHT.null, linestyle="--", linewidth=1.1, label="untrained")
            early = min((step for step in course.steps if step > 0), default=1)
            ax.set_xscale("symlog", linthresh=early, linscale=0.4)
            ticks = [0, *(10.0**power for power in range(7) if early <= 10.0**power <= course.steps[-1])]
            ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            ax.set_xlim(-0.1 * early, 1.08 * course.steps[-1])
            ax.minorticks_off()
            titled(ax, course.name, "step", "Frobenius norm" if ax is row[0] else "")
        legend_below(figure, [row[0]], 6)
        caption = (
            f"{NAMES[name]}: norm of each block along training in two runs, against the logarithm of the step; dashed, "
            "where untrained weights stay."
        )
        yield Figure(f"followup-figure-{number}", figure, caption, f"{SOURCE}, figure {number}")
