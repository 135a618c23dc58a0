"""Statements of both posts about models beside each other: post 1, figures 12-15, 18 and 19; post 2, figures 12-16."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rmtbase.models import known_models
from studies.sources.corner import LLAMA, MISTRAL
from studies.sources.cross_drawing import TWO_SIDED, by_convention, eigenvalue_sums, product_sigma
from studies.sources.heads import Heads, Measured
from studies.sources.post1 import OF_ALL, PUBLISHED_TABLE
from studies.sources.post1_rows import NORMAL_KURTOSIS
from studies.sources.post2_rows import NEAR_EXPONENT
from studies.sources.recipe import Null, Row, Run
from studies.sources.statements import (
    Scored,
    along_layers,
    beside_random,
    exponent,
    identity,
    learned,
    median,
    of_elements,
    of_heads,
    of_many,
    rank_correlation,
)
from studies.sources.verdicts import (
    Claim,
    Finding,
    Kind,
    Side,
    Standing,
    Verdict,
    beyond_draws,
    corrected,
    decide,
    decided,
    every,
    most,
    needs,
    unresolved,
    within,
)

SOURCE_MODELS = OF_ALL.named
RESIDUAL, DIVERGENCE = "kde_entropy_residual", "kl_matched_normal"
MARGIN = 0.1
"""Margin of *σ_QK ∝ σ²*: in most heads σ of W_QK is that of independent factors within this share."""
MILLION = 1e6
_PERMUTATIONS, _SEED = 9999, 0


class Beside(NamedTuple):
    """Model of a run, and its scores beside random heads."""

    heads: Heads
    both: Scored


def rows(run: Run, models: Sequence[Heads]) -> list[Row]:
    """Every statement about values, of these models."""
    every_model = [Beside(model, beside_random(run, model.tree)) for model in models]
    return [
        *_anomaly(models),
        *(row for model in every_model for row in _of_elements(model)),
        _tails_everywhere(every_model),
        *_exponents(models),
        _falls_everywhere(every_model),
        *(row for model in every_model for row in _of_spectra(model)),
        *_with_size(models),
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
            rows.append(Row(place, words, published, None, None, needs(f"{LLAMA} and {MISTRAL}")))
            continue
        ratio = float(np.nanmedian(by_name[LLAMA].sigma(component)) / np.nanmedian(by_name[MISTRAL].sigma(component)))
        said = decided(Claim(Kind.PRINTED, ratio, low=low, high=high))
        rows.append(Row(place, words, published, ratio, Null(1.0, of="one initialisation"), said))
    return rows


def _of_elements(model: Beside) -> list[Row]:
    """Check the post's statements about all models for each model."""
    ratio = product_sigma(model.heads) / model.heads.sigma("W_QK")
    ratio = ratio[np.isfinite(ratio)]
    words = f"{model.heads.label}: σ_Q σ_K √h / σ of W_QK, median head"
    null = Null(1.0, low=1.0 - MARGIN, high=1.0 + MARGIN, of="independent factors, within 10 %")
    said = _said(model.heads, most(np.abs(ratio - 1.0) < MARGIN))
    observed = float(np.median(ratio)) if ratio.size else None
    rows = [Row("post 1, figure 13", words, "σ_QK ∝ σ²", observed, null, said)]
    for component in ("W_Q", "W_QK"):
        rows += [
            _narrower("post 1, figure 15", model, component, RESIDUAL, "ΔS", "negative: sub-Gaussian"),
            _narrower("post 1, figure 18", model, component, "core_sigma", "σ_fit/σ", "slightly below 1: sub-Gaussian"),
        ]
    return [*rows, _divergences(model)]


def _said(model: Heads, claim: Claim) -> Verdict:
    """Decide on a statement about the posts' models, from one of them or from another model."""
    return decided(claim) if _is_published(model) else of_many(claim)


def _is_published(model: Heads) -> bool:
    """Return True if the model is one of post 1's table 1."""
    ids = (one.hub_id.lower() for one in known_models() if one.name in PUBLISHED_TABLE)
    return model.label.partition(" ")[0].lower() in {one.rpartition("/")[2] for one in ids}


