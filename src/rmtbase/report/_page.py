"""The page: the finding in words, then the figures, the tables, and how the null was made."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.plots import DARK, LIGHT, MAIN_STATISTICS, farthest_z, figures
from rmtbase.report._captions import Caption, captions
from rmtbase.report._html import escape, z_text
from rmtbase.report._method import glossary, method
from rmtbase.report._svg import css_values, inline_svg, page_settings
from rmtbase.report._tables import heads_table, matrices_table
from rmtbase.scoring import Summary, summarize_scores

_HEAD_FIGURES = ("z-heat-map", "ordered-eigenvalues", "statistics-by-layer", "p-value-qq")


def render(scores: xr.DataTree) -> str:
    """One HTML page that says which heads left the null, how far and by which statistic, and shows it.

    The page needs no network and opens from disk: styles, script and figures are inside, and a content security
    policy forbids the rest. It follows the reader's choice of light or dark.

    Args:
        scores: the tree that ``rmtbase.score`` returns, or ``rmtbase.tables.open_scores`` reads.

    Raises:
        ParameterError: it is no scores tree.
    """
    if not isinstance(scores, xr.DataTree) or not {"heads", "null"} <= set(scores.children):
        raise ParameterError("scores", type(scores).__name__, "a scores tree with /heads and /null")
    summary = summarize_scores(scores)
    caption = captions(scores)
    with page_settings() as theme:
        framed = {
            name: _figure(name, inline_svg(figure, f"f{k}", escape(caption[name].description)), caption[name])
            for k, (name, figure) in enumerate(figures(scores, theme).items())
        }
    script = _resource("page.js")
    sections = {
        "finding": ("What was found", _finding(scores, summary)),
        "figures": ("Heads in pictures", "".join(framed[name] for name in _HEAD_FIGURES)),
        "heads": ("All heads", _heads(scores, summary)),
        "matrices": ("Weight matrices", _matrices(scores, summary, framed)),
        "null": ("How the null was made", framed.get("null-spectrum", "") + method(scores)),
    }
    sections = {name: section for name, section in sections.items() if section[1]}
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, (title, _) in sections.items())
    body = "".join(
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>{content}</section>'
        for name, (title, content) in sections.items()
    )
    model, version = escape(scores.attrs["model"]), escape(scores.attrs["rmtbase_version"])
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">
<meta name="generator" content="rmtbase {version}">
<link rel="icon" href="data:,">
<title>{model}: how far from random?</title>
<style>
:root {{ {css_values(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {css_values(DARK)} }} }}
{_swatches()}
{_resource("page.css")}</style>
</head>
<body>
<a class="skip" href="#finding">Skip to the finding</a>
<header>
<p class="kicker">How far from random?</p>
<h1>{model}</h1>
{_subtitle(scores)}
<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
<main>{body}</main>
<footer><p>Written by rmtbase {version}, schema {escape(scores.attrs["schema_version"])}.
W<sub>QK</sub> = W<sub>Q</sub><sup>⊤</sup>W<sub>K</sub>; λ are the eigenvalues of
W<sub>QK</sub><sup>⊤</sup>W<sub>QK</sub>.</p></footer>
<script>{script}</script>
</body>
</html>
"""


def _resource(name: str) -> str:
    return files("rmtbase.report").joinpath(name).read_text(encoding="utf-8")


def _swatches() -> str:
    return " ".join(f".z{k} {{ background: var(--diverging-{k}); }}" for k in range(len(LIGHT.diverging)))


def _policy(script: str) -> str:
    """No request to anywhere, and no script but the page's own."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def _subtitle(tree: xr.DataTree) -> str:
    attrs = tree.attrs
    n_heads, n_keys = int(attrs["n_heads"]), int(attrs["n_key_heads"])
    heads = f"{n_heads} heads" if n_keys == n_heads else f"{n_heads} heads on {n_keys} key heads"
    facts = [
        ("revision", attrs["revision"]),
        ("family", attrs["family"]),
        ("shape", f"{attrs['n_layers']} layers × {heads}"),
        ("d_model", attrs["d_model"]),
        ("d_head", attrs["d_head"]),
    ]
    return (
        '<dl class="facts">'
        + "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts if value != "")
        + "</dl>"
    )


def _finding(tree: xr.DataTree, summary: Summary) -> str:
    first, *others = summary.sentences()
    lines = "".join(f"<li>{escape(line)}</li>" for line in others)
    notes = json.loads(tree.attrs.get("notes", "[]"))
    return (
        f'<p class="lead">{escape(first)}</p>'
        + _tiles(tree, summary)
        + (f'<ul class="finding">{lines}</ul>' if others else "")
        + _callout("warning", "Warnings about the checkpoint", summary.warnings)
        + _callout("note", "Notes about the checkpoint", notes)
    )


def _tiles(tree: xr.DataTree, summary: Summary) -> str:
    heads = tree["heads"].to_dataset()
    z = np.abs(farthest_z(heads))
    above, below = int(heads["outliers_above"].sum()), int(heads["outliers_below"].sum())
    tiles = [
        ("heads that left the null", f"{len(summary.findings)} <small>of {summary.n_heads}</small>"),
        ("|z| of the farthest head, on its farthest statistic", z_text(float(z[np.isfinite(z)].max(initial=0.0)))),
        ("eigenvalues above the null's upper edge", f"{above}"),
        ("eigenvalues below the null's lower edge", f"{below}"),
    ]
    return '<dl class="tiles">' + "".join(f"<div><dt>{a}</dt><dd>{b}</dd></div>" for a, b in tiles) + "</dl>"


def _callout(kind: str, title: str, lines: tuple[str, ...] | list[str]) -> str:
    if not lines:
        return ""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<aside class="callout {kind}" aria-label="{title}"><h3>{title}</h3><ul>{items}</ul></aside>'


def _figure(name: str, svg: str, caption: Caption) -> str:
    title = escape(caption.title)
    return (
        f'<figure id="figure-{name}" aria-labelledby="figure-{name}-title">'
        f'<h3 id="figure-{name}-title">{title}</h3>'
        f'<div class="plot" tabindex="0" role="group" aria-label="Picture: {title}">{svg}</div>'
        f"<figcaption>{escape(caption.reading)}</figcaption></figure>"
    )


def _heads(tree: xr.DataTree, summary: Summary) -> str:
    intro = (
        "<p>Pick a statistic to see every head's value, its null and its p-value; sort by any column. “Omnibus” is one "
        "test of all statistics together. λ above and below count eigenvalues beyond the null's edges.</p>"
    )
    return intro + heads_table(tree["heads"].to_dataset(), summary.level, MAIN_STATISTICS[0]) + glossary(tree)


def _matrices(tree: xr.DataTree, summary: Summary, framed: dict[str, str]) -> str:
    if "matrices" not in tree.children:
        return ""
    matrices = tree["matrices"].to_dataset()
    spectra = (
        " The spectrum is compared at the matrix's own scale with that of a Gaussian matrix; “distance to MP” is the "
        "largest distance between its distribution function and Marchenko–Pastur's."
        if "marchenko_pastur_distance" in matrices
        else ""
    )
    intro = (
        "<p>Each whole weight matrix against independent Gaussian elements with the matrix's own standard deviation σ."
        f"{spectra}</p>"
    )
    return intro + framed["matrix-z-heat-map"] + matrices_table(matrices, summary.level, "excess_kurtosis")
