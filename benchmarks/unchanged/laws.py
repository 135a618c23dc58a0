"""Numbers of the laws of spectra: every class and function, at several parameters."""

import inspect
from itertools import product

import numpy as np
from entries import Entries, public

CHAINS = ((768, 64, 768), (64, 64, 64), (100, 40, 7, 90), (768, 64), (64, 64), (64, 768), (300, 200, 100, 50, 400))
HEADS = ((768, 64), (64, 64), (128, 16), (4096, 128), (20, 8))
RAW = {"normalization": "none"}
STRENGTHS = np.array([0.0, 0.3, 1.0, 2.0, 10.0, 100.0, 1e4, np.nan])
TAILS = np.array([-60.0, -30, -12, -8, -5, -3, -1.2, -0.5, 0, 1, 2, 4, 8, 15, 40, 200])


def collect(entries: Entries) -> None:
    """Collect all entries of this section."""
    _chains(entries)
    _edges(entries)
    _nulls(entries)
    _traces(entries)
    _residual(entries)


def _scales(dims: tuple[int, ...]) -> list[dict[str, object]]:
    sigmas = [0.02] * (len(dims) - 1)
    normalizations = [{"normalization": name} for name in ("none", "sqrt_d")]
    return [one | more for one in normalizations for more in ({}, {"sigmas": sigmas})]


def _chains(entries: Entries) -> None:
    more = {"pdf(grid)": lambda law: law.pdf(np.linspace(*law.support, 41))}
    for dims in CHAINS:
        for options, atom in product(_scales(dims), (False, True)):
            entries.law("laws.GaussianChain", dims=dims, atom=atom, more=more, **options)
        entries.take(
            f"linear_statistics{dims}",
            lambda dims=dims: public("laws.linear_statistics")(
                public("laws.GaussianChain")(dims=dims, **RAW), (np.log, np.square, np.sqrt)
            ),
        )
    for shape, normalization in product(HEADS, ("sqrt_d", "none")):
        entries.law("laws.low_rank_product", *shape, 0.02, 0.5, normalization, more=more)
        entries.law("laws.naive_marchenko_pastur", *shape, 0.02, 0.5, normalization, more=more)
    for shape in ((768, 64), (64, 768), (50, 50)):
        entries.law("laws.GaussianChain", dims=shape, atom=True, more=more, **RAW)


def _edges(entries: Entries) -> None:
    for beta in (1, 2):
        calls = {"pdf": TAILS, "cdf": TAILS, "sf": TAILS, "logcdf": TAILS, "logsf": TAILS}
        calls |= dict.fromkeys(("ppf", "isf"), 10.0 ** -np.arange(1, 60, 6))
        entries.law("laws.TracyWidom", beta)
        for name, at in calls.items():
            entries.take(
                f"TracyWidom({beta}).{name}(tails)",
                lambda beta=beta, name=name, at=at: getattr(public("laws.TracyWidom")(beta), name)(at),
            )
    more = {
        "with_log_cumulants": lambda law: law.with_log_cumulants(*law.log_cumulants()).ppf([0.1, 0.9]),
        "quadrature": lambda law: law.quadrature(),
        "log_cumulants": lambda law: law.log_cumulants(),
    }
    for dims in CHAINS:
        for options in (*_scales(dims), RAW | {"self_normalized": True}):
            entries.law("laws.largest_eigenvalue", dims=dims, more=more, **options)
            entries.law("laws.smallest_eigenvalue", dims=dims, more=more, **options)
            entries.call("laws.ordered_eigenvalues", dims=dims, **options)
    more = {
        "eigenvalue": lambda law: law.eigenvalue(STRENGTHS * law.threshold),
        "strength": lambda law: law.strength(law.edge * np.array([0.5, 1.0, 1.1, 2.0, 30.0])),
        "overlaps": lambda law: law.overlaps(STRENGTHS * law.threshold),
        "eigenvalue_std": lambda law: law.eigenvalue_std(STRENGTHS * law.threshold),
        "power": lambda law: law.power(STRENGTHS * law.threshold),
        "detectable_strength": lambda law: law.detectable_strength(0.5),
    }
    for dims, factor in product(CHAINS[:4], (None, 1)):
        entries.law("laws.RankOneSpike", dims=dims, factor=factor, more=more, **RAW)


