"""Recipe ``cross``: models beside each other: post 1, figures 12-15 and 18-20; post 2, figures 12-16."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure as Drawing

from rmtbase.models import known_models
from studies.sources.corner import LLAMA, MISTRAL, SAID, moment_corner
from studies.sources.cross_drawing import (
    SPECTRAL,
    TWO_SIDED,
    against_sigma,
    by_convention,
    eigenvalue_statistics,
    eigenvalue_sums,
    fit_against_sigma,
    product_sigma,
    sigma_by_layer,
    statistic_by_layer,
)
from studies.sources.heads import Heads, Measured, heads_of
from studies.sources.post1 import OF_ALL, OF_TWO, PUBLISHED_TABLE
from studies.sources.post2 import GPT2
from studies.sources.recipe import Figure, Null, Result, Row, Run
from studies.sources.statements import entropy_of_product, exponent, here, of_many

SOURCE_MODELS = OF_ALL.named
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
        tuple(_rows(models)),
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


RESIDUAL, DIVERGENCE = "kde_entropy_residual", "kl_matched_normal"


def entropy(model: Heads, component: str) -> np.ndarray:
    """S = ½ ln(2πeσ²) + ΔS of every head."""
    residual = model.element(component, RESIDUAL).value
    return 0.5 * np.log(2 * np.pi * np.e * model.sigma(component) ** 2) + residual


def _rows(models: Sequence[Heads]) -> list[Row]:
    return [
        *_anomaly(models),
        *(row for model in models for row in _of_elements(model)),
        *_exponents(models),
        *(row for model in models for row in _of_spectra(model)),
    ]


def _anomaly(models: Sequence[Heads]) -> list[Row]:
    """Compare LLaMA's σ with Mistral's by their ratio."""
    by_name = {model.label: model for model in models}
    there = LLAMA in by_name and MISTRAL in by_name
    rows = []
    for place, component, published, low, high in (
        ("post 1, figure 12", "W_Q", "5-10, near √(d/d_h) = 5.66", 5.0, 10.0),
        ("post 1, figure 13", "W_QK", "amplified: quadratic in σ", 25.0, 100.0),
    ):
        words = f"median σ of {component}, LLaMA 3.1 8B over Mistral 7B v0.3"
        if not there:
            rows.append(Row(place, words, published, None, None, f"needs {LLAMA} and {MISTRAL}"))
            continue
        ratio = float(np.nanmedian(by_name[LLAMA].sigma(component)) / np.nanmedian(by_name[MISTRAL].sigma(component)))
        verdict = "agrees" if low <= ratio <= high else "differs"
        rows.append(Row(place, words, published, ratio, Null(1.0, of="one initialisation"), verdict))
    return rows


def _of_elements(model: Heads) -> list[Row]:
    """Check the post's statements about all models for each model: medians over heads, beside the null of one head."""
    rows = []
    for component in ("W_Q", "W_QK"):
        share = float(np.nanmedian(product_sigma(model) / model.sigma("W_QK"))) if component == "W_QK" else None
        if share is not None:
            words = f"{model.label}: σ_Q σ_K √h / σ of W_QK, median head"
            null = Null(1.0, low=0.9, high=1.1, of="independent factors, within 10 %")
            rows.append(Row("post 1, figure 13", words, "σ_QK ∝ σ²", share, null, _said(model, abs(share - 1.0) < 0.1)))
        rows += [
            _narrower("post 1, figure 15", model, component, RESIDUAL, "ΔS", "negative: sub-Gaussian"),
            _narrower("post 1, figure 18", model, component, "core_sigma", "σ_fit/σ", "slightly below 1: sub-Gaussian"),
        ]
    return [*rows, _divergences(model)]


def _said(model: Heads, holds: bool) -> str:
    """Decide on a statement about the posts' models, from one of them or from another model."""
    return here(holds) if _is_published(model) else of_many(holds)


def _is_published(model: Heads) -> bool:
    """Return True if the model is one of post 1's table 1."""
    ids = (one.hub_id.lower() for one in known_models() if one.name in PUBLISHED_TABLE)
    return model.label.partition(" ")[0].lower() in {one.rpartition("/")[2] for one in ids}


