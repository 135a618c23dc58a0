"""The page: the finding in words, then the figures, the tables, and how the null was made."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from numbers import Real

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.plots import DARK, LIGHT, MAIN_STATISTICS, figures
from rmtbase.report._captions import Caption, captions
from rmtbase.report._html import Markup, joined, markup, z_text
from rmtbase.report._method import glossary, method
from rmtbase.report._svg import css_values, inline_svg, page_settings
from rmtbase.report._tables import heads_table, matrices_table
from rmtbase.scoring import Summary, farthest_z, summarize_scores
from rmtbase.shown import shown
from rmtbase.statistics import SPECTRAL_STATISTICS

_NUMBERS = ("n_layers", "n_heads", "n_key_heads", "d_model", "d_head", "null_draws", "p_value_floor", "edge_level")
_TEXTS = ("model", "revision", "family", "null", "table", "rmtbase_version", "schema_version", "warnings", "provenance")
_HEAD_FIGURES = ("z-heat-map", "ordered-eigenvalues", "statistics-by-layer", "p-value-qq")


def render(scores: xr.DataTree) -> str:
    """One HTML page that says which heads left the null, how far and by which statistic, and shows it.

    The page needs no network and opens from disk: styles, script and figures are inside, and a content security
    policy forbids the rest. It follows the reader's choice of light or dark.

    Args:
        scores: the tree that ``rmtbase.score`` returns, or ``rmtbase.tables.open_scores`` reads.

    Raises:
        ParameterError: it is no scores tree, or holds what no scores hold.
    """
    if not isinstance(scores, xr.DataTree) or not {"heads", "null"} <= set(scores.children):
        raise ParameterError("scores", type(scores).__name__, "a scores tree with /heads and /null")
    _require_renderable(scores)
    summary = summarize_scores(scores)
    caption, how = captions(scores), method(scores)
    with page_settings() as theme:
        framed = {
            name: _figure(name, inline_svg(figure, f"f{k}", caption[name].description), caption[name])
            for k, (name, figure) in enumerate(figures(scores, theme).items())
        }
    script = _resource("page.js")
    sections = {
        "finding": ("What was found", _finding(scores, summary)),
        "figures": ("Heads in pictures", joined(framed[name] for name in _HEAD_FIGURES)),
        "heads": ("All heads", _heads(scores, summary)),
        "matrices": ("Weight matrices", _matrices(scores, summary, framed)),
        "null": ("How the null was made", joined([framed.get("null-spectrum", ""), how])),
    }
    sections = {name: section for name, section in sections.items() if section[1]}
    links = joined(markup('<li><a href="#{}">{}</a></li>', name, title) for name, (title, _) in sections.items())
    body = joined(
        markup(
            '<section id="{0}" aria-labelledby="{0}-title"><h2 id="{0}-title">{1}</h2>{2}</section>',
            name,
            title,
            content,
        )
        for name, (title, content) in sections.items()
    )
    return markup(
        _PAGE,
        model=shown(scores.attrs["model"]),
        version=scores.attrs["rmtbase_version"],
        schema=scores.attrs["schema_version"],
        policy=_policy(script),
        light=css_values(LIGHT),
        dark=css_values(DARK),
        swatches=_swatches(),
        css=Markup(_resource("page.css")),
        subtitle=_subtitle(scores),
        links=links,
        body=body,
        script=Markup(script),
    )


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="generator" content="rmtbase {version}">
<link rel="icon" href="data:,">
<title>{model}: how far from random?</title>
<style>
:root {{ {light} }}
@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}
{swatches}
{css}</style>
</head>
<body>
<a class="skip" href="#finding">Skip to the finding</a>
<header>
<p class="kicker">How far from random?</p>
<h1>{model}</h1>
{subtitle}
<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
<main>{body}</main>
<footer><p>Written by rmtbase {version}, schema {schema}.
W<sub>QK</sub> = W<sub>Q</sub><sup>⊤</sup>W<sub>K</sub>; λ are the eigenvalues of
W<sub>QK</sub><sup>⊤</sup>W<sub>QK</sub>.</p></footer>
<script>{script}</script>
</body>
</html>
"""


def _require_renderable(scores: xr.DataTree) -> None:
    """What is counted and looked up must be numbers and known names; all other text is only shown."""
    heads = scores["heads"].to_dataset()
    for name in ("layer", "head"):
        if heads[name].dtype.kind not in "iu":
            raise ParameterError(f"scores, coordinate {name} of /heads", heads[name].dtype, "whole numbers")
    for name in {*heads["statistic"].values.tolist(), *heads["farthest_statistic"].values.ravel().tolist()} - {""}:
        if name not in SPECTRAL_STATISTICS:
            raise ParameterError("scores, statistic of /heads", name, f"some of {', '.join(SPECTRAL_STATISTICS)}")
    for name in _NUMBERS:
        if not isinstance(scores.attrs.get(name), Real):
            raise ParameterError(f"scores, attribute {name}", scores.attrs.get(name), "a number")
    for name in _TEXTS:
        if not isinstance(scores.attrs.get(name), str):
            raise ParameterError(f"scores, attribute {name}", scores.attrs.get(name), "a text")


