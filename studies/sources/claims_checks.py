"""Checks of claims about checkpoints that no row of a recipe makes, of the models of a run."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import xarray as xr
from scipy import stats

import rmtbase
from rmtbase import laws
from rmtbase.models import Model
from rmtbase.results.comparison import TRANSMISSION, weibull_scales
from rmtbase.results.trajectory.schema import scores_at
from studies.sources.claims_laws import NPR, Found
from studies.sources.course import STUDIES, course, steps_of
from studies.sources.published import published_table
from studies.sources.recipe import Null, Run
from studies.sources.spectra import COMPONENTS
from studies.sources.statements import Scored, beside_random, learned, of_elements, of_heads, rank_correlation, scored
from studies.sources.training import chance_distances, courses, independent_spectra
from studies.sources.training_figures import NAMES, middle
from studies.sources.verdicts import Claim, Kind, Side, beyond_chance, beyond_draws, most, within

_PERMUTATIONS, _SEED = 9999, 0
RATIO_ROUNDED = 0.05
"""Margin of *∼1.2×*: what rounds to it."""


@dataclass(frozen=True)
class Evidence:
    """Evidence for the checks: the run's model, its scores, and its scores along training if known."""

    run: Run

    @cached_property
    def along(self) -> xr.DataTree | None:
        """Scores along training, or None."""
        return course(self.run)

    @cached_property
    def matrices(self) -> xr.Dataset:
        """Group /matrices of the scores of the last checkpoint."""
        along = self.along
        tree = self.run.scores() if along is None else scores_at(along, steps_of(along)[-1])
        return tree["matrices"].to_dataset()

    @cached_property
    def both(self) -> Scored:
        """Scores of the heads, as the recipes of the posts read them, beside random heads."""
        return beside_random(self.run, scored(self.run))

    @cached_property
    def depths(self) -> list[tuple[str, int, float]]:
        """Component, nearest depth and p-value of each matrix, layer by layer."""
        if self.run.model == "demo":
            path = STUDIES / "residual_depth" / "results.json"
            fits = json.loads(path.read_text(encoding="utf-8"))["trained"]["final"]
            fitted = ((fit["component"], fit["fits"]["path wasserstein"]) for fit in fits)
            return [(component, fit["depth"], fit["p_value"]) for component, fit in fitted]
        kept = self.run.arrays("depth", nearest_depths)
        return list(zip(kept["component"].tolist(), kept["depth"].tolist(), kept["p_value"].tolist(), strict=True))

    def queries_and_keys(self, statistic: str, what: str) -> np.ndarray:
        """Select a score of the query and key matrices, fused or not, (layer, component)."""
        held = self.matrices["component"].values.tolist()
        wanted = [name for name in ("attention_query", "attention_key", "attention_query_key_value") if name in held][
            :2
        ]
        chosen = self.matrices[what].sel(statistic=statistic, component=wanted)
        return chosen.transpose("layer", "component").values


def nearest_depths(model: Model) -> dict[str, np.ndarray]:
    """Fit a depth to each weight matrix of a model, layer by layer."""
    depths = rmtbase.depth(model).transpose("layer", "component", ...)
    known = depths["effective_depth"].notnull().values
    components = np.broadcast_to(depths["component"].values.astype(str), known.shape)
    numbers = {name: depths[variable].values[known]
               for name, variable in (("depth", "effective_depth"), ("p_value", "p_value"))}  # fmt: skip
    return {"component": components[known], "depth": numbers["depth"].astype(int), "p_value": numbers["p_value"]}


def _of_transmission(values: xr.DataArray) -> xr.DataArray:
    """Select the components of the Transmission Class that the model has."""
    return values.sel(component=[name for name in TRANSMISSION if name in values["component"].values])


def _in_order(x: np.ndarray, y: np.ndarray, side: Side) -> tuple[float | None, Claim]:
    """Rank correlation of y with x, and the claim that it is beyond that of any order; None for too few."""
    value = float(rank_correlation(x, y))
    if not np.isfinite(value):
        return None, Claim(Kind.LEARNED, None)
    orders = np.random.default_rng(_SEED).permuted(np.tile(y, (_PERMUTATIONS, 1)), axis=1)
    return value, beyond_draws(value, rank_correlation(x, orders), side)


