"""How the null was made, what is exact about it, and what the statistics are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import xarray as xr

from rmtbase.plots import statistic_words
from rmtbase.report._html import escape, formula, number
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import null_method


def method(tree: xr.DataTree) -> str:
    """The section's text: the null, the tests, their limits, and the provenance."""
    attrs = tree.attrs
    words = {"analytic": _analytic, "simulated": _simulated, "resampled": _resampled}[null_method(attrs)](attrs)
    edges = "largest (smallest) eigenvalue passes the upper (lower) edge"
    if null_method(attrs) == "analytic" and float(tree["null"].to_dataset()["edge_quantile_lower"]) == 0.0:
        edges = "largest eigenvalue passes the upper edge (the lower one is not known at this shape)"
    lines = [
        (
            "Null",
            f"{escape(attrs['null'])}. Shape: W<sub>Q</sub> and W<sub>K</sub> of {attrs['d_head']} × "
            f"{attrs['d_model']}. {words.scale}",
        ),
        ("Draws", words.draws),
        ("p-values", words.p_values),
        (
            "Many heads",
            "q-values are Benjamini and Hochberg's, over all heads, each statistic by itself. The omnibus p-value "
            f"tests all statistics of a head at once: {words.omnibus}.",
        ),
        (
            "Edges",
            f"A null head's {edges} with probability {float(attrs['edge_level']):g}.",
        ),
    ]
    rows = "".join(f"<div><dt>{name}</dt><dd>{text}</dd></div>" for name, text in lines)
    return (
        f'<dl class="method">{rows}</dl><div class="limits"><div><h3>What is exact</h3>{_list(words.exact)}</div>'
        f"<div><h3>What is not</h3>{_list((*words.inexact, _SHARED_KEYS, *words.limits))}</div></div>{words.details}"
        "<details><summary>Provenance: software, call, seeds and fingerprints</summary>"
        f'<pre tabindex="0" aria-label="Provenance as JSON">{escape(attrs["provenance"])}</pre></details>'
    )


class _OwnNull(NamedTuple):
    """What is said of a null that is made of a head's own matrices."""

    draw: str
    kept: str
    valid: str
    limit: str


_SHARED_KEYS = "Heads that share a key head are dependent: the p-value band in the figure is for independent ones."
_LIMITS = (
    "The free-product law is the limit of large shapes; random eigenvalues pass its edges slightly.",
    "A head that leaves the null is not a product of independent Gaussian matrices. Training does that, and so would "
    "an initialisation of another kind (orthogonal, say).",
)
_OWN_NULLS = {
    "permutation": _OwnNull(
        "each a random order of the elements of W<sub>Q</sub>, and of W<sub>K</sub>",
        "The elements of every draw are those of the head, to the bit: heavy tails and outlying weights explain "
        "nothing.",
        "A head whose elements stand in no order has p ≤ α with probability at most α, whatever their distribution.",
        "A head that leaves the null has structure within W<sub>Q</sub> or W<sub>K</sub>, or between them; the null "
        "does not say which.",
    ),
    "haar": _OwnNull(
        "each a uniformly random (Haar) rotation between the query and key directions of the head's space",
        "W<sub>Q</sub> and W<sub>K</sub> keep all their singular values: however their spectra decay explains nothing.",
        "A head whose query and key directions are turned against each other at random has p ≤ α with probability at "
        "most α.",
        "A head that leaves the null pairs strong query directions with strong key directions, or with weak ones. What "
        "training did to the spectrum of W<sub>Q</sub> or W<sub>K</sub> alone is no part of it. The log-determinant is "
        "the same in every draw: it has p = 1.",
    ),
}


class _Words(NamedTuple):
    """What is said of one kind of null, as HTML."""

    draws: str
    p_values: str
    omnibus: str
    exact: tuple[str, ...]
    inexact: tuple[str, ...]
    details: str = ""
    scale: str = "Each head's σ is estimated from its own matrices, and a random head's from its own."
    limits: tuple[str, ...] = _LIMITS


_P_VALUES = "Two-sided Monte Carlo, p = 2 (b + 1) / (n + 1) with b draws at least as far out on the observed side"