def _narrower(place: str, model: Beside, component: str, statistic: str, symbol: str, published: str) -> Row:
    """Compare what the post finds below a normal law's with the null, which includes estimator and product."""
    one, kurtosis = (of_elements(model.both, name, component) for name in (statistic, "excess_kurtosis"))
    words = f"{model.heads.label}: {symbol} of {component}, median head"
    lower, heavier = learned(median, Side.BELOW, one), learned(median, Side.ABOVE, kurtosis)
    note = _outside(model.heads.element(component, statistic))
    if statistic == RESIDUAL:
        note += "; the null has the same bias of the estimate"
    said = _said(model.heads, lower.claim)
    if decide(lower.claim) is decide(heavier.claim) is Finding.AGREES:
        excess = float(np.median(kurtosis.value - kurtosis.mean))
        note += f"; tails heavier than normal (excess kurtosis {excess:+.2g} over the null's)"
        said = corrected("errata, 13 and 14")
    return Row(place, words, published, lower.value, lower.null, said, note=note)


def _divergences(model: Beside) -> Row:
    """Compare the divergence of W_QK with those of its factors, each less its null."""
    each = [of_elements(model.both, DIVERGENCE, component) for component in ("W_QK", "W_Q", "W_K")]
    centre = [float(np.median(one.mean)) for one in each]

    def more(*values: np.ndarray) -> np.ndarray:
        over = [median(one) - mean for one, mean in zip(values, centre, strict=True)]
        return over[0] - np.maximum(over[1], over[2])

    larger = learned(more, Side.ABOVE, *each)
    observed = ", ".join(f"{np.median(one.value) - mean:.2g}" for one, mean in zip(each, centre, strict=True))
    words = f"{model.heads.label}: D_KL beyond the null's, median head (nats): W_QK, W_Q, W_K"
    note = f"the null is of the difference; {_outside(model.heads.element('W_QK', DIVERGENCE))}"
    said = _said(model.heads, larger.claim)
    return Row("post 1, figure 19", words, "larger for W_QK", observed, larger.null, said, note=note)


def _tails_everywhere(models: Sequence[Beside]) -> Row:
    """Check for every model that W_Q and W_K are nearly normal, and that W_QK has heavier tails than random heads."""
    findings, heavy = [], 0
    for model in models:
        factors = [of_elements(model.both, "excess_kurtosis", component) for component in ("W_Q", "W_K")]
        findings += [decide(most(np.abs(one.value) < NORMAL_KURTOSIS)) for one in factors]
        tails = learned(median, Side.ABOVE, of_elements(model.both, "excess_kurtosis", "W_QK"))
        findings.append(decide(tails.claim))
        heavy += findings[-1] is Finding.AGREES
    words = "models whose W_QK has heavier tails than random heads"
    published, place = "in all architectures; W_Q and W_K approximately Gaussian", "post 1, Cross-Model Comparison"
    kind, standing = Kind.LEARNED, Standing.DECIDED if _are_all(models) else Standing.NEEDS
    said = Verdict(standing, every(findings), kind, "" if standing is Standing.DECIDED else SOURCE_MODELS)
    return Row(place, words, published, f"{heavy} of {len(models)}", None, said)


def _falls_everywhere(models: Sequence[Beside]) -> Row:
    """Check for every model that the leading eigenvalue falls with the layer."""
    findings = [
        decide(along_layers(of_heads(model.both, "largest_eigenvalue")[0], Side.BELOW).claim) for model in models
    ]
    number = findings.count(Finding.AGREES)
    standing = Standing.DECIDED if all(_is_published(model.heads) for model in models) else Standing.NEEDS
    detail = "" if standing is Standing.DECIDED else SOURCE_MODELS
    words, published = "models whose leading value falls with the layer", "largest in early layers, in all families"
    said = Verdict(standing, every(findings), Kind.LEARNED, detail)
    return Row("post 2, figure 13", words, published, f"{number} of {len(models)}", None, said, "λ")


def _are_all(models: Sequence[Beside]) -> bool:
    """Return True if the models are all of post 1's table 1."""
    return len(models) == len(PUBLISHED_TABLE) and all(_is_published(model.heads) for model in models)


