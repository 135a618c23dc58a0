"""How the null was made, what is exact about it, and what the statistics are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.plots import statistic_words
from rmtbase.report._html import Markup, formula, joined, markup, number, preformatted
from rmtbase.shown import shown
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import null_method


def method(tree: xr.DataTree) -> Markup:
    """The section's text: the null, the tests, their limits, and the provenance.

    Raises:
        ParameterError: the scores are against a null that rmtbase does not have.
    """
    attrs = tree.attrs
    words = _words(attrs)
    edges = "largest (smallest) eigenvalue passes the upper (lower) edge"
    if null_method(attrs) == "analytic" and float(tree["null"].to_dataset()["edge_quantile_lower"]) == 0.0:
        edges = "largest eigenvalue passes the upper edge (the lower one is not known at this shape)"
    shape = markup("W<sub>Q</sub> and W<sub>K</sub> of {} × {}", attrs["d_head"], attrs["d_model"])
    lines = [
        ("Null", markup("{}. Shape: {}. {}", attrs["null"], shape, words.scale)),
        ("Draws", words.draws),
        ("p-values", words.p_values),
        (
            "Many heads",
            "q-values are Benjamini and Hochberg's, over all heads, each statistic by itself. The omnibus p-value "
            f"tests all statistics of a head at once: {words.omnibus}.",
        ),
        ("Edges", f"A null head's {edges} with probability {float(attrs['edge_level']):g}."),
    ]
    return markup(
        '<dl class="method">{rows}</dl><div class="limits"><div><h3>What is exact</h3>{exact}</div>'
        "<div><h3>What is not</h3>{inexact}</div></div>{details}"
        "<details><summary>Provenance: software, call, seeds and fingerprints</summary>"
        '<pre tabindex="0" aria-label="Provenance as JSON">{provenance}</pre></details>',
        rows=joined(markup("<div><dt>{}</dt><dd>{}</dd></div>", *line) for line in lines),
        exact=_list(words.exact),
        inexact=_list((*words.inexact, _SHARED_KEYS, *words.limits)),
        details=words.details,
        provenance=preformatted(attrs["provenance"]),
    )


class _OwnNull(NamedTuple):
    """What is said of a null that is made of a head's own matrices: texts, and markup where they hold any."""

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
        markup("each a random order of the elements of W<sub>Q</sub>, and of W<sub>K</sub>"),
        "The elements of every draw are those of the head, to the bit: heavy tails and outlying weights explain "
        "nothing.",
        "A head whose elements stand in no order has p ≤ α with probability at most α, whatever their distribution.",
        markup(
            "A head that leaves the null has structure within W<sub>Q</sub> or W<sub>K</sub>, or between them; the "
            "null does not say which."
        ),
    ),
    "haar": _OwnNull(
        "each a uniformly random (Haar) rotation between the query and key directions of the head's space",
        markup(
            "W<sub>Q</sub> and W<sub>K</sub> keep all their singular values: however their spectra decay explains "
            "nothing."
        ),
        "A head whose query and key directions are turned against each other at random has p ≤ α with probability at "
        "most α.",
        markup(
            "A head that leaves the null pairs strong query directions with strong key directions, or with weak ones. "
            "What training did to the spectrum of W<sub>Q</sub> or W<sub>K</sub> alone is no part of it. The "
            "log-determinant is the same in every draw: it has p = 1."
        ),
    ),
}


class _Words(NamedTuple):
    """What is said of one kind of null: texts, and markup where they hold any."""

    draws: str
    p_values: str
    omnibus: str
    exact: tuple[str, ...]
    inexact: tuple[str, ...]
    details: str = ""
    scale: str = "Each head's σ is estimated from its own matrices, and a random head's from its own."
    limits: tuple[str, ...] = _LIMITS


_P_VALUES = "Two-sided Monte Carlo, p = 2 (b + 1) / (n + 1) with b draws at least as far out on the observed side"