def _narrower(place: str, model: Heads, component: str, statistic: str, symbol: str, published: str) -> Row:
    """Compare what the post finds below a normal law's with the null, which includes estimator and product."""
    one, kurtosis = model.element(component, statistic), model.element(component, "excess_kurtosis")
    heavy, below = (float(np.nanmedian(each.value - each.mean)) for each in (kurtosis, one))
    words = f"{model.label}: {symbol} of {component}, median head"
    note = f"{_outside(one)}; {below:+.2g} from the null"
    if statistic == RESIDUAL:
        note += ", which has the same bias of the estimate"
    verdict = _said(model, below < 0)
    if _beyond(one) <= 0.1:
        verdict = "open: no more than the null"
    elif below < 0 < heavy:
        verdict, note = "corrected", f"{note}; tails heavier than normal (excess kurtosis {heavy:+.2g} over the null's)"
    return Row(place, words, published, float(np.nanmedian(one.value)), _null(one), verdict, note=note)


def _divergences(model: Heads) -> Row:
    """Compare the divergence of W_QK with those of its factors, each less its null."""
    each = {component: model.element(component, DIVERGENCE) for component in ("W_QK", "W_Q", "W_K")}
    over = {component: float(np.nanmedian(one.value - one.mean)) for component, one in each.items()}
    observed = ", ".join(f"{one:.2g}" for one in over.values())
    words = f"{model.label}: D_KL beyond the null's, median head (nats): W_QK, W_Q, W_K"
    holds = over["W_QK"] > max(over["W_Q"], over["W_K"])
    verdict = _said(model, holds) if _beyond(each["W_QK"]) > 0.1 else "open: no more than the null"
    null = Null(0.0, of="random heads")
    return Row("post 1, figure 19", words, "larger for W_QK", observed, null, verdict, note=_outside(each["W_QK"]))


def _beyond(one: Measured) -> float:
    return float(np.nanmean(np.abs(one.value - one.mean) > TWO_SIDED * one.sd))


def _outside(one: Measured) -> str:
    return f"{100 * _beyond(one):.0f} % of heads outside 95 % of the null"


def _null(one: Measured) -> Null:
    return Null(float(np.nanmedian(one.mean)), float(np.nanmedian(one.sd)), of="one head")


def _exponents(models: Sequence[Heads]) -> list[Row]:
    """Exponents of σ_QK by least squares of logarithms over all heads, on both conventions."""
    sigma = np.concatenate([model.sigma("W_QK").ravel() for model in models])
    published = {0: ("leading eigenvalue", 1.0), 1: ("Σ", 1.0), 2: ("Σ of squares", 2.0)}
    rows = []
    for convention, power, factor in (("λ", 1.0, 2.0), ("s", 0.5, 1.0)):
        sums = [eigenvalue_sums(model, power) for model in models]
        for place, (words, expected) in published.items():
            value = np.concatenate([one[place].ravel() for one in sums])
            known = np.isfinite(sigma) & np.isfinite(value) & (value > 0) & (sigma > 0)
            slope = exponent(sigma[known], value[known]).value
            low, high = (share * expected * factor for share in (0.75, 1.25))
            null = Null(expected * factor, low=low, high=high, of="± a quarter")
            near = low <= slope <= high
            identity = (convention, place) in (("λ", 1), ("s", 2))
            verdict = "agrees" if identity else here(near) if all(map(_is_published, models)) else of_many(near)
            note = "an identity: d² σ²" if identity else "all heads together"
            if convention == "λ":
                verdict, note = "corrected", f"the printed exponent is that of s; {note}"
            quantity = f"exponent of σ of W_QK: {words}"
            rows.append(Row("post 2, figure 12", quantity, expected, slope, null, verdict, convention, note))
    return rows


def _of_spectra(model: Heads) -> list[Row]:
    published = {
        "largest_eigenvalue": (13, "largest in early layers"),
        "normalized_participation_ratio": (14, "close to the null in small models, lower in large ones"),
        "spectral_entropy": (15, "lower in large models"),
        "condition_number": (16, "about 4, into the millions"),
    }
    rows = []
    for statistic, (number, words) in published.items():
        for convention, singular in (("λ", False), ("s", True)):
            one = by_convention(model, statistic, singular)
            which = "open: of one of them" if _is_published(model) else f"needs {SOURCE_MODELS}; here"
            said = f"{which} {'at' if _beyond(one) <= 0.1 else 'off'} the null"
            name = statistic.replace("_", " ")
            quantity, observed = f"{model.label}: {name}, median head", float(np.nanmedian(one.value))
            place = f"post 2, figure {number}"
            rows.append(Row(place, quantity, words, observed, _null(one), said, convention, _outside(one)))
    return rows