def _simulated(attrs: Mapping[Any, Any]) -> _Words:
    draws = int(attrs["null_draws"])
    return _Words(
        draws=f"{draws}; source: {escape(attrs['table'])}.",
        p_values=f"{_P_VALUES}: never below 2 / ({draws} + 1) = {number(2 / (draws + 1), 2)}.",
        omnibus="its largest distance against the null draws' own largest",
        exact=(
            "The null draws have the law of W<sub>QK</sub>'s spectrum for Gaussian factors at this very shape: no "
            "limit is taken.",
            "A random head has p ≤ α with probability at most α, at any number of draws.",
        ),
        inexact=(),
    )


def _resampled(attrs: Mapping[Any, Any]) -> _Words:
    draws, own = int(attrs["null_draws"]), _OWN_NULLS[str(attrs["null"]).partition(":")[0]]
    return _Words(
        draws=f"{draws} for each head from its own matrices: {own.draw}.",
        p_values=f"{_P_VALUES}: never below 2 / ({draws} + 1) = {number(2 / (draws + 1), 2)}. Draws that equal the "
        "head to nine digits count on both sides.",
        omnibus="its largest distance against that of each of its draws",
        exact=(own.kept, own.valid),
        inexact=(),
        scale="Every draw has the norms of the head's own matrices, and so its estimate of σ.",
        limits=(
            own.limit,
            "Whole weight matrices are compared with Gaussian ones, whichever null the heads have.",
        ),
    )


def _analytic(attrs: Mapping[Any, Any]) -> _Words:
    return _Words(
        draws=f"None; source: {escape(attrs['table'])}.",
        p_values="Two-sided, p = 2 min(P(T ≤ t), P(T ≥ t)) from each statistic's law. Beyond 1e−4 they are "
        "extrapolations of the right order of magnitude; below "
        f"{number(float(attrs['p_value_floor']), 2)}, where they end, nothing is claimed.",
        omnibus="the Cauchy combination of its statistics' p-values",
        exact=(
            "The law of the log-determinant, and the mean, standard deviation and skewness of the trace and of the "
            "trace of the square, for Gaussian factors at this very shape.",
            "Nothing is drawn: the same weights give the same scores, and no p-value is limited by a number of draws.",
        ),
        inexact=(
            "The laws of the other statistics are expansions in 1/d<sub>head</sub>, as accurate as is listed below.",
            "The Cauchy combination is exact for small p only. A random head has an omnibus p ≤ 0.05 with probability "
            "0.053 to 0.056 where 16 ≤ d<sub>head</sub> ≤ d<sub>model</sub> / 2, elsewhere up to 0.062.",
            "The bands of the ordered eigenvalues are those of gamma laws, but for the largest and the smallest.",
        ),
        details=_accuracy(attrs["provenance"]),
    )


def _accuracy(provenance: str) -> str:
    """How well each statistic's law is known, by the record that the file keeps of it."""
    statistics: dict[str, list[str]] = {}
    for name, accuracy in json.loads(provenance).get("null", {}).items():
        statistics.setdefault(_NO_LAW if accuracy == "none" else accuracy, []).append(statistic_words(name))
    items = tuple(f"{escape(', '.join(names))}: {escape(accuracy)}." for accuracy, names in statistics.items())
    return f"<details><summary>How well each law is known</summary>{_list(items)}</details>" if items else ""


def _list(items: tuple[str, ...]) -> str:
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>"


_NO_LAW = "none is known at this shape, so that no head is scored on it"


def glossary(tree: xr.DataTree) -> str:
    """What the statistics of the table of heads are."""
    held = tree["heads"].to_dataset()["statistic"].values.tolist()
    rows = "".join(
        f'<tr><th scope="row">{escape(one.long_name)}</th><td class="math">{formula(one.symbol)}</td>'
        f'<td class="math">{formula(one.formula)}</td><td>{escape(one.convention)}s</td></tr>'
        for one in (SPECTRAL_STATISTICS[name] for name in held)
    )
    return (
        "<details><summary>What the statistics are</summary>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Statistics"><table class="glossary">'
        "<caption>Statistics of a head's spectrum: λ<sub>k</sub> = s<sub>k</sub><sup>2</sup>, largest first, h of them"
        '</caption><thead><tr><th scope="col">statistic</th><th scope="col">symbol</th><th scope="col">formula</th>'
        f'<th scope="col">on</th></tr></thead><tbody>{rows}</tbody></table></div></details>'
    )