def _words(attrs: Mapping[Any, Any]) -> _Words:
    kinds = {"analytic": _analytic, "simulated": _simulated, "resampled": _resampled}
    kind, own = null_method(attrs), str(attrs["null"]).partition(":")[0]
    if kind not in kinds or (kind == "resampled" and own not in _OWN_NULLS):
        raise ParameterError(
            "null", attrs["null"], f"one of {', '.join(kinds)}; resampled by {' or '.join(_OWN_NULLS)}"
        )
    return kinds[kind](attrs)


def _simulated(attrs: Mapping[Any, Any]) -> _Words:
    draws = int(attrs["null_draws"])
    return _Words(
        draws=f"{draws}; source: {shown(attrs['table'])}.",
        p_values=f"{_P_VALUES}: never below 2 / ({draws} + 1) = {number(2 / (draws + 1), 2)}.",
        omnibus="its largest distance against the null draws' own largest",
        exact=(
            markup(
                "The null draws have the law of W<sub>QK</sub>'s spectrum for Gaussian factors at this very shape: no "
                "limit is taken."
            ),
            "A random head has p ≤ α with probability at most α, at any number of draws.",
        ),
        inexact=(),
    )


def _resampled(attrs: Mapping[Any, Any]) -> _Words:
    draws, own = int(attrs["null_draws"]), _OWN_NULLS[str(attrs["null"]).partition(":")[0]]
    return _Words(
        draws=markup("{} for each head from its own matrices: {}.", draws, own.draw),
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
        draws=f"None; source: {shown(attrs['table'])}.",
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
            markup(
                "The laws of the other statistics are expansions in 1/d<sub>head</sub>, as accurate as is listed below."
            ),
            markup(
                "The Cauchy combination is exact for small p only. A random head has an omnibus p ≤ 0.05 with "
                "probability 0.053 to 0.056 where 16 ≤ d<sub>head</sub> ≤ d<sub>model</sub> / 2, elsewhere up to 0.062."
            ),
            "The bands of the ordered eigenvalues are those of gamma laws, but for the largest and the smallest.",
        ),
        details=_accuracy(attrs["provenance"]),
    )


def _accuracy(provenance: str) -> Markup:
    """How well each statistic's law is known, by the record that the file keeps of it."""
    statistics: dict[str, list[str]] = {}
    for name, accuracy in json.loads(provenance).get("null", {}).items():
        statistics.setdefault(_NO_LAW if accuracy == "none" else accuracy, []).append(statistic_words(name))
    items = [f"{', '.join(names)}: {accuracy}." for accuracy, names in statistics.items()]
    if not items:
        return markup("")
    return markup("<details><summary>How well each law is known</summary>{}</details>", _list(items))


def _list(items: Iterable[str]) -> Markup:
    return markup("<ul>{}</ul>", joined(markup("<li>{}</li>", item) for item in items))


_NO_LAW = "none is known at this shape, so that no head is scored on it"


def glossary(tree: xr.DataTree) -> Markup:
    """What the statistics of the table of heads are."""
    held = tree["heads"].to_dataset()["statistic"].values.tolist()
    rows = joined(
        markup(
            '<tr><th scope="row">{}</th><td class="math">{}</td><td class="math">{}</td><td>{}s</td></tr>',
            one.long_name,
            formula(one.symbol),
            formula(one.formula),
            one.convention,
        )
        for one in (SPECTRAL_STATISTICS[name] for name in held)
    )
    return markup(
        "<details><summary>What the statistics are</summary>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Statistics"><table class="glossary">'
        "<caption>Statistics of a head's spectrum: λ<sub>k</sub> = s<sub>k</sub><sup>2</sup>, largest first, h of them"
        '</caption><thead><tr><th scope="col">statistic</th><th scope="col">symbol</th><th scope="col">formula</th>'
        '<th scope="col">on</th></tr></thead><tbody>{}</tbody></table></div></details>',
        rows,
    )