def _nulls(entries: Entries) -> None:
    statistics = tuple(public("laws.NULL_STATISTICS"))
    for dims in ((768, 64, 768), (64, 64, 64), (128, 16, 128), (20, 8, 20)):
        for statistic, self_normalized in product(statistics, (False, True)):
            entries.law("laws.null", statistic, dims=dims, self_normalized=self_normalized, **RAW)
    for statistic in statistics:
        entries.law("laws.null", statistic, dims=(768, 64, 768), sigmas=[0.02, 0.03], normalization="sqrt_d")


def _traces(entries: Entries) -> None:
    for dims, self_normalized in product(CHAINS[:4], (False, True)):
        entries.law("laws.LogDeterminant", dims=dims, self_normalized=self_normalized, **RAW)
        for powers in ((1,), (2,), (1, 1), (2, 1), (3,), (2, 2), (1, 1, 1), (4,)):
            _exact(entries, "trace_moment", powers, dims=dims, self_normalized=self_normalized)
            _exact(entries, "trace_cumulant", powers, dims=dims, self_normalized=self_normalized)
        for power in (1, 2, 3):
            entries.call("laws.trace_cumulants", power, dims=dims, self_normalized=self_normalized, **RAW)
    value = {"of": lambda law: law(**{name: 7 + 2 * k for k, name in enumerate(sorted(set(law.symbols)))})}
    for powers, symbols in product(((1,), (2,), (2, 1), (3,), (1, 1)), (("d", "h", "d"), ("m", "n"))):
        entries.law("laws.trace_moment_polynomial", powers, symbols, more=value)
    for shape in HEADS:
        for name in ("participation_ratio", "normalized_participation_ratio"):
            entries.call(f"laws.{name}", *shape)


def _exact(entries: Entries, name: str, *arguments: object, **options: object) -> None:
    """Take an exact moment of the raw product, the default normalization of some installations."""
    function = public(f"laws.{name}")
    raw = RAW if "normalization" in inspect.signature(function).parameters else {}
    entries.take(f"laws.{name}({arguments}, {options})", lambda: function(*arguments, **options, **raw))


def _residual(entries: Entries) -> None:
    at = np.arange(-1, 12)
    lengths = {
        "pmf": lambda law: law.pmf(at),
        "cdf": lambda law: law.cdf(at),
        "sf": lambda law: law.sf(at),
        "squared_norm": lambda law: [law.squared_norm(k) for k in range(law.depth + 1)],
    }
    logs = {"log_eigenvalue": lambda law: None}  # a law of its own, below
    for depth, sigma in ((1, 1.0), (4, 0.3), (10, 1.0), (16, 1.4), (64, 0.05)):
        entries.law("laws.ResidualPath", depth, sigma, more=logs | {"edge_scale": lambda law: law.edge_scale(512)})
        entries.law("laws.ResidualUpdate", depth, sigma, more=logs)
        entries.law("laws.PathLength", depth, sigma, more=lengths)
        for name in ("ResidualPath", "ResidualUpdate"):
            entries.law_of(
                f"{name}({depth}, {sigma}).log",
                lambda name=name, depth=depth, sigma=sigma: public(f"laws.{name}")(depth, sigma).log_eigenvalue,
            )
        for width in (16, 512):
            entries.call("laws.residual_trace_moments", depth, sigma, width)
    for t in (0.1, 1.0, 4.0, 9.0):
        entries.law("laws.FreeMultiplicativeBrownian", t, more=logs)
        entries.law_of(
            f"FreeMultiplicativeBrownian({t}).log",
            lambda t=t: public("laws.FreeMultiplicativeBrownian")(t).log_eigenvalue,
        )
