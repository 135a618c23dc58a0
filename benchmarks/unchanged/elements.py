"""Numbers of the laws of elements, of the Weibull laws, and of statistics of given arrays."""

from itertools import product

import numpy as np
from entries import PROBABILITIES, Entries, public

SHAPES = ((768, 64), (64, 64), (128, 16), (20, 8))
PARENTS = (
    ("Normal", {}),
    ("Normal", {"sigma": 0.02}),
    ("Uniform", {}),
    ("TruncatedNormal", {"bound": 2.0}),
    ("TruncatedNormal", {"sigma": 0.02, "bound": 3.0}),
    ("Laplace", {}),
    ("Logistic", {"sigma": 0.5}),
    ("StudentT", {"df": 6.0}),
    ("VarianceGamma", {"h": 64}),
    ("VarianceGamma", {"h": 8}),
)
TRIMS = (0.0, 0.1, 0.25)


def collect(entries: Entries) -> None:
    """Collect all entries of this section."""
    _elements(entries)
    _small(entries)
    _weibull(entries)
    _spectral_statistics(entries)
    _sample_statistics(entries)


def _elements(entries: Entries) -> None:
    for d_head, scale in ((1, 1.0), (2, 1.0), (8, 0.3), (64, 1.0), (128, 0.02)):
        entries.law("laws.ProductElement", d_head, scale)
    for shape in SHAPES:
        entries.law("laws.product_element", *shape, sigma_q=0.02, sigma_k=0.03, normalization="none")
        for name in ("histogram_entropy", "histogram_kl"):
            entries.call(f"laws.{name}", *shape, 100, (-4.0, 4.0))
            entries.call(f"laws.{name}", *shape, 60, (-2.0, 3.0), sigma_q=0.5, normalization="none")
        for name, k in product(("nearest_neighbour_entropy", "nearest_neighbour_kl"), (1, 3)):
            entries.call(f"laws.{name}", *shape, k)
        entries.call("laws.element_average", np.abs, *shape)
        entries.call("laws.weibull_product_null", *shape)


def _small(entries: Entries) -> None:
    for given in ((0.1,), (0.0,), (1.0,), (0.3, 0.2, 1.0, 0.1), (0.5, 1.0, 1.0, 2.0, -1.0), (0.01, 0.0, 0.02, 1e-4)):
        entries.law("laws.ContaminatedNormal", *given)
    for given in ((1e-3, 0.1), (1e-4, 0.01, 0.95), (3e-4, 0.1, 0.0)):
        steps = {"std_after": lambda law: law.std_after(np.array([0, 1, 10, 1000, 10**6]), 0.02)}
        entries.law("laws.AdamWNoise", *given, more=steps)
    for skewness in (-3.0, -0.5, 0.0, 0.1, 2.0):
        entries.law("laws.TwoPoint", skewness, 0.5, 2.0)
    grid = np.linspace(-3, 3, 25)
    entries.call("laws.pearson_bound", grid)
    entries.call("laws.normal_entropy", np.array([0.02, 1.0, 5.0]))
    entries.call("laws.normal_kl", np.array([0.02, 1.0, 5.0]), 0.7, 0.1, -0.2)
    for statistic, count in product(("mean", "skewness", "excess_kurtosis", "largest_magnitude"), (20, 200, 49152)):
        entries.law("laws.gaussian_sample_statistic", statistic, count)


