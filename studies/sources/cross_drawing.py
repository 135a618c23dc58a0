"""Pictures of several models beside each other, each with its null: post 1, figures 12-19; post 2, figures 12-16."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rmtbase.drawing.theme import LIGHT
from studies.sources.drawing import canvas, legend_below, light_band, log_ticks, looks, name_band, titled
from studies.sources.heads import Heads, Measured

TWO_SIDED = 1.96
"""Standard deviations of a normal law to either side that hold 95 %."""
SYMBOLS = {"W_Q": "$W_Q$", "W_QK": "$W_{QK}$"}
SPECTRAL = {
    "largest_eigenvalue": ("$\\lambda_0$", "$s_0$"),
    "normalized_participation_ratio": ("NPR of $\\lambda$", "NPR of $s$"),
    "spectral_entropy": ("$S_\\lambda$ (nats)", "$S_s$ (nats)"),
    "condition_number": ("$\\kappa$ of $\\lambda$", "$\\kappa$ of $s$"),
}
"""What is drawn by layer, with its symbol on each convention."""


def sigma_by_layer(models: Sequence[Heads], component: str) -> Figure:
    """Draw the median σ of each layer, with bars to the smallest and largest head; for W_QK, σ_Q σ_K √h dashed."""
    figure, ((ax,),) = canvas(1, 1, 8.0, 4.4)
    for model, look in zip(models, looks(len(models)), strict=True):
        sigma = model.sigma(component)
        layer, middle = np.arange(len(sigma)), np.nanmedian(sigma, axis=1)
        ends = np.abs(np.stack([np.nanmin(sigma, axis=1), np.nanmax(sigma, axis=1)]) - middle)
        ax.errorbar(layer, middle, ends, **_line(look), elinewidth=0.7, label=model.label)
        if component == "W_QK":
            ax.plot(layer, np.nanmedian(product_sigma(model), axis=1), color=look["color"], ls="--", lw=1.0)
    if component == "W_QK":
        ax.plot([], [], color=LIGHT.muted, ls="--", lw=1.0, label=r"null: $\sigma_Q\sigma_K\sqrt{h}$")
    ax.set_yscale("log")
    log_ticks(ax.yaxis)
    _layers(ax, models)
    titled(ax, f"width of {SYMBOLS[component]}, median head", "layer", rf"$\sigma$ of {SYMBOLS[component]}")
    legend_below(figure, [ax])
    return figure


def product_sigma(model: Heads) -> np.ndarray:
    """σ_Q σ_K √h: the σ of W_QK where nothing was learned."""
    return model.sigma("W_Q") * model.sigma("W_K") * np.sqrt(model.d_head)


def against_sigma(
    models: Sequence[Heads],
    value: Callable[[Heads, str], np.ndarray],
    ylabel: str,
    curve: Callable[[np.ndarray], np.ndarray] | None = None,
    product: Callable[[np.ndarray], np.ndarray] | None = None,
    null: Callable[[Heads, str], Measured] | None = None,
    scale: str = "linear",
    threshold: float = 1e-3,
) -> Figure:
    """Draw a statistic of the elements of every head against their σ, for W_Q and W_QK, on one axis of the statistic.

    Args:
        models: whose heads.
        value: the statistic, (layer, head).
        ylabel: its name.
        curve: what it is of a normal law of that σ.
        product: what it is of an element of a random product of that σ, drawn beside W_QK.
        null: the same statistic with its null, drawn as a band of 95 % of one head.
        scale: of the statistic.
        threshold: below which a symmetric logarithmic scale is linear.
    """
    figure, (axes,) = canvas(1, 2, 11.0, 4.2, sharey=True)
    for ax, component in zip(axes, SYMBOLS, strict=True):
        for model, look in zip(models, looks(len(models)), strict=True):
            sigma = model.sigma(component).ravel()
            ax.plot(sigma, value(model, component).ravel(), **_dots(look), label=model.label)
            if null is not None:
                _band_along(ax, sigma, null(model, component), look["color"])
        left, right = _reach(models, component)
        x = np.geomspace(left, right, 200)
        if curve is not None:
            ax.plot(x, curve(x), color=LIGHT.text, lw=1.0, zorder=1, label="normal law")
        if product is not None and component == "W_QK":
            ax.plot(x, product(x), color=LIGHT.flagged, ls="--", lw=1.2, zorder=2, label="random product (768, 64)")
        ax.set_xscale("log")
        ax.set_xlim(left, right)
        log_ticks(ax.xaxis)
        titled(ax, SYMBOLS[component], rf"$\sigma$ of {SYMBOLS[component]}", ylabel if component == "W_Q" else "")
    if scale == "symlog":
        axes[0].set_yscale("symlog", linthresh=threshold)
    elif scale != "linear":
        axes[0].set_yscale(scale)
    if null is not None:
        name_band(axes[0], "null, 95 % of heads of each model")
    legend_below(figure, axes)
    return figure


def fit_against_sigma(models: Sequence[Heads]) -> Figure:
    """σ of the core against σ, and what is left of its square; each with its null's mean."""
    figure, axes = canvas(2, 2, 11.0, 3.5, sharex="col")
    for column, component in enumerate(SYMBOLS):
        above, below = axes[:, column]
        left, right = _reach(models, component)
        above.plot([left, right], [left, right], color=LIGHT.text, lw=1.0, label=r"$\sigma_{fit} = \sigma$")
        for model, look in zip(models, looks(len(models)), strict=True):
            sigma, core = model.sigma(component).ravel(), model.element(component, "core_sigma")
            ratio = core.value.ravel()
            above.plot(sigma, ratio * sigma, **_dots(look), label=model.label)
            below.plot(sigma, ratio**2 - 1.0, **_dots(look))
            squares = Measured(core.value, core.mean**2 - 1.0, 2.0 * core.mean * core.sd)
            _band_along(below, sigma, squares, look["color"])
        above.set(xscale="log", yscale="log", xlim=(left, right), ylim=(left, right))
        log_ticks(above.xaxis)
        log_ticks(above.yaxis)
        below.axhline(0.0, color=LIGHT.text, lw=1.0)
        titled(above, SYMBOLS[component], "", r"$\sigma_{fit}$ of the core")
        titled(below, "", rf"$\sigma$ of {SYMBOLS[component]}", r"$\sigma_{fit}^2/\sigma^2 - 1$")
    ends = np.array([below.get_ylim() for below in axes[1]])
    for below in axes[1]:
        below.set_ylim(ends[:, 0].min(), ends[:, 1].max())
    name_band(axes[0, 0], "null, 95 % of heads of each model")
    legend_below(figure, [axes[0, 0]])
    return figure