def _resource(name: str) -> str:
    return files("rmtbase.report").joinpath(name).read_text(encoding="utf-8")


def _swatches() -> str:
    return " ".join(f".z{k} {{ background: var(--diverging-{k}); }}" for k in range(len(LIGHT.diverging)))


def _policy(script: str) -> Markup:
    """No request to anywhere, and no script but the page's own."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return markup("default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{}'", digest)


def _subtitle(tree: xr.DataTree) -> Markup:
    attrs = tree.attrs
    n_heads, n_keys = attrs["n_heads"], attrs["n_key_heads"]
    heads = f"{n_heads} heads" if n_keys == n_heads else f"{n_heads} heads on {n_keys} key heads"
    facts = [
        ("revision", shown(attrs["revision"])),
        ("family", shown(attrs["family"])),
        ("shape", f"{attrs['n_layers']} layers × {heads}"),
        ("d_model", attrs["d_model"]),
        ("d_head", attrs["d_head"]),
    ]
    rows = joined(markup("<div><dt>{}</dt><dd>{}</dd></div>", name, value) for name, value in facts if str(value) != "")
    return markup('<dl class="facts">{}</dl>', rows)


def _finding(tree: xr.DataTree, summary: Summary) -> Markup:
    first, *others = summary.sentences()
    notes = json.loads(tree.attrs.get("notes", "[]"))
    return joined(
        [
            markup('<p class="lead">{}</p>', first),
            _tiles(tree, summary),
            markup('<ul class="finding">{}</ul>', _items(others)) if others else "",
            _callout("warning", "Warnings about the checkpoint", summary.warnings),
            _callout("note", "Notes about the checkpoint", notes),
        ]
    )


def _items(lines: Iterable[object]) -> Markup:
    return joined(markup("<li>{}</li>", line) for line in lines)


def _tiles(tree: xr.DataTree, summary: Summary) -> Markup:
    heads = tree["heads"].to_dataset()
    z = np.abs(farthest_z(heads))
    above, below = int(heads["outliers_above"].sum()), int(heads["outliers_below"].sum())
    left = markup("{} <small>of {}</small>", len(summary.findings), summary.n_heads)
    tiles = [
        ("heads that left the null", left),
        ("|z| of the farthest head, on its farthest statistic", z_text(float(z[np.isfinite(z)].max(initial=0.0)))),
        ("eigenvalues above the null's upper edge", above),
        ("eigenvalues below the null's lower edge", below),
    ]
    rows = joined(markup("<div><dt>{}</dt><dd>{}</dd></div>", *tile) for tile in tiles)
    return markup('<dl class="tiles">{}</dl>', rows)


def _callout(kind: str, title: str, lines: Sequence[str]) -> Markup:
    if not lines:
        return markup("")
    return markup(
        '<aside class="callout {}" aria-label="{title}"><h3>{title}</h3><ul>{}</ul></aside>',
        kind,
        _items(lines),
        title=title,
    )


def _figure(name: str, svg: Markup, caption: Caption) -> Markup:
    return markup(
        '<figure id="figure-{name}" aria-labelledby="figure-{name}-title"><h3 id="figure-{name}-title">{title}</h3>'
        '<div class="plot" tabindex="0" role="group" aria-label="Picture: {title}">{svg}</div>'
        "<figcaption>{reading}</figcaption></figure>",
        name=name,
        title=caption.title,
        svg=svg,
        reading=caption.reading,
    )


def _heads(tree: xr.DataTree, summary: Summary) -> Markup:
    intro = markup(
        "<p>Pick a statistic to see every head's value, its null and its p-value; sort by any column. “Omnibus” is one "
        "test of all statistics together. λ above and below count eigenvalues beyond the null's edges.</p>"
    )
    table = heads_table(tree["heads"].to_dataset(), summary.level, MAIN_STATISTICS[0])
    return joined([intro, table, glossary(tree)])


def _matrices(tree: xr.DataTree, summary: Summary, framed: dict[str, Markup]) -> Markup:
    if "matrices" not in tree.children:
        return markup("")
    matrices = tree["matrices"].to_dataset()
    spectra = (
        " The spectrum is compared at the matrix's own scale with that of a Gaussian matrix; “distance to MP” is the "
        "largest distance between its distribution function and Marchenko–Pastur's."
        if "marchenko_pastur_distance" in matrices
        else ""
    )
    intro = markup(
        "<p>Each whole weight matrix against independent Gaussian elements with the matrix's own standard deviation σ."
        "{}</p>",
        spectra,
    )
    return joined([intro, framed["matrix-z-heat-map"], matrices_table(matrices, summary.level, "excess_kurtosis")])
