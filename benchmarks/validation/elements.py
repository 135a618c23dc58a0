"""Single elements of W_QK, and averages and entropy estimates over the elements of one matrix."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from effort import Effort, generator

from comparison import ASYMPTOTIC, EXACT, FloatArray, Limits, Row, Subject
from rmtbase import laws, statistics
from rmtbase.laws import ProductElement

SECTION = "elements"
HEADS = (1, 2, 8, 64)
ELEMENTS = 2_000_000
_PRODUCTS = 1 << 24  # products drawn at a time
_CDF = (0.5, 0.9, 0.99, 0.999, 1e-4)
MATRICES = ((64, 8, 4000), (128, 16, 2000), (192, 64, 1000))
"""(d_model, d_head, matrices) for the estimates from one matrix."""
_BINS, _RANGE = 60, (-6.0, 6.0)  # in units of the element's standard deviation
_ESTIMATES = Limits(0.1, 0.05)
_SAMPLES = (200, 49_152)


def run(effort: Effort) -> tuple[list[Row], dict[str, Any]]:
    """Compare the law of one element, and the estimates from whole matrices."""
    rows: list[Row] = []
    curves = []
    for d_head in HEADS:
        sample = _elements(generator(f"element {d_head}"), d_head, effort.draws(ELEMENTS))
        rows += _one(d_head, sample)
        curves.append(_curve(d_head, sample))
    divergences = []
    for d_model, d_head, count in MATRICES[: 1 if effort.quick else None]:
        found, divergence = _matrices(d_model, d_head, effort.draws(count))
        rows += found
        divergences.append(divergence)
        print(f"  matrices {(d_model, d_head)}", flush=True)
    rows += _normal_samples(effort)
    return rows, {"densities": curves, "divergences": divergences}


def _elements(rng: np.random.Generator, d_head: int, count: int) -> FloatArray:
    """Independent sums of d_head products of two normal numbers."""
    chunk = max(1, _PRODUCTS // d_head)
    sizes = [min(chunk, count - start) for start in range(0, count, chunk)]
    return np.concatenate(
        [np.einsum("ij,ij->i", rng.standard_normal((n, d_head)), rng.standard_normal((n, d_head))) for n in sizes]
    )


def _one(d_head: int, sample: FloatArray) -> Iterator[Row]:
    law = ProductElement(d_head)
    subject = Subject(SECTION, "element of W_QK", {"d_head": d_head})
    yield subject.mean(sample, law.mean())
    yield subject.std(sample, law.std())
    yield subject.excess_kurtosis(sample, 6.0 / d_head)
    magnitude = np.abs(sample)
    for power in (4, 6) if d_head > 2 else (4,):
        of = sample**power
        error = float(of.std() / math.sqrt(of.size))
        yield subject.number(f"mean of w^{power}", law.moment(power), float(of.mean()), error, of.size)
    for p in _CDF:
        threshold, probability = float(law.isf(0.5 * p)), p
        yield subject.count(int((magnitude > threshold).sum()), sample.size, probability, f"P(|w| > isf({p:g}/2))")
    if d_head > 1:  # where the density is infinite at zero the average of its logarithm converges slowly
        log_ratio = law.logpdf(sample) + 0.5 * sample**2 / d_head + 0.5 * math.log(2.0 * math.pi * d_head)
        error = float(log_ratio.std() / math.sqrt(sample.size))
        yield subject.number("D_KL to the normal law", law.kl_to_normal(), float(log_ratio.mean()), error, sample.size)
    surprise = -law.logpdf(sample)
    error = float(surprise.std() / math.sqrt(sample.size))
    yield subject.number("entropy", law.entropy(), float(surprise.mean()), error, sample.size)


def _curve(d_head: int, sample: FloatArray) -> dict[str, Any]:
    """Histogram in units of the standard deviation, with the law and the normal law."""
    law = ProductElement(d_head)
    edges = np.linspace(-8.0, 8.0, 81)
    counts, _ = np.histogram(sample / law.std(), edges)
    x = np.linspace(-8.0, 8.0, 400)  # zero, where the density of d_head = 1 is infinite, is no node
    return {
        "d_head": d_head,
        "edges": edges.tolist(),
        "counts": counts.tolist(),
        "draws": int(sample.size),
        "x": x.tolist(),
        "law": (law.std() * law.pdf(x * law.std())).tolist(),
    }


def _matrices(d_model: int, d_head: int, count: int) -> tuple[list[Row], dict[str, Any]]:
    """Averages over the elements of one matrix (exact), and estimates of entropy and divergence (asymptotic)."""
    rng = generator(f"matrices {d_model} {d_head}")
    std = math.sqrt(d_head)
    interval = (_RANGE[0] * std, _RANGE[1] * std)
    shape = (d_model, d_head)
    raw = {"normalization": "none"}
    averages = {"|w|": np.abs, "w^2": np.square, "w^4": lambda w: w**4}
    estimates = {
        "histogram_entropy": (
            lambda w: statistics.histogram_entropy(w, _BINS, interval),
            laws.histogram_entropy(*shape, _BINS, interval, **raw),
        ),
        "histogram_kl, given sigma": (
            lambda w: statistics.histogram_kl(w, _BINS, interval, std),
            laws.histogram_kl(*shape, _BINS, interval, std, **raw),
        ),
        "histogram_kl, fitted sigma": (
            lambda w: statistics.histogram_kl(w, _BINS, interval),
            laws.histogram_kl(*shape, _BINS, interval, **raw),
        ),
        "nearest_neighbour_entropy, k = 1": (
            lambda w: statistics.nearest_neighbour_entropy(w, 1),
            laws.nearest_neighbour_entropy(*shape, 1, **raw),
        ),
        "nearest_neighbour_entropy, k = 4": (
            lambda w: statistics.nearest_neighbour_entropy(w, 4),
            laws.nearest_neighbour_entropy(*shape, 4, **raw),
        ),
        "nearest_neighbour_kl, fitted sigma": (
            lambda w: statistics.nearest_neighbour_kl(w, 1),
            laws.nearest_neighbour_kl(*shape, 1, **raw),
        ),
    }
    samples = {name: np.empty(count) for name in (*averages, *estimates)}
    for index in range(count):
        w = rng.standard_normal((d_model, d_head)) @ rng.standard_normal((d_head, d_model))
        for name, f in averages.items():
            samples[name][index] = f(w).mean()
        for name, (estimate, _) in estimates.items():
            samples[name][index] = estimate(w)
    parameters = {"d_model": d_model, "d_head": d_head}
    rows: list[Row] = []
    for name, f in averages.items():
        moments = laws.element_average(f, *shape, **raw)
        subject = Subject(SECTION, f"average of {name} over one matrix", parameters)
        rows += [subject.mean(samples[name], moments.mean), subject.std(samples[name], moments.std)]
    for name, (_, moments) in estimates.items():
        subject = Subject(SECTION, name, parameters, ASYMPTOTIC, _ESTIMATES)
        rows += [subject.mean(samples[name], moments.mean), subject.std(samples[name], moments.std)]
    sample, moments = samples["histogram_kl, fitted sigma"], estimates["histogram_kl, fitted sigma"][1]
    edges = np.linspace(moments.mean - 5.0 * moments.std, moments.mean + 5.0 * moments.std, 41)
    return rows, {
        **parameters,
        "kl_to_normal": ProductElement(d_head).kl_to_normal(),
        "bias": (_BINS - 1) / (2 * d_model**2),
        "mean": moments.mean,
        "std": moments.std,
        "edges": edges.tolist(),
        "counts": np.histogram(sample, edges)[0].tolist(),
        "draws": count,
    }


def _normal_samples(effort: Effort) -> Iterator[Row]:
    """Element statistics of matrices of independent normal weights, whose moments are exact."""
    for size in _SAMPLES[: 1 if effort.quick else None]:
        count = effort.draws(40_000 if size < 1000 else 4000)
        rng = generator(f"normal sample {size}")
        found = [statistics.element_moments(rng.standard_normal(size)) for _ in range(count)]
        for name in statistics.MOMENT_STATISTICS:
            law = laws.gaussian_sample_statistic(name, size)
            # The largest of n magnitudes takes them as independent, which neglects (ln n)^2 / n.
            exact = name != "largest_magnitude"
            subject = Subject(
                SECTION, f"{name} of normal weights", {"weights": size}, EXACT if exact else ASYMPTOTIC, _ESTIMATES
            )
            of = {"mean": lambda one: one.mean / one.std}.get(name, lambda one, name=name: getattr(one, name))
            sample = np.array([of(one) for one in found])
            yield subject.mean(sample, law.mean())
            yield subject.std(sample, law.std())
            rejected = int((law.p_value(sample) < 0.05).sum())
            yield Subject(SECTION, f"{name} of normal weights", {"weights": size}, ASYMPTOTIC).count(
                rejected, count, 0.05, "P(p < 0.05)"
            )