def eigenvalue_statistics(models: Sequence[Heads]) -> Figure:
    """Post 2's figure 12 on both conventions: the first row of λ, the second of s."""
    figure, axes = canvas(2, 4, 13.0, 3.2, sharex=True)
    names = (
        (r"$\lambda_0$", r"$\Sigma\lambda$", r"$\Sigma\lambda^2$", r"$S_\lambda$ (nats)"),
        ("$s_0$", r"$\Sigma s$", r"$\Sigma s^2 = \Vert W_{QK}\Vert_F^2$", "$S_s$ (nats)"),
    )
    for row, (power, labels) in enumerate(zip((1.0, 0.5), names, strict=True)):
        for model, look in zip(models, looks(len(models)), strict=True):
            sigma, values = model.sigma("W_QK").ravel(), eigenvalue_sums(model, power)
            for ax, value in zip(axes[row], values, strict=True):
                ax.plot(sigma, value.ravel(), **_dots(look), label=model.label)
            order, trace = np.argsort(sigma), model.spectral("trace")
            largest = model.spectral("largest_eigenvalue").mean / trace.mean * trace.value
            ratio, entropy = (
                by_convention(model, one, power != 1.0).mean for one in ("participation_ratio", "spectral_entropy")
            )
            second = trace.value**2 / ratio if power == 1.0 else np.sqrt(trace.value * ratio)  # Σλ², or Σs
            places = [0, 2 if power == 1.0 else 1, 3]  # the sum that is left is Σλ = Σs² itself
            for ax, null in zip(axes[row, places], (largest**power, second, entropy), strict=True):
                ax.plot(sigma[order], null.ravel()[order], color=look["color"], ls="--", lw=0.9)
        for ax, label in zip(axes[row], labels, strict=True):
            ax.set_xscale("log")
            ax.set_xlim(*_reach(models, "W_QK"))
            log_ticks(ax.xaxis)
            titled(ax, "", r"$\sigma$ of $W_{QK}$" if row else "", label)
        for ax in axes[row, :3]:
            ax.set_yscale("log")
            log_ticks(ax.yaxis)
        axes[row, 3].set_ylim(bottom=0.0)
    axes[0, 0].plot([], [], color=LIGHT.muted, ls="--", lw=0.9, label=r"null of the same $\Sigma\lambda$")
    legend_below(figure, [axes[0, 0]])
    return figure


