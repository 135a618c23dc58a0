"""Simulated residual paths against their laws: edges, moments, and the distribution between."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmtbase.ensembles import residual_path
from rmtbase.laws import ResidualPath, TracyWidom, residual_trace_moments
from rmtbase.montecarlo import draw_spectra

DEPTHS = (1, 4, 10, 16)
SIGMAS = (1.0, 0.3)
DRAWS = {64: 1600, 128: 640, 256: 160, 512: 48, 1024: 12}  # by width
PUBLISHED_EDGES = {(1, 1.0): 6.75, (10, 0.3): 15.00988, (16, 1.0): 2.23332e6}  # of lambda, to be checked

Array = NDArray[np.float64]


def spectra(width: int, depth: int, sigma: float, draws: int, part: str = "path") -> Array:
    """Eigenvalues of P P^T, descending, (draw, d)."""
    ensemble = residual_path(width, depth, sigma, part)
    return np.concatenate([chunk.singular_values for chunk in draw_spectra(ensemble, draws, seed=0)]) ** 2


def verify() -> dict[str, Any]:
    """Every case at every width, and its limit."""
    cases = [_case(depth, sigma) for sigma in SIGMAS for depth in DEPTHS]
    edges = [
        {"depth": depth, "sigma": sigma, "published": edge, "law": ResidualPath(depth, sigma).support[1]}
        for (depth, sigma), edge in PUBLISHED_EDGES.items()
    ]
    return {"draws": {str(width): draws for width, draws in DRAWS.items()}, "edges": edges, "cases": cases}


def _case(depth: int, sigma: float) -> dict[str, Any]:
    law = ResidualPath(depth, sigma)
    widths = []
    for width, draws in DRAWS.items():
        found = spectra(width, depth, sigma, draws)
        widths.append({"width": width, **_extremes(law, width, found), **_moments(law, width, found)})
        print(f"depth {depth}, sigma {sigma}, width {width}", flush=True)
    ends = ("largest", "smallest") if widths[0]["smallest"] else ("largest",)
    return {
        "depth": depth,
        "sigma": sigma,
        "support": list(law.support),
        "widths": widths,
        "limit": {end: _limit([{"width": one["width"], **one[end]} for one in widths]) for end in ends},
    }


def _extremes(law: ResidualPath, width: int, found: Array) -> dict[str, Any]:
    lower_scale, upper_scale = law.edge_scale(width)
    lower, upper = law.support
    return {
        "largest": _extreme(found[:, 0], upper, upper_scale),
        "smallest": None if lower_scale is None else _extreme(found[:, -1], lower, -lower_scale),
    }


def _extreme(values: Array, edge: float, scale: float) -> dict[str, float]:
    """Compare an extreme eigenvalue with its prediction, in Tracy-Widom scales, positive away from the bulk."""
    law = TracyWidom()
    standard = (values - edge) / scale
    return {
        "mean": float(values.mean()),
        "edge": edge,
        "edge_scale": abs(scale),
        "predicted_mean": edge + scale * law.mean(),
        "shift": float(standard.mean() - law.mean()),  # of the mean, beyond Tracy-Widom's, in units of the scale
        "shift_error": float(law.std() / np.sqrt(len(values))),
        "std_ratio": float(standard.std(ddof=1) / law.std()),
        "std_ratio_error": float(1.0 / np.sqrt(2.0 * len(values))),
    }


def _limit(widths: list[dict[str, float]]) -> dict[str, float]:
    """Fit the shift at infinite width: weighted least squares of a + b d^(-1/3), the order neglected by Tracy-Widom."""
    d, shift, error = (np.array([one[name] for one in widths]) for name in ("width", "shift", "shift_error"))
    design = np.stack([np.ones(d.size), d ** (-1 / 3)], axis=1) / error[:, None]
    covariance = np.linalg.inv(design.T @ design)
    intercept, slope = covariance @ design.T @ (shift / error)
    through_zero = float((design[:, 1] @ (shift / error)) / (design[:, 1] @ design[:, 1]))
    return {
        "shift": float(intercept),
        "shift_error": float(np.sqrt(covariance[0, 0])),
        "slope": float(slope),
        "slope_through_zero": through_zero,
        "chi_square_through_zero": float((((shift - through_zero * d ** (-1 / 3)) / error) ** 2).sum()),
    }


def _moments(law: ResidualPath, width: int, found: Array) -> dict[str, Any]:
    exact = residual_trace_moments(law.depth, law.sigma, width)
    draws = len(found)
    trace, square = found.sum(axis=1), (found**2).sum(axis=1)
    ordered = np.sort(found.ravel())
    level = law.cdf(ordered)
    step = np.arange(1, ordered.size + 1) / ordered.size
    return {
        "first_moment": float(trace.mean() / width),
        "first_moment_exact": exact.mean_trace / width,
        "first_moment_limit": law.moment(1),
        "first_moment_z": float((trace.mean() - exact.mean_trace) / exact.std_trace * np.sqrt(draws)),
        "second_moment": float(square.mean() / width),
        "second_moment_exact": exact.mean_trace_of_square / width,
        "second_moment_limit": law.moment(2),
        "second_moment_z": float((square.mean() - exact.mean_trace_of_square) / exact.std_trace_of_square * draws**0.5),
        "distribution_distance": float(np.maximum(np.abs(level - step), np.abs(level - step + 1 / ordered.size)).max()),
    }
