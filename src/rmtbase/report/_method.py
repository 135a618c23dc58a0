"""How the null was made, what is exact about it, and what the statistics are."""

from __future__ import annotations

import xarray as xr

from rmtbase.report._html import escape, formula, number
from rmtbase.statistics import SPECTRAL_STATISTICS


def method(tree: xr.DataTree) -> str:
    """The section's text: the null, the tests, their limits, and the provenance."""
    attrs = tree.attrs
    draws, level = int(attrs["null_draws"]), float(attrs["edge_level"])
    lines = [
        (
            "Null",
            f"{escape(attrs['null'])}. Shape: W<sub>Q</sub> and W<sub>K</sub> of {attrs['d_head']} × "
            f"{attrs['d_model']}. Each head's σ is estimated from its own matrices, and each null draw's from its own.",
        ),
        ("Draws", f"{draws}; source: {escape(attrs['table'])}."),
        (
            "p-values",
            "Two-sided Monte Carlo, p = 2 (b + 1) / (n + 1) with b draws at least as far out on the observed "
            f"side: never below 2 / ({draws} + 1) = {number(2 / (draws + 1), 2)}.",
        ),
        (
            "Many heads",
            "q-values are Benjamini and Hochberg's, over all heads, each statistic by itself. The omnibus p-value "
            "tests all statistics of a head at once: its largest distance against the null draws' own largest.",
        ),
        (
            "Edges",
            f"A random head's largest (smallest) eigenvalue passes the upper (lower) edge with probability {level:g}.",
        ),
    ]
    rows = "".join(f"<div><dt>{name}</dt><dd>{text}</dd></div>" for name, text in lines)
    return (
        f'<dl class="method">{rows}</dl>{_LIMITS}'
        "<details><summary>Provenance: software, call, seeds and fingerprints</summary>"
        f'<pre tabindex="0" aria-label="Provenance as JSON">{escape(attrs["provenance"])}</pre></details>'
    )


_LIMITS = """<div class="limits"><div><h3>What is exact</h3><ul>
<li>The null draws have the law of W<sub>QK</sub>'s spectrum for Gaussian factors at this very shape: no limit is
taken.</li>
<li>A random head has p ≤ α with probability at most α, at any number of draws.</li></ul></div>
<div><h3>What is not</h3><ul>
<li>The free-product law is the limit of large shapes; random eigenvalues pass its edges slightly.</li>
<li>Heads that share a key head are dependent: the p-value band in the figure is for independent ones.</li>
<li>A head that leaves the null is not a product of independent Gaussian matrices. Training does that, and so would
an initialisation of another kind (orthogonal, say).</li></ul></div></div>"""


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