def eigenvalue_sums(model: Heads, power: float) -> tuple[np.ndarray, ...]:
    """Largest, Σx, Σx² and entropy of x = λ^power of each head."""
    x = np.nan_to_num(model.eigenvalues) ** power
    total = x.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = x / total[..., None]
        entropy = -np.where(share > 0, share * np.log(share), 0.0).sum(axis=-1)
    return x.max(axis=-1), total, (x**2).sum(axis=-1), entropy


def statistic_by_layer(models: Sequence[Heads], statistic: str) -> Figure:
    """Draw the mean over the heads of each layer, on λ and on s, with the null's 95 % interval of that mean."""
    share = statistic in ("normalized_participation_ratio", "spectral_entropy")
    figure, (axes,) = canvas(1, 2, 11.0, 4.2, sharey=share)
    for ax, label, singular in zip(axes, SPECTRAL[statistic], (False, True), strict=True):
        for model, look in zip(models, looks(len(models)), strict=True):
            found = by_convention(model, statistic, singular).by_layer()
            layer = np.arange(len(found.value))
            light_band(ax, layer, found.mean - TWO_SIDED * found.sd, found.mean + TWO_SIDED * found.sd)
            ax.plot(layer, found.mean, color=look["color"], ls="--", lw=0.8)
            ax.plot(layer, found.value, **_line(look), label=model.label)
        _layers(ax, models)
        titled(ax, "of λ" if not singular else "of s", "layer", label)
        if statistic in ("largest_eigenvalue", "condition_number"):
            ax.set_yscale("log")
            log_ticks(ax.yaxis)
    if share:
        most = 1.0 if statistic.startswith("normalized") else np.log(max(model.d_head for model in models))
        axes[0].set_ylim(0.0, 1.04 * most)
    name_band(axes[0], "null, 95 % of a layer's mean in each model")
    legend_below(figure, [axes[0]])
    return figure


def by_convention(model: Heads, statistic: str, singular: bool) -> Measured:
    """Return a spectral statistic on λ, or on s: its own variant there, or the root of a largest eigenvalue."""
    if not singular:
        return model.spectral(statistic)
    if statistic != "largest_eigenvalue":
        return model.spectral(f"{statistic}_singular")
    one = model.spectral(statistic)
    return Measured(np.sqrt(one.value), np.sqrt(one.mean), 0.5 * one.sd / np.sqrt(one.mean))


def _line(look: dict[str, Any]) -> dict[str, Any]:
    return {"color": look["color"], "marker": look["marker"], "ls": "-", "ms": 4, "lw": 1.3}  # dashes are nulls


def _dots(look: dict[str, Any]) -> dict[str, Any]:
    return {"color": look["color"], "marker": look["marker"], "ls": "none", "ms": 3.2, "alpha": 0.75, "mew": 0}


def _layers(ax: Axes, models: Sequence[Heads]) -> None:
    most = max(len(model.eigenvalues) for model in models)
    ax.set_xlim(-0.03 * most, most - 1 + 0.03 * most)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _reach(models: Sequence[Heads], component: str) -> tuple[float, float]:
    every = np.concatenate([model.sigma(component).ravel() for model in models])
    every = every[every > 0]  # heads of zeros alone have no place on a logarithmic axis
    return 0.8 * float(np.nanmin(every)), 1.25 * float(np.nanmax(every))


def _band_along(ax: Axes, sigma: np.ndarray, one: Measured, colour: Any) -> None:
    """95 % of the null of one head, over the σ that the model's heads have; constant where heads have one shape."""
    mean, sd = float(np.nanmedian(one.mean)), float(np.nanmedian(one.sd))
    ends = np.array([0.93 * np.nanmin(sigma), 1.07 * np.nanmax(sigma)])
    light_band(ax, ends, mean - TWO_SIDED * sd, mean + TWO_SIDED * sd)
    ax.plot(ends, [mean, mean], color=colour, lw=0.8, zorder=1)
