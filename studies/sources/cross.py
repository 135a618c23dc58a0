"""Recipe ``cross``: models beside each other: post 1, figures 12-15 and 18-20; post 2, figures 12-16."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure as Drawing

from studies.sources.corner import LLAMA, MISTRAL, SAID, moment_corner
from studies.sources.cross_drawing import (
    SPECTRAL,
    TWO_SIDED,
    against_sigma,
    eigenvalue_statistics,
    fit_against_sigma,
    sigma_by_layer,
    statistic_by_layer,
)
from studies.sources.cross_rows import DIVERGENCE, RESIDUAL, rows
from studies.sources.heads import Heads, heads_of
from studies.sources.post1 import OF_ALL, OF_TWO
from studies.sources.post2 import GPT2
from studies.sources.recipe import Figure, Result, Row, Run
from studies.sources.statements import entropy_of_product

COVERS = {
    **{f"post 1, figure {number}": OF_ALL for number in (12, 13, 14, 15, 18, 19)},
    "post 1, figure 20": OF_TWO,
    **{f"post 2, figure {number}": OF_ALL._replace(by="set:post2") for number in (13, 14, 15, 16)},
    "post 2, figure 12": GPT2,
}
MOST_CORNERS = 5
"""Models that are drawn in figure 20, of which the post has two."""


def make(run: Run) -> Result:
    models = heads_of(run)
    of_all = f" Of {_named(models)}."
    return Result(
        tuple(
            Figure(name, figure, caption + of_all * (name != "post1-figure-20"), place)
            for name, figure, caption, place in _figures(models)
        ),
        tuple(rows(run, models)),
    )


def _named(models: Sequence[Heads]) -> str:
    return ", ".join(model.label for model in models)


def _corners(models: Sequence[Heads]) -> tuple[Drawing, str]:
    """Draw the moments of post 1's two models if they are there, else of the first models, as many as can be seen."""
    both = [model for model in models if model.label in (LLAMA, MISTRAL)]
    some = both if len(both) == 2 else list(models[:MOST_CORNERS])
    of = _named(some) + (f", {len(some)} of {len(models)} models" if len(some) < len(models) else "")
    colours = " The colours are those of the post." if len(both) == 2 else ""
    caption = f"First four moments of the elements of W_QK of every head. {SAID}{colours} Of {of}."
    return moment_corner(some), caption


def _figures(models: Sequence[Heads]):
    yield (
        "post1-figure-12",
        sigma_by_layer(models, "W_Q"),
        "σ of W_Q by layer: the median head, bars to the smallest and largest. A null has no σ of its own: heads of "
        f"one σ would differ by {100 * TWO_SIDED / np.sqrt(2 * models[0].numbers('W_Q')):.1g} % (95 %).",
        "post 1, figure 12",
    )
    yield (
        "post1-figure-13",
        sigma_by_layer(models, "W_QK"),
        "σ of W_QK by layer; dashed: σ_Q σ_K √h, which it is where nothing was learned.",
        "post 1, figure 13",
    )
    yield (
        "post1-figure-14",
        against_sigma(
            models,
            entropy,
            "$S$ (nats)",
            curve=lambda x: 0.5 * np.log(2 * np.pi * np.e * x**2),
            product=entropy_of_product,
        ),
        "Entropy of the elements of every head against their σ; the curve is that of a normal law, dashed that of a "
        "random product at (768, 64), as the post has it: 1.7·10⁻⁴ nats below.",
        "post 1, figure 14",
    )
    yield (
        "post1-figure-15",
        against_sigma(
            models,
            lambda model, component: model.element(component, RESIDUAL).value,
            r"$\Delta S$ by kernel density (nats)",
            null=lambda model, component: model.element(component, RESIDUAL),
            scale="symlog",
            threshold=1e-2,
        ),
        "Entropy residual of every head, estimated as the post does, by kernel density, whose bias the null has too.",
        "post 1, figure 15",
    )
    yield (
        "post1-figure-18",
        fit_against_sigma(models),
        "σ of a normal law fitted to the core against σ, and σ_fit²/σ² - 1. By maximum likelihood they are equal for "
        "any law; that of the core is smaller where tails are heavier than normal.",
        "post 1, figure 18",
    )
    yield (
        "post1-figure-19",
        against_sigma(
            models,
            lambda model, component: model.element(component, DIVERGENCE).value,
            r"$D_{KL}(P \Vert N(0, \sigma))$ (nats)",
            null=lambda model, component: model.element(component, DIVERGENCE),
            scale="symlog",
        ),
        "Divergence of the elements of every head from a normal law of their own σ.",
        "post 1, figure 19",
    )
    yield "post1-figure-20", *_corners(models), "post 1, figure 20"
    yield (
        "post2-figure-12",
        eigenvalue_statistics(models),
        "Eigenvalue statistics of every head against the σ of W_QK: above of λ = s², below of s. The post's exponents, "
        "1, 1 and 2, are those of s; Σs² is an identity.",
        "post 2, figure 12",
    )
    words = {13: "Leading eigenvalue", 14: "NPR", 15: "Spectral entropy", 16: "Condition number"}
    for number, statistic in zip(words, SPECTRAL, strict=True):
        yield (
            f"post2-figure-{number}",
            statistic_by_layer(models, statistic),
            f"{words[number]}, mean over the heads of a layer, of λ and of s, each on its own null.",
            f"post 2, figure {number}",
        )


def entropy(model: Heads, component: str) -> np.ndarray:
    """S = ½ ln(2πeσ²) + ΔS of every head."""
    residual = model.element(component, RESIDUAL).value
    return 0.5 * np.log(2 * np.pi * np.e * model.sigma(component) ** 2) + residual


def rows_of(run: Run) -> list[Row]:
    """Every statement about values, of the run's models."""
    return rows(run, heads_of(run))