def means_before_training(evidence: Evidence) -> Found:
    """Compare means of the run's matrices at step 0, or of matrices with Pythia-70m's sizes if step 0 is unknown."""
    table = published_table("weibull-table-5")
    d, layers = (int(table.number("Pythia-70m", name)) for name in ("width", "layers"))
    sizes, observed = np.tile([3 * d * d, d * d, 4 * d * d, 4 * d * d], layers), None
    if evidence.along is not None and steps_of(evidence.along)[0] == 0:
        held = evidence.along["matrices"].to_dataset().isel(step=0)
        sizes = (held["n_rows"] * held["n_columns"]).values.ravel()
        sizes = sizes[sizes > 0]
        observed = 100 * float(np.abs(held["observed"].sel(statistic="mean")).max())
    drawn = np.abs(np.random.default_rng(_SEED).standard_normal((4000, sizes.size)) / np.sqrt(sizes)).max(axis=1)
    low, high = (100 * float(end) for end in np.quantile(drawn, [0.025, 0.975]))
    null = Null(None, None, low, high, "% of σ, 95 % of untrained models")
    chance = float(np.mean(drawn < 0.003))
    claim = None if observed is None else Claim(Kind.PRINTED, observed, high=0.3)
    return Found(observed, null, claim, f"chance of less than 0.3 % in {sizes.size} matrices: {chance:.2g}")


def r_squared_of_the_null(evidence: Evidence) -> Found:
    value = laws.weibull_anchor().r_squared
    least = float(_of_transmission(evidence.matrices["observed"]).sel(statistic="weibull_r_squared").min())
    note = "no test of anything: untrained weights pass"
    return Found(least, Null(value, of="half-normal weights"), Claim(Kind.PRINTED, least, low=0.99), note)


def unfitted(evidence: Evidence) -> Found:
    """Explain that no k is fitted if every query or key matrix has exact zeros, as quantised matrices may."""
    note = f"no k of queries and keys is fitted to {evidence.run.label}, whose weights have exact zeros"
    return Found(None, claim=Claim(Kind.LEARNED, None), note=note)


def queries_and_keys_below(evidence: Evidence) -> Found:
    z = evidence.queries_and_keys("weibull_shape", "z_score")
    z = z[np.isfinite(z)]
    if not z.size:
        return unfitted(evidence)
    below, share = int(np.sum(z < -1.96)), 0.025
    as_many, as_few = float(stats.binom.sf(below - 1, z.size, share)), float(stats.binom.cdf(below, z.size, share))
    claim = beyond_chance(below / z.size, as_many, as_few, Side.ABOVE)
    return Found(below / z.size, Null(share, of="untrained"), claim, f"{below} of {z.size}, p = {as_many:.1g}")


def order_of_five(evidence: Evidence) -> Found:
    """Rank correlation of T/τ as printed and the median k of the fused W_QKV at the end, over the sizes of a run."""
    table, budgets, shapes = published_table("weibull-table-3"), [], []
    for label, own in _members(evidence.run):
        size = next((name for name in table.labels if name.lower() == label.lower()), None)
        if size is not None:
            budgets.append(table.number(size, "budget"))
            shapes.append(float(np.nanmedian(Evidence(own).queries_and_keys("weibull_shape", "observed"))))
    value, claim = _in_order(np.array(budgets), np.array(shapes), Side.BELOW)
    note = f"{len(shapes)} sizes; five in order, two of them tied, have a chance of 0.017"
    return Found(value, Null(0.0, of="any order"), claim if budgets else None, note)


def _members(run: Run) -> Iterator[tuple[str, Run]]:
    for model in run.models or (run.model,):
        own = replace(run, model=model, models=(model,))
        yield own.label.rpartition("/")[2], own


def depth_of_selection(evidence: Evidence) -> Found:
    shape = evidence.queries_and_keys("weibull_shape", "observed").mean(axis=1)
    if np.isnan(shape).all():
        return unfitted(evidence)
    known = np.flatnonzero(np.isfinite(shape))
    value, claim = _in_order(known, shape[known], Side.BELOW)
    return Found(value, Null(0.0, of="any layer alike"), claim, f"{known.size} layers")


