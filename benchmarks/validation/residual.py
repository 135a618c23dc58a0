"""Residual paths P = prod_l (I + sigma G_l / sqrt(d)), drawn as dense matrices."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from chains import kolmogorov_distance
from effort import Effort, generator

from comparison import ASYMPTOTIC, FloatArray, Row, Subject
from rmtbase.laws import FreeMultiplicativeBrownian, PathLength, ResidualPath, TracyWidom, residual_trace_moments

SECTION = "residual paths"


@dataclass(frozen=True)
class Path:
    """A residual path and how often to draw it."""

    depth: int
    sigma: float
    d_model: int
    draws: int


PATHS = (Path(4, 0.3, 128, 400), Path(2, 1.0, 128, 400), Path(16, 0.3, 128, 400), Path(8, 1.5, 128, 400))
"""For the law of the eigenvalues: soft lower edges, a hard one at sigma = 1, and one beyond."""
SMALL = (Path(1, 1.0, 12, 100_000), Path(4, 0.3, 24, 60_000), Path(12, 0.3, 16, 60_000), Path(3, 0.8, 8, 100_000))
"""For the exact moments at finite width."""
LENGTHS = (Path(6, 0.5, 24, 10_000),)
BROWNIAN = (Path(64, math.sqrt(0.5 / 64), 128, 200), Path(64, math.sqrt(2.0 / 64), 128, 200))
"""Deep and weak: the limit of infinitely many blocks."""
_PROBABILITIES = np.linspace(0.0005, 0.9995, 400)


def run(effort: Effort) -> tuple[list[Row], dict[str, Any]]:
    """Compare laws, edges, exact moments and the share of each path length."""
    rows: list[Row] = []
    curves = []
    for path in PATHS:
        found, curve = _law(path, effort.draws(path.draws))
        rows += found
        curves.append(curve)
        print(f"  {path}", flush=True)
    for path in SMALL:
        rows += _moments(path, effort.draws(path.draws))
    for path in LENGTHS:
        rows += _lengths(path, effort.draws(path.draws))
    for path in BROWNIAN[: 1 if effort.quick else None]:
        rows += _brownian(path, effort.draws(path.draws))
    return rows, {"paths": curves}


def draw(path: Path, count: int) -> FloatArray:
    """Matrices P, (draw, d, d)."""
    rng = generator(f"residual {path.depth} {path.sigma} {path.d_model}")
    identity = np.eye(path.d_model)
    product = np.broadcast_to(identity, (count, path.d_model, path.d_model))
    for _ in range(path.depth):
        noise = rng.standard_normal((count, path.d_model, path.d_model))
        product = product @ (identity + path.sigma / math.sqrt(path.d_model) * noise)
    return product


def _parameters(path: Path) -> dict[str, Any]:
    return {"depth": path.depth, "sigma": round(path.sigma, 6), "d_model": path.d_model}


def _law(path: Path, count: int) -> tuple[list[Row], dict[str, Any]]:
    law = ResidualPath(path.depth, path.sigma)
    eigenvalues = np.linalg.svd(draw(path, count), compute_uv=False) ** 2
    parameters = _parameters(path)
    rows = list(_pooled(Subject(SECTION, "eigenvalues of P P^T", parameters, ASYMPTOTIC), law, eigenvalues))
    lower_scale, upper_scale = law.edge_scale(path.d_model)
    tw = TracyWidom(1)
    ends = [("largest eigenvalue", law.support[1], upper_scale, 0)]
    if lower_scale is not None:
        ends.append(("smallest eigenvalue", law.support[0], -lower_scale, -1))
    for name, edge, scale, index in ends:
        subject = Subject(SECTION, f"{name}, first order", parameters, ASYMPTOTIC)
        rows.append(subject.mean(eigenvalues[:, index], edge + scale * tw.mean()))
        rows.append(subject.std(eigenvalues[:, index], abs(scale) * tw.std()))
    ordered = np.sort(eigenvalues, axis=None)
    at = law.ppf(_PROBABILITIES)
    shares = np.searchsorted(ordered, at) / ordered.size
    return rows, {
        **parameters,
        "probability": _PROBABILITIES.tolist(),
        "eigenvalue": at.tolist(),
        "simulated": shares.tolist(),
    }


def _pooled(subject: Subject, law: Any, eigenvalues: FloatArray) -> Iterator[Row]:
    batches = np.array_split(eigenvalues, 10)
    width = eigenvalues.shape[1]
    distances = [width * kolmogorov_distance(batch, law) for batch in batches]
    error = float(np.std(distances) / math.sqrt(len(batches)))
    whole = width * kolmogorov_distance(eigenvalues, law)
    yield subject.number("d_model x Kolmogorov distance", 0.0, whole, error, len(eigenvalues))
    logs = np.log(eigenvalues).mean(axis=1)
    error = float(logs.std() / math.sqrt(logs.size))
    yield subject.number("mean of ln lambda", law.log_mean(), float(logs.mean()), error, logs.size)
    for k in (1, 2):
        each = (eigenvalues**k).mean(axis=1)
        error = float(each.std() / math.sqrt(each.size))
        yield subject.number(f"mean of lambda^{k}", law.moment(k), float(each.mean()), error, each.size)


def _moments(path: Path, count: int) -> Iterator[Row]:
    product = draw(path, count)
    square = product @ product.mT
    first = np.einsum("nii->n", square)
    second = np.einsum("nij,nij->n", square, square)
    exact = residual_trace_moments(path.depth, path.sigma, path.d_model)
    parameters = _parameters(path)
    trace, of_square = (Subject(SECTION, name, parameters) for name in ("tr P P^T", "tr (P P^T)^2"))
    yield trace.mean(first, exact.mean_trace)
    yield trace.std(first, exact.std_trace)
    yield of_square.mean(second, exact.mean_trace_of_square)
    yield of_square.std(second, exact.std_trace_of_square)
    pair = Subject(SECTION, "tr P P^T, tr (P P^T)^2", parameters)
    yield pair.covariance(first, second, exact.covariance)


def _lengths(path: Path, count: int) -> Iterator[Row]:
    """Squared norms of the sums of all products of exactly k blocks."""
    rng, d = generator(f"path lengths {path}"), path.d_model
    orders = [np.broadcast_to(np.eye(d), (count, d, d))] + [np.zeros((count, d, d))] * path.depth
    for _ in range(path.depth):
        block = path.sigma / math.sqrt(d) * rng.standard_normal((count, d, d))
        orders = [orders[0], *(orders[k] + orders[k - 1] @ block for k in range(1, path.depth + 1))]
    law = PathLength(path.depth, path.sigma)
    for k in range(1, path.depth + 1):
        subject = Subject(SECTION, "squared norm of the paths of one length", {**_parameters(path), "length": k})
        yield subject.mean(np.einsum("nij,nij->n", orders[k], orders[k]) / d, law.squared_norm(k))


def _brownian(path: Path, count: int) -> Iterator[Row]:
    t = path.depth * path.sigma**2
    eigenvalues = np.linalg.svd(draw(path, count), compute_uv=False) ** 2
    subject = Subject(
        SECTION, "free multiplicative Brownian motion", {**_parameters(path), "t": round(t, 6)}, ASYMPTOTIC
    )
    yield from _pooled(subject, FreeMultiplicativeBrownian(t), eigenvalues)
