"""The toy model of the sources, and trained matrices beside it: how heavy, how many near zero, and does a depth fit?"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from verify import spectra

from rmtbase.laws import ResidualPath, ResidualUpdate, marchenko_pastur
from rmtbase.models import demo_revisions, open_model
from rmtbase.results.depth import effective_depth

WIDTH = 512
TOY_DRAWS = 8
DEPTHS = (1, 2, 4, 10, 16, 20, 32)
NEAR_ZERO = 0.1  # of the root mean square
BIN_EDGES = np.linspace(0.0, 9.0, 91)  # singular values over their root mean square: the same in every panel
RULES = [(part, distance) for part in ("path", "update") for distance in ("wasserstein", "kolmogorov_smirnov")]

Array = NDArray[np.float64]


def toy() -> list[dict[str, Any]]:
    """Singular values of P and of P - I at sigma = 1, over their root mean square."""
    return [_toy(depth, part) for part in ("path", "update") for depth in DEPTHS]


def _toy(depth: int, part: str) -> dict[str, Any]:
    values = np.sqrt(spectra(WIDTH, depth, 1.0, TOY_DRAWS, part))
    print(f"toy model, {part} of depth {depth}", flush=True)
    entry: dict[str, Any] = {"part": part, "depth": depth, **_shape(values), "density": _density(values)}
    try:
        law = (ResidualPath if part == "path" else ResidualUpdate)(depth, 1.0)
    except ValueError:  # the law of the update ends at depth 17
        return entry
    unit = np.sqrt(law.mean())
    entry["law"] = {
        "near_zero": float(law.cdf((NEAR_ZERO * unit) ** 2)),
        "largest": float(np.sqrt(law.support[1]) / unit),
    }
    return entry


def gaussian_and_logistic() -> dict[str, Any]:
    """Make the two comparisons of the sources, for a square matrix with independent elements of either law."""
    rng = np.random.default_rng(0)
    shapes = {}
    for name, law in (("gaussian", stats.norm()), ("logistic", stats.logistic())):
        draws = [law.rvs(size=(WIDTH, WIDTH), random_state=rng) for _ in range(TOY_DRAWS)]
        values = np.stack([np.linalg.svd(draw, compute_uv=False) for draw in draws])
        shapes[name] = {**_shape(values), "density": _density(values)}
    law = marchenko_pastur(WIDTH, WIDTH, WIDTH**-0.5)
    shapes["quarter_circle"] = {"near_zero": float(law.cdf(NEAR_ZERO**2)), "largest": float(np.sqrt(law.support[1]))}
    return shapes


def trained() -> dict[str, Any]:
    """Every weight matrix of the bundled model at each checkpoint."""
    found = {}
    for revision in demo_revisions():
        model = open_model("demo", revision)
        places = [(layer, component) for layer in range(model.n_layers) for component in model.components]
        found[revision] = [
            {"layer": layer, "component": component, **_matrix(model.matrix(layer, component).astype(np.float64))}
            for layer, component in places
        ]
        if revision != demo_revisions()[-1]:  # only these are drawn
            for matrix in found[revision]:
                del matrix["singular_values"]
        print(f"demo model, {revision}", flush=True)
    return found


def _matrix(matrix: Array) -> dict[str, Any]:
    values = np.linalg.svd(matrix, compute_uv=False)
    fits = {f"{part} {distance}": _fit(matrix, part, distance) for part, distance in RULES}
    return {
        "shape": list(matrix.shape),
        **_shape(values[None]),
        "root_mean_square": float(np.sqrt((values**2).mean())),
        "singular_values": [float(f"{value:.5g}") for value in values / np.sqrt((values**2).mean())],
        "independent": _independent(matrix, values),
        "fits": fits,
    }


def _fit(matrix: Array, part: str, distance: str) -> dict[str, Any]:
    found = effective_depth(matrix, part=part, distance=distance)
    return {
        "depth": found.depth,
        "interval": list(found.interval),
        "distance": found.distance,
        "scale": found.scale,
        "p_value": found.p_value,
        "fits": found.fits,
    }


def _independent(matrix: Array, values: Array) -> dict[str, float]:
    """W1 over the mean, scale profiled out, to a matrix of the same shape with independent elements of a fitted law."""
    rng = np.random.default_rng(0)
    fitted = {"gaussian": stats.norm(*stats.norm.fit(matrix)), "logistic": stats.logistic(*stats.logistic.fit(matrix))}
    near_zero, distances = {}, {}
    for name, law in fitted.items():
        other = np.linalg.svd(law.rvs(size=matrix.shape, random_state=rng), compute_uv=False)
        near_zero[f"{name}_near_zero"] = _shape(other[None])["near_zero"]
        distances[f"{name}_distance"] = _profiled(values, other)
    return {**distances, **near_zero}


def _profiled(values: Array, other: Array) -> float:
    """min_c sum |s - c q| / sum s."""
    ratio = values / other
    order = np.argsort(ratio)
    weight = np.cumsum(other[order])
    scale = ratio[order][np.argmax(weight >= 0.5 * weight[-1])]
    return float(np.abs(values - scale * other).sum() / values.sum())


def _shape(values: Array) -> dict[str, float]:
    """Share near zero and the largest value, over the root mean square of each draw, averaged over the draws."""
    standard = values / np.sqrt((values**2).mean(axis=1, keepdims=True))
    return {"near_zero": float((standard < NEAR_ZERO).mean()), "largest": float(standard.max(axis=1).mean())}


def _density(values: Array) -> list[float]:
    standard = values / np.sqrt((values**2).mean(axis=1, keepdims=True))
    counts = np.histogram(standard, BIN_EDGES)[0]
    return [float(f"{x:.4g}") for x in counts / (standard.size * np.diff(BIN_EDGES))]