def retreat_of_the_scale(evidence: Evidence) -> Found:
    """Compare the end over the peak with that of as many untrained draws, which have a largest one, too."""
    if evidence.along is None:
        return Found(None)
    matrices, name = evidence.along["matrices"].to_dataset(), "attention_output"
    scale = weibull_scales(matrices).sel(component=name).mean("layer").values
    number = (matrices["n_rows"] * matrices["n_columns"]).sel(component=name)
    number = float(number.isel(step=0).sum() if "step" in number.dims else number.sum())
    law = laws.weibull_null().scale
    drawn = np.random.default_rng(_SEED).normal(1.0, law.spread / law.limit / np.sqrt(number), (4000, scale.size))
    chance = drawn[:, -1] / drawn.max(axis=1)
    ratio, at = float(scale[-1] / scale.max()), steps_of(evidence.along)[int(np.argmax(scale))]
    null = Null(float(chance.mean()), float(chance.std()), of="untrained draws")
    return Found(ratio, null, beyond_draws(ratio, chance, Side.BELOW), f"peak at step {at}")


def depth_of_trained_matrices(evidence: Evidence) -> Found:
    fits = np.array([p > 0.05 for _, _, p in evidence.depths])
    depths = [depth for _, depth, _ in evidence.depths]
    note = f"of {fits.size} matrices; nearest depths {min(depths)} to {max(depths)}; most of them"
    null = Null(0.95 * fits.size, of="true paths, at p > 0.05")
    return Found(int(fits.sum()), null, most(fits), note)


def depth_by_layer(evidence: Evidence) -> Found:
    words, both = [], []
    for component, name in (("attention_output", "attention output"), ("mlp_out", "MLP out")):
        depths = [depth for held, depth, _ in evidence.depths if held == component]
        words.append(f"{name} {', '.join(map(str, depths))}")
        both.append(depths)
    length = min(map(len, both))
    means = np.mean([depths[:length] for depths in both], axis=0)
    _, claim = _in_order(np.arange(length), means, Side.BELOW)
    return Found("; ".join(words), Null(1.0), claim, "nearest depth, layer by layer")


def between_noise_and_one_value(evidence: Evidence) -> Found:
    """Share of heads that differ from the null and have a participation ratio above 2."""
    heads = evidence.both.tree["heads"].to_dataset()
    beyond = heads["p_value"].sel(statistic=NPR).values < 0.05
    modes = heads["observed"].sel(statistic="participation_ratio").values
    chosen = (beyond & (modes > 2.0))[np.isfinite(modes)]
    number, count, share = int(chosen.sum()), chosen.size, 0.05
    as_many, as_few = float(stats.binom.sf(number - 1, count, share)), float(stats.binom.cdf(number, count, share))
    claim = beyond_chance(number / count, as_many, as_few, Side.ABOVE)
    note = f"NPR outside 95 %, PR of λ above 2, {count} heads"
    return Found(number / count, Null(share, of="random heads"), claim, note)


def low_npr_and_heavy_tails(evidence: Evidence) -> Found:
    (npr,), kurtosis = of_heads(evidence.both, NPR), of_elements(evidence.both, "excess_kurtosis", "W_QK")
    if npr.value.shape != kurtosis.value.shape:
        return Found(None, note="some heads lack one of the two")
    both = learned(rank_correlation, Side.BELOW, npr, kurtosis)
    note = f"{npr.value.size} heads; NPR of λ, excess kurtosis of W_QK's elements"
    return Found(both.value, both.null, both.claim, note)


def full_data_underestimates(evidence: Evidence) -> Found:
    whole, body = laws.weibull_anchor(0.0).shape, laws.weibull_anchor().shape
    held = _of_transmission(evidence.matrices["observed"])
    share = 100 * float((held.sel(statistic="body_tail_gap") / held.sel(statistic="weibull_shape")).median())
    null = Null(100 * (1.0 - whole / body), of="half-normal weights, which have no tail")
    claim = Claim(Kind.PRINTED, share, low=3.0, high=7.0)
    return Found(share, null, claim, "median matrix of the Transmission Class")


