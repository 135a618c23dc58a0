"""Recipe ``first``: what a reader of the posts asks first of a model.

Does its NPR survive when the null has the same convention? Are condition numbers in the millions real? Which heads
differ from random ones?
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.figure import Figure as Drawing

from rmtbase import laws
from rmtbase.drawing.theme import LIGHT
from rmtbase.errors import ParameterError
from rmtbase.linalg import product_singular_values
from rmtbase.models import Model, open_model
from rmtbase.results.signal import signal
from studies.sources.drawing import canvas, legend_below, titled
from studies.sources.post2_rows import NEAR, near_null
from studies.sources.recipe import Figure, Null, Result, Row, Run, Table
from studies.sources.statements import verdict as verdict_of
from studies.sources.verdicts import Claim, Kind, corrected, decided

COVERS: dict[str, str] = {}
GPT2 = (768, 64)
TWO_SIDED = 1.96
NPR = "normalized_participation_ratio"
CUTOFF = 1e-10
"""Below which a dense spectrum is cut: absolute, as in scripts that count what is not zero."""
MILLION = 1e6
SAME = 10.0
"""Factor by which a dense spectrum's κ may differ and still be that of the weights."""
SIGMA = 0.02
MOST_HEADS = 40
"""Rows of the table of heads, those with the smallest NPR of λ over its null."""
CONTROL = "demo@step-0"
OPTIONS: dict[str, Any] = {"matrices": "none"}


class Spectra(NamedTuple):
    """Singular values of one W_QK: h by thin factors in float64, d of the dense product in float32."""

    label: str
    d_model: int
    thin: np.ndarray
    dense: np.ndarray
    place: str = ""

    @property
    def named(self) -> str:
        """The label, with the place of the head."""
        return f"{self.label}: {self.place}" if self.place else self.label

    def condition(self, method: str) -> tuple[int, float]:
        """Return how many values a method keeps, and s_1 over the smallest of them."""
        kept = {
            "thin float64": self.thin[self.thin > 0],
            f"dense float32, s > {CUTOFF:g}": self.dense[self.dense > CUTOFF],
            "dense float32, s > d ε s₁": self.dense[
                self.dense > self.d_model * np.finfo(np.float32).eps * self.dense[0]
            ],
            "dense float32, first h": self.dense[: self.thin.size],
        }[method]
        return kept.size, float(kept[0] / kept[-1])

    @property
    def floor(self) -> float:
        """The largest value that rounding alone makes, over s_1; NaN of a square head, which has no rank to exceed."""
        return float(self.dense[self.thin.size] / self.dense[0]) if self.dense.size > self.thin.size else float("nan")


METHODS = ("thin float64", f"dense float32, s > {CUTOFF:g}", "dense float32, s > d ε s₁", "dense float32, first h")


def make(run: Run) -> Result:
    tree = run.scores(**OPTIONS)
    heads, spectra = tree["heads"].dataset, condition_spectra(run)
    found = run.arrays("signal", directions)
    table, rows = table_of_heads(tree, found), [*rows_of_convention(run, heads), *rows_of_condition(run, spectra)]
    figures = (
        Figure(
            "first-figure-1",
            conventions(heads),
            "NPR of every head, with 95 % of the null of one head (band). Left and middle: statistic and null of one "
            "convention. Right: NPR of singular values on the null of eigenvalues.",
            "first page, figure 1",
        ),
        Figure(
            "first-figure-2",
            condition_numbers(spectra),
            "Singular values of W_QK over the largest: h of the thin factors in float64 (points), d of the dense "
            "product in float32 (line). What lies beyond h is rounding alone.",
            "first page, figure 2",
        ),
    )
    return Result(figures, tuple(rows), (condition_table(spectra), table), tuple(answers(run, tree, spectra, found)))


def rows_of(run: Run) -> list[Row]:
    """Every statement about values, of the run's model."""
    heads = run.scores(**OPTIONS)["heads"].dataset
    return [*rows_of_convention(run, heads), *rows_of_condition(run, condition_spectra(run))]