def _outside(one: Measured) -> str:
    share = float(np.nanmean(np.abs(one.value - one.mean) > TWO_SIDED * one.sd))
    return f"{100 * share:.0f} % of heads outside 95 % of the null"


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
            fit = exponent(sigma[known], value[known])
            law = expected * factor
            is_identity = (convention, place) in (("λ", 1), ("s", 2))
            claim = within(fit.value, law, NEAR_EXPONENT * law, fit.error)
            said = decided(claim) if all(map(_is_published, models)) else of_many(claim)
            note = f"all heads together, ± {fit.error:.2g}; near: within {100 * NEAR_EXPONENT:g} %"
            if is_identity:
                said, note = decided(identity(True)), "an identity: d² σ²"
            if convention == "λ":
                said, note = corrected("errata, 4"), f"the printed exponent is that of s; {note}"
            quantity = f"exponent of σ of W_QK: {words}"
            null = Null(law, of="random heads that differ in σ")
            rows.append(Row("post 2, figure 12", quantity, expected, fit.value, null, said, convention, note))
    return rows


def _of_spectra(model: Beside) -> list[Row]:
    rows, label = [], model.heads.label
    for convention, singular in (("λ", False), ("s", True)):
        (largest,) = of_heads(model.both, "largest_eigenvalue")
        power = 0.5 if singular else 1.0
        fall = along_layers(largest.of(largest.value**power, largest.drawn**power), Side.BELOW)
        value = fall.value if np.isfinite(fall.value) else None
        words = f"{label}: layer average of the leading value against layer: Spearman's ρ"
        said = _said(model.heads, fall.claim)
        published = "largest in early layers, decaying"
        rows.append(Row("post 2, figure 13", words, published, value, fall.null, said, convention))
        for number, statistic, published in _OF_SIZE:
            one = by_convention(model.heads, statistic, singular)
            quantity, observed = f"{label}: {statistic.replace('_', ' ')}, median head", float(np.nanmedian(one.value))
            said, note = unresolved("printed of several sizes; the row of all models decides"), _outside(one)
            rows.append(
                Row(f"post 2, figure {number}", quantity, published, observed, _null(one), said, convention, note)
            )
    return rows


_OF_SIZE = (
    (14, "normalized_participation_ratio", "lower in larger models"),
    (15, "spectral_entropy", "lower in larger models"),
    (16, "condition_number", "orders of magnitude larger in some larger models"),
)


def _with_size(models: Sequence[Heads]) -> list[Row]:
    """Correlate medians over their nulls with the size of the models, d² times the layers; and κ with a million."""
    sizes = np.array(
        [float(model.tree.attrs.get("d_model", np.nan)) ** 2 * model.eigenvalues.shape[0] for model in models]
    )
    drawn = np.random.default_rng(_SEED).permuted(np.tile(np.arange(sizes.size), (_PERMUTATIONS, 1)), axis=1)
    whole = all(map(_is_published, models)) and len(models) == len(PUBLISHED_TABLE)
    rows = []
    for convention, singular in (("λ", False), ("s", True)):
        for number, statistic, published in _OF_SIZE:
            over = np.array([_over_null(by_convention(model, statistic, singular)) for model in models])
            value = float(rank_correlation(sizes, over))
            side = Side.ABOVE if statistic == "condition_number" else Side.BELOW
            claim = beyond_draws(value, rank_correlation(sizes, over[drawn]), side)
            said = decided(claim) if whole else needs(SOURCE_MODELS, claim)
            words = f"{statistic.replace('_', ' ')} over its null against the size of the model"
            null = Null(0.0, of="models in any order") if np.isfinite(value) else None
            place, words, note = f"post 2, figure {number}", f"{words}: Spearman's ρ", f"{len(models)} models"
            observed = value if np.isfinite(value) else None
            rows.append(Row(place, words, published, observed, null, said, convention, note))
        largest = max(float(np.nanmax(by_convention(model, "condition_number", singular).value)) for model in models)
        claim = Claim(Kind.PRINTED, largest, low=MILLION)
        said, words = decided(claim) if whole else needs(SOURCE_MODELS, claim), "largest condition number of all heads"
        rows.append(Row("post 2, figure 16", words, "into the millions", largest, None, said, convention))
    return rows


def _over_null(one: Measured) -> float:
    """Median of a statistic over its null's mean."""
    return float(np.nanmedian(one.value / one.mean))
