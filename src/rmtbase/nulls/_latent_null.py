"""Null of heads of latent attention, each at its own ratio between the two parts of its keys."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.laws import BINS, PROBABILITIES
from rmtbase.linalg import DTYPE, PRNG_IMPLEMENTATION, available_cores
from rmtbase.nulls._head_null import EDGE_LEVEL, Heads, HeadScores, ScoredHeads, chain_scale, null_spectrum
from rmtbase.nulls._random_heads import upper_point
from rmtbase.nulls._sample_null import GaussianNull, unscored_head
from rmtbase.progress import Progress
from rmtbase.statistics import LatentShape, from_distance_scale, on_distance_scale

_STEP = 1.0 / 16.0
_POINTS = np.arange(-1, 3)  # the four nodes of a cubic, counted from the node below


@dataclass(frozen=True)
class LatentNull:
    """Null of heads of latent attention, drawn at ratios e^(j/16), interpolated by cubics in ln ratio to theirs."""

    # Heads of a layer share W_DQ, W_DKV and W_KR: each p-value is valid by itself, but they depend on each other.

    shape: LatentShape  #: shape of the heads
    draws: int  #: number of draws, the same for every head
    seed: int  #: seed of the draws
    entries = "normal"
    source = "simulated"
    method = "simulated"
    per_head = False
    edge_level = EDGE_LEVEL

    @property
    def p_value_floor(self) -> float:
        return 2.0 / (self.draws + 1)

    def described(self, factors: str) -> str:
        return (
            "gaussian: i.i.d. Gaussian factors of latent attention, drawn jointly, at the head's own sigmas, every "
            "null draw at its own estimates"
        )

    def record(self) -> dict[str, object]:
        return {
            "latent_attention": asdict(self.shape),
            "draws": self.draws,
            "seed": self.seed,
            "key": "fold_in(fold_in(key(seed), crc32(ensemble at rope_ratio=1.0)), draw)",
            "rope_ratios": "exp(j / 16), statistics of each draw interpolated by cubics in the logarithm",
            "dtype": DTYPE,
            "prng": PRNG_IMPLEMENTATION,
        }

    def score_heads(self, heads: Heads, progress: Progress) -> ScoredHeads:
        from rmtbase.ensembles import latent_attention
        from rmtbase.montecarlo import cached_latent_attention

        assert heads.rope_ratio is not None  # heads of this shape have one
        scale, ratio = chain_scale(heads.sigmas), heads.rope_ratio
        scale = np.where(np.isfinite(ratio) & (ratio > 0), scale, np.nan)
        place = np.log(np.where(np.isnan(scale), 1.0, ratio)) / _STEP
        below = np.floor(place).astype(int)
        nodes = np.unique(below[..., None] + _POINTS)
        ensemble, ratios = latent_attention(**asdict(self.shape)), np.exp(_STEP * nodes).tolist()
        drawn = cached_latent_attention(ensemble, ratios, self.draws, self.seed, progress)
        on_scale = on_distance_scale(drawn.sample)

        def scored(where: tuple[int, ...]) -> HeadScores:
            if np.isnan(scale[where]):
                return unscored_head(heads.singular_values.shape[-1])[0]
            first = int(np.searchsorted(nodes, below[where] - 1))
            at = float(place[where] - below[where])
            # Lagrange's cubic
            weights = np.array([np.prod([(at - z) / (node - z) for z in _POINTS if z != node]) for node in _POINTS])
            sample = from_distance_scale(np.tensordot(weights, on_scale[first : first + weights.size], axes=1))
            null = GaussianNull(self.shape.dims, sample, self.source, xr.Dataset())
            return null.score(heads.singular_values[where], scale[where])

        with ThreadPoolExecutor(available_cores()) as pool:
            heads_in_order = list(pool.map(scored, np.ndindex(scale.shape)))
        per_layer = scale.shape[1]
        layers = [heads_in_order[start : start + per_layer] for start in range(0, len(heads_in_order), per_layer)]
        scores = HeadScores.stacked([HeadScores.stacked(layer) for layer in layers])
        shown = int(np.searchsorted(nodes, np.round(np.median(place))))
        return ScoredHeads(scores, lambda: _group(drawn.eigenvalues[shown]))


def _group(eigenvalues: Float[np.ndarray, "draw rank"]) -> xr.Dataset:
    edges = np.linspace(0.0, 1.05 * eigenvalues.max(), BINS + 1)
    counts = np.stack([np.histogram(spectrum, edges)[0] for spectrum in eigenvalues])
    density = counts / (eigenvalues.shape[1] * np.diff(edges))
    moved = upper_point(eigenvalues)
    error, nothing = density.std(axis=0, ddof=1) / np.sqrt(len(density)), np.full(BINS, np.nan)
    quantile = np.quantile(eigenvalues, PROBABILITIES, axis=0).T
    group = null_spectrum(eigenvalues.mean(axis=0), quantile, edges, density.mean(axis=0), nothing, error)
    return group.assign(
        edge_quantile_lower=float(np.quantile(eigenvalues[:, -1], EDGE_LEVEL)),
        edge_quantile_upper=float(np.quantile(eigenvalues[:, 0], 1.0 - EDGE_LEVEL)),
        moved_share_upper=moved.value,
        moved_share_upper_standard_error=moved.standard_error,
    ).assign_coords(probability=np.array(PROBABILITIES), index=np.arange(eigenvalues.shape[1]))