def condition_spectra(run: Run) -> list[Spectra]:
    """Spectra of random heads, and of the model's heads with the median and the largest condition number."""

    def measure(model: Model) -> dict[str, np.ndarray]:
        values = [thin_of(model, site) for site in range(len(model.sites))]
        every = [
            (one[0] / max(one[-1], 1e-300), site, head) for site, of in enumerate(values) for head, one in enumerate(of)
        ]
        every.sort()
        found: dict[str, np.ndarray] = {}
        for name, (_, site, head) in (("median", every[len(every) // 2]), ("largest", every[-1])):
            w_q, w_k = factors(model, site, head)
            dense = np.linalg.svd(w_q.T.astype(np.float32) @ w_k.astype(np.float32), compute_uv=False)
            found |= {f"{name}_thin": values[site][head], f"{name}_dense": dense, f"{name}_at": np.array([site, head])}
        return found

    held = run.arrays("condition", measure)
    shape = (held["median_dense"].size, held["median_thin"].size)
    spectra = [random_spectra(*one) for one in dict.fromkeys((GPT2, shape))]
    for name in ("median", "largest"):
        site, head = held[f"{name}_at"].tolist()
        thin, dense = held[f"{name}_thin"], held[f"{name}_dense"]
        spectra.append(Spectra(f"{run.label}, {name} κ", dense.size, thin, dense, f"layer {site}, head {head}"))
    return spectra


def factors(model: Model, site: int, head: int) -> tuple[np.ndarray, np.ndarray]:
    """W_Q and W_K of one head."""
    queries, keys = model.queries(site), model.keys(site)
    return queries[head], keys[head // (len(queries) // len(keys))]


def thin_of(model: Model, site: int) -> np.ndarray:
    """Singular values of the heads of a site, (head, h)."""
    queries, keys = model.queries(site), model.keys(site)
    return product_singular_values(queries, np.repeat(keys, len(queries) // len(keys), axis=0))


def random_spectra(d_model: int, d_head: int) -> Spectra:
    """Draw the spectra of a head that learned nothing, with entries N(0, 0.02²) stored in float32."""
    drawn = np.random.default_rng(0).standard_normal((2, d_head, d_model))
    w_q, w_k = (SIGMA * drawn).astype(np.float32)
    dense = np.linalg.svd(w_q.T @ w_k, compute_uv=False)
    return Spectra(f"random ({d_model}, {d_head})", d_model, product_singular_values(w_q, w_k), dense)


def directions(model: Model) -> dict[str, np.ndarray]:
    """Count the directions that each head has learned, (layer, head); NaN if there is no noise floor."""
    heads = signal(open_model(model, proof=False), circuits=("qk",), matrices="none")["circuits/qk/heads"].dataset
    return {"n_directions": heads["n_directions"].values.astype(float)}


class Column(NamedTuple):
    """A statistic of every head, in the order of the model, with the mean and the standard deviation of its null."""

    value: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


def columns(heads: xr.Dataset, statistic: str) -> Column:
    """Select one of ``rmtbase.statistics.SPECTRAL_STATISTICS`` with its null."""
    one = heads.sel(statistic=statistic)
    return Column(*(one[name].values.ravel() for name in ("observed", "null_mean", "null_std")))


def within(one: Column) -> float:
    """Share of heads within 95 % of a null."""
    return float(np.nanmean(np.abs(one.value - one.mean) <= TWO_SIDED * one.sd))


def rows_of_convention(run: Run, heads: xr.Dataset) -> list[Row]:
    """Compare the model's NPR with each null, and show what mixing conventions does to a head that learned nothing."""
    place, (of_eigenvalues, mean, sd) = "post 2, figure 8", columns(heads, NPR)
    of_values, mean_s, sd_s = columns(heads, f"{NPR}_singular")
    rows = []
    for convention, value, centre, spread in (("λ", of_eigenvalues, mean, sd), ("s", of_values, mean_s, sd_s)):
        share = within(Column(value, centre, spread))
        verdict = verdict_of(run, near_null(value, centre))
        null = Null(float(np.nanmedian(centre)), float(np.nanmedian(spread)), of="one head")
        rows.append(
            Row(place, f"NPR of {run.label}, median head", "near the null for most heads of GPT-2",
                float(np.nanmedian(value)), null, verdict, convention,
                f"{100 * share:.0f} % of heads within 95 %; near: most heads within {100 * NEAR:g} % of its mean")
        )  # fmt: skip
    mixed = Null(float(np.nanmedian(mean)), float(np.nanmedian(sd)), of="one head, of λ")
    above = float(np.nanmean(of_values > mean))
    note = f"{100 * within(Column(of_values, mean, sd)):.0f} % within 95 %, {100 * above:.0f} % above"
    rows.append(
        Row(place, f"NPR of s of {run.label} on the null of λ", "the mix that errata 4 describes",
            float(np.nanmedian(of_values)), mixed, corrected("errata, 4"), "s", note)
    )  # fmt: skip
    null, null_s = (laws.null(name, d_model=GPT2[0], d_head=GPT2[1]) for name in (NPR, f"{NPR}_singular"))
    far = (null_s.mean() - null.mean()) / null.std()
    words = f"NPR of s of a head {GPT2} that learned nothing, on the null of λ"
    found, note = Null(null.mean(), null.std(), of="one head, of λ"), f"{far:.0f} standard deviations above"
    rows.append(Row(place, words, None, null_s.mean(), found, corrected("errata, 4"), "s", note))
    return rows


def rows_of_condition(run: Run, spectra: Sequence[Spectra]) -> list[Row]:
    """κ by thin factors and as a dense float32 spectrum has it, in s and in λ."""
    rows = []
    for one in spectra:
        law, law_squared = (null_of(name, one) for name in ("condition_number_singular", "condition_number"))
        kept, dense = one.condition(METHODS[1])
        thin = one.condition(METHODS[0])[1]
        for convention, power, null in (("s", 1, law), ("λ", 2, law_squared)):
            note = f"dense float32 keeps {kept} of {one.thin.size} and has κ = {dense**power:.0e}"
            real = thin**power >= MILLION
            rounding = dense > SAME * thin
            verdict = (
                corrected("errata, 5")
                if rounding and not real
                else decided(Claim(Kind.PRINTED, thin**power, low=MILLION))
            )
            note = f"a κ in the millions that is real; {note}" if real else note
            note = f"{one.place}; {note}" if one.place else note
            rows.append(Row("post 2, figure 16", f"κ of {one.label}, thin float64", "into the millions", thin**power,
                            null, verdict, convention, note))  # fmt: skip
    return rows


def null_of(statistic: str, one: Spectra) -> Null | None:
    """Null of a statistic for a head of this shape; None if no law covers it, as for very few dimensions."""
    try:
        law = laws.null(statistic, d_model=one.d_model, d_head=one.thin.size)
        return Null(law.mean(), law.std(), of="one head")
    except ParameterError:
        return None


def condition_table(spectra: Sequence[Spectra]) -> Table:
    """Values kept and κ by each method."""
    rows = []
    for one in spectra:
        for method in METHODS:
            kept, condition = one.condition(method)
            rows.append((one.named, method, kept, condition, condition**2, one.floor))
    heads = ("head", "singular values by", "kept", "κ of s", "κ of λ", "noise floor s_{h+1}/s₁, float32")
    return Table(
        "first-table-1", heads, tuple(rows), "The condition number by how it is computed.", "first page, table 1"
    )


def table_of_heads(tree: xr.DataTree, found: dict[str, np.ndarray]) -> Table:
    """Each head: its NPR on both nulls, and what was learned."""
    heads = tree["heads"].dataset
    value, mean, sd = columns(heads, NPR)
    of_values, mean_s, sd_s = columns(heads, f"{NPR}_singular")
    layers, n_heads = heads["layer"].values, heads.sizes["head"]
    z, z_s = (value - mean) / sd, (of_values - mean_s) / sd_s
    order = np.argsort(value / mean, kind="stable")[:MOST_HEADS]
    rows = tuple(
        (
            str(layers[place // n_heads]), place % n_heads,
            float(value[place]), float(z[place]), float(of_values[place]),
            float(z_s[place]),
            float(heads["omnibus_q_value"].values.ravel()[place]),
            _count(float(found["n_directions"].ravel()[place])),
        )
        for place in order.tolist()
        if np.isfinite(value[place])
    )  # fmt: skip
    caption = (
        "Heads by their NPR over its null, the most concentrated first: z on each convention, q of all statistics "
        "together, and learned directions (– where nothing is left that is like noise)."
    )
    columns_ = ("layer", "head", "NPR of λ", "z", "NPR of s", "z of s", "q", "directions")
    return Table("first-table-2", columns_, rows, caption, "first page, table 2")


def _count(number: float) -> int | None:
    return int(number) if np.isfinite(number) else None


def answers(run: Run, tree: xr.DataTree, spectra: Sequence[Spectra], found: dict[str, np.ndarray]) -> list[str]:
    """Write the three answers in sentences."""
    return [
        "**Does the NPR survive when the null has the same convention?** "
        + survival(run.label, tree["heads"].dataset)
        + " For comparison, a control that has learned nothing. "
        + survival(CONTROL, run.scores(CONTROL, matrices="none")["heads"].dataset),
        "**Are condition numbers in the millions real?** " + rounding(run.label, spectra),
        "**Which heads?** " + which_heads(tree, found["n_directions"]),
    ]


def survival(name: str, heads: xr.Dataset) -> str:
    """Count the heads within the null, on either convention and with the conventions mixed."""
    one, two = columns(heads, NPR), columns(heads, f"{NPR}_singular")
    middles = [float(np.nanmedian(each)) for each in (one.value, one.mean, two.value, two.mean)]
    mixed, above = within(Column(two.value, one.mean, one.sd)), float(np.nanmean(two.value > one.mean))
    return (
        f"Of {int(np.isfinite(one.value).sum())} heads of {name}, {100 * within(one):.0f} % lie within the central "
        f"95 % of the null on λ, and {100 * within(two):.0f} % on s: the median NPR is {middles[0]:.3f} where the null "
        f"has {middles[1]:.3f} (λ), and {middles[2]:.3f} where it has {middles[3]:.3f} (s). If the NPR of s is "
        f"compared with the null of λ, {100 * mixed:.0f} % lie within it, and {100 * above:.0f} % above its mean."
    )


def rounding(name: str, spectra: Sequence[Spectra]) -> str:
    """κ of a random head and the largest of the model, thin and dense."""
    random, largest = spectra[0], spectra[-1]
    (_, thin), (kept, dense), (_, most), (_, said) = (
        one.condition(method) for one in (random, largest) for method in METHODS[:2]
    )
    right = all(one.condition(METHODS[2])[0] == one.thin.size for one in spectra)
    millions = [f"of {kind}" for kind, power in (("s", 1), ("λ", 2)) if most**power >= MILLION]
    real = f"millions are real here {' and '.join(millions)}" if millions else "no κ here reaches a million"
    return (
        f"A random head {GPT2} has a condition number κ of {thin:.2f} (of s) by thin factors in float64; a dense "
        f"float32 spectrum cut at {CUTOFF:g} keeps {kept} values where there are {random.thin.size}, and gives "
        f"{dense:.0e}. The largest κ of {name} is {most:.4g} of s, {most**2:.3g} of λ by thin factors: {real}. "
        f"Its dense float32 spectrum gives {said:.0e} of s, {said**2:.0e} of λ. "
        f"A cutoff of d ε s₁ keeps {'the right values' if right else 'too many values or too few'} here, but could not "
        f"tell a κ of s beyond 1/(d ε) = {1.0 / (largest.d_model * np.finfo(np.float32).eps):.1g} from rounding; thin "
        "factors can."
    )


def which_heads(tree: xr.DataTree, n_directions: np.ndarray) -> str:
    """Count the heads that differ from random ones, and the heads in which directions can be counted."""
    q_value = tree["heads"].dataset["omnibus_q_value"].values
    return (
        f"{int((q_value <= 0.05).sum())} of {int(np.isfinite(q_value).sum())} heads differ from random ones (q ≤ 0.05, "
        f"all statistics together). In {int(np.isfinite(n_directions).sum())} heads enough of the spectrum is like "
        "noise to count learned directions."
    )


def conventions(heads: xr.Dataset) -> Drawing:
    """NPR by layer, on λ, on s, and mixed."""
    figure, (axes,) = canvas(1, 3, 12.0, 3.8, sharey=True)
    one, two = columns(heads, NPR), columns(heads, f"{NPR}_singular")
    n_heads = heads.sizes["head"]
    across = np.linspace(-0.3, 0.3, n_heads) if n_heads > 1 else np.zeros(1)
    layer = np.add.outer(np.arange(heads.sizes["layer"]), across).ravel()
    band = layer if layer.size > 1 else np.array([-0.3, 0.3])  # of one head too there is a band to be seen
    panels = (
        ("λ on the null of λ", one[0], one[1], one[2], LIGHT.observed),
        ("s on the null of s", two[0], two[1], two[2], LIGHT.observed),
        ("mixed: s on the null of λ", two[0], one[1], one[2], LIGHT.flagged),
    )
    for ax, (title, value, mean, sd, colour) in zip(axes, panels, strict=True):
        low, high = (np.broadcast_to(mean + side * TWO_SIDED * sd, band.shape) for side in (-1, 1))
        ax.fill_between(band, low, high, color=LIGHT.null, alpha=0.35, lw=0,
                        label="null, 95 % of heads")  # fmt: skip
        ax.plot(layer, mean, color=LIGHT.null, lw=1.0)
        ax.plot(layer, value, "o", color=colour, ms=3.5, label="heads")
        titled(ax, title, "layer", "NPR" if ax is axes[0] else "")
        ax.set_xticks(np.unique(np.linspace(0, heads.sizes["layer"] - 1, 9).round()))
    axes[0].set_ylim(0.0, 1.02)
    legend_below(figure, [axes[0]])
    return figure


def condition_numbers(spectra: Sequence[Spectra]) -> Drawing:
    """Singular values of each head by both methods, over the largest."""
    figure, axes = canvas(1, len(spectra), 3.4 * len(spectra), 3.9, sharey=True)
    for ax, one in zip(axes[0], spectra, strict=True):
        index = np.arange(1, one.dense.size + 1)
        ax.plot(index, np.maximum(one.dense, 1e-30) / one.dense[0], color=LIGHT.flagged, lw=1.3,
                label="dense product, float32")  # fmt: skip
        ax.plot(index[: one.thin.size], one.thin / one.thin[0], "o", color=LIGHT.observed, ms=2.5,
                label="thin factors, float64")  # fmt: skip
        ax.axhline(CUTOFF / one.dense[0], color=LIGHT.muted, lw=0.9, ls="--", label=f"cutoff {CUTOFF:g}")
        ax.axvline(one.thin.size, color=LIGHT.muted, lw=0.8, ls=":")
        ax.set_yscale("log")
        titled(ax, one.named.replace(": ", ":\n"), "index $k$", "$s_k/s_1$" if ax is axes[0, 0] else "")
    axes[0, 0].set_ylim(1e-12, 2.0)
    legend_below(figure, [axes[0, 0]])
    return figure