def _weibull(entries: Entries) -> None:
    sample = np.random.default_rng(5).standard_normal(4001) * 0.02
    parents = [public(f"laws.parents.{name}")(**options) for name, options in PARENTS]
    mixture = public("laws.parents.Mixture")((parents[0], parents[4]), (0.75, 0.25))
    for parent in (*parents, mixture, "normal"):
        for trim in TRIMS:
            entries.call("laws.weibull_anchor", trim, parent)
            entries.call("laws.weibull_null", trim, parent)
            entries.call("laws.weibull_closure", trim, parent)
        entries.call("laws.weibull_body_tail_gap", parent)
        entries.call("laws.weibull_maximum_likelihood", parent)
        entries.call("laws.weibull_quantile_noise", PROBABILITIES[2:-1], parent)
        if not isinstance(parent, str):
            entries.take(f"{parent}.ppf", lambda parent=parent: parent.ppf(PROBABILITIES))
    entries.call("laws.weibull_anchor", 0.1, "normal", 40)
    entries.call("laws.weibull_anchor", 0.05, parents[1], 30)
    entries.call("laws.weibull_noise_optimum")
    entries.call("laws.weibull_noise_optimum", 30)
    for trim in TRIMS:
        entries.call("statistics.weibull_fit", sample, trim)
    law = {"p_value": lambda one: one.p_value(np.linspace(1.1, 1.3, 5), 4001)}
    methods = {name: lambda one, name=name: getattr(one, name)(4001) for name in ("mean", "std")}
    methods |= law | {"z_score": lambda one: one.z_score(np.linspace(1.1, 1.3, 5), 4001)}
    entries.law_of("weibull_null().shape", lambda: public("laws.weibull_null")().shape, methods)


def _spectral_statistics(entries: Entries) -> None:
    rng = np.random.default_rng(6)
    values = np.sort(rng.gamma(2.0, size=(50, 16)))[:, ::-1]
    entries.call("statistics.spectral_statistics", values)
    entries.call("statistics.spectral_statistics", values.astype(np.float32))
    entries.call("statistics.on_distance_scale", public("statistics.spectral_statistics")(values))
    for name in public("statistics.SPECTRAL_STATISTICS"):
        entries.take(f"get_statistic({name})", lambda name=name: public("statistics.get_statistic")(name))
        entries.take(
            f"{name}.rescale",
            lambda name=name: public("statistics.get_statistic")(name).rescale(np.array([0.5, 2.0, 7.0]), 0.3, 16),
        )
        entries.take(
            f"{name}.rescale_spread",
            lambda name=name: public("statistics.get_statistic")(name).rescale_spread(np.array([0.5, 7.0]), 0.3),
        )


def _sample_statistics(entries: Entries) -> None:
    rng = np.random.default_rng(7)
    samples = {
        "normal": rng.standard_normal((60, 70)) * 0.02,
        "t": rng.standard_t(4, (60, 70)),
        "uniform": rng.uniform(-1, 1, (60, 70)),
        "float32": rng.standard_normal((60, 70)).astype(np.float32),
    }
    for label, sample in samples.items():
        interval = (float(sample.min()) * 0.9, float(sample.max()) * 0.9)
        calls = {name: () for name in ("element_moments", "fit_logistic", "fit_student_t")}
        calls |= {"nearest_neighbour_entropy": (3,), "nearest_neighbour_kl": (2,)}
        calls |= {"histogram_entropy": (40, interval), "histogram_kl": (40, interval)}
        for name, more in calls.items():
            entries.take(f"{name}({label})", lambda n=name, s=sample, m=more: public(f"statistics.{n}")(s, *m))
        for name in ("fit_logistic", "fit_student_t"):
            entries.take(f"{name}({label}, 0)", lambda n=name, s=sample: public(f"statistics.{n}")(s, 0.0))

        def sketch(sample=sample):
            made = public("statistics.element_sketch")(np.split(sample, 6))
            fits = {trim: made.weibull_fit(trim) for trim in TRIMS}
            return [made, fits, made.moments(), public("statistics.element_statistics")(made), made.merged(made)]

        entries.take(f"element_sketch({label})", sketch)
    table = rng.standard_normal((3, 40_000))
    blocks = np.split(table, 8, axis=1)
    some = np.array([0.001, 0.05, 0.5, 0.95, 0.999])
    entries.take("summarize", lambda: public("statistics.summarize")(table, some))
    entries.take("summarize_stream", lambda: public("statistics.summarize_stream")(lambda: iter(blocks), some))
    p_values = rng.uniform(size=(4, 30)) ** 3
    entries.call("statistics.benjamini_hochberg", p_values)
    entries.call("statistics.cauchy_combination", p_values)
    entries.call("statistics.monte_carlo_p_value", np.linspace(-4, 4, 30), table[0])
    entries.call("statistics.magnitude_bins", np.abs(table[0, :999]).view(np.int64))