def drift_of_the_classes(evidence: Evidence) -> Found:
    """Change of k from the first step to the last, over all models of the run whose training is known."""
    classes = (TRANSMISSION, ("attention_query", "attention_key", "attention_query_key_value"))
    changes: tuple[list[np.ndarray], ...] = ([], [])
    for _, own in _members(evidence.run):
        along = course(own)
        if along is None:
            continue
        shape = along["matrices"].to_dataset()["observed"].sel(statistic="weibull_shape")
        change = (shape.isel(step=-1) - shape.isel(step=0)).transpose("layer", "component")
        held = change["component"].values.tolist()
        for own_class, names in zip(changes, classes, strict=True):
            own_class.append(change.sel(component=[name for name in names if name in held]).values.ravel())
    if not changes[0]:
        return Found(None)
    both = [float(np.nanmedian(np.concatenate(own_class))) for own_class in changes]
    words = f"Transmission {both[0]:+.3f}, Selection {both[1]:+.3f}"
    farthest = max((both[0] + 0.014, both[1] + 0.071), key=abs)
    note = f"of {len(changes[0])} models whose training is known; the published ones are of twelve"
    return Found(words, Null(0.0, of="untrained"), within(farthest, 0.0, 0.0005, kind=Kind.PRINTED), note)


def ratio_at_the_end(evidence: Evidence) -> Found:
    if evidence.along is None:
        return Found(None)
    scale = weibull_scales(evidence.along["matrices"].to_dataset()).mean("layer")
    fused = "attention_query_key_value" in scale["component"].values
    reads = "attention_query_key_value" if fused else "attention_query"
    pairs = ((reads, "attention_output"), ("mlp_in", "mlp_out"))
    ratios = [(scale.sel(component=into) / scale.sel(component=out)).values for into, out in pairs]
    first, last = (float(np.mean([ratio[at] for ratio in ratios])) for at in (0, -1))
    claim, null = within(last, 1.2, RATIO_ROUNDED, kind=Kind.PRINTED), Null(first, of="the same before training")
    return Found(last, null, claim, f"mean of both pairs; ∼: within {RATIO_ROUNDED:g}")


def output_nearest_to_gaussian(evidence: Evidence) -> Found:
    """Compare distances of the middle layer's spectra from Gaussian ones; much nearer means half as far.

    Of each distance that of a matrix with independent elements is taken away.
    """
    spectra, name_of_run = courses(evidence.run)[0].spectra[-1], courses(evidence.run)[0].name
    excess, errors, seen = {}, {}, {}
    for name in COMPONENTS:
        spectrum = middle(spectra, name)
        if spectrum is not None:
            pooled = independent_spectra(spectrum.rows, spectrum.columns).ravel()
            chance = chance_distances(spectrum.rows, spectrum.columns)
            seen[name] = float(stats.wasserstein_distance(spectrum.values, pooled))
            excess[name], errors[name] = seen[name] - float(chance.mean()), float(chance.std())
    output = "attention_output"
    if output not in excess or len(excess) < 2:
        return Found(None)
    nearest = min((name for name in excess if name != output), key=lambda name: excess[name])
    error = float(np.hypot(errors[output], 0.5 * errors[nearest]))
    claim = Claim(Kind.EQUALITY, excess[output] - 0.5 * excess[nearest], high=0.0, error=error)
    others = ", ".join(f"{NAMES[name]} {value:.2g}" for name, value in seen.items() if name != output)
    note = f"{others}; {name_of_run} of the recipe training; much: half as far beyond chance"
    return Found(seen[output], Null(0.0, of="independent elements"), claim, note)


CHECKS: dict[str, tuple[str, Callable[[Evidence], Found]]] = {
    check.__name__: (reads, check)
    for reads, checks in (
        ("post2", (between_noise_and_one_value, low_npr_and_heavy_tails)),
        ("weibull", (
            means_before_training, r_squared_of_the_null, queries_and_keys_below, order_of_five, depth_of_selection,
            retreat_of_the_scale, full_data_underestimates, drift_of_the_classes, ratio_at_the_end,
        )),
        ("training", (output_nearest_to_gaussian,)),
        ("depth", (depth_of_trained_matrices, depth_by_layer)),
    )
    for check in checks
}  # fmt: skip
"""By the names that ``claims.json`` uses: whose readings of a checkpoint the check uses, and the check."""
