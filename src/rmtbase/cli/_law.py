"""``rmtbase law``: every analytic number of one shape of W_QK, of a chain or of a residual path, without draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from string import ascii_lowercase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmtbase.terminal.command_line import INTEGER, next_command
from rmtbase.terminal.options import DHead, Dims, DModel, Normalization, Sigma, sigma_keywords

if TYPE_CHECKING:
    from rmtbase.report import Item, Rows

_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_SYMBOLS = {
    "largest_eigenvalue": ("λ_max", "s_max"),
    "smallest_eigenvalue": ("λ_min", "s_min"),
    "trace": "Σ λ",
    "trace_of_square": "Σ λ²",
    "log_determinant": "Σ ln λ",
}
_OWN_SCALE = "in extreme eigenvalues, statistics and moments each factor is divided by its own estimate of σ, the rest"


def law(
    d_model: DModel = None,
    d_head: DHead = None,
    dims: Dims = None,
    depth: Annotated[
        int | None,
        typer.Option(
            help="Number of blocks I + sigma G / sqrt(d_model) of a residual path, with --sigma and, for its finite "
            "size, --d-model.",
            **INTEGER,
        ),
    ] = None,
    sigma: Sigma = None,
    normalization: Normalization = None,
    self_normalized: Annotated[
        bool,
        typer.Option(
            "--self-normalized",
            help="Divide each factor by its own estimate of sigma first, as in the scores of heads.",
        ),
    ] = False,
) -> None:
    """Print the laws of W_QK = W_Q^T W_K for random weights: spectrum, edges, statistics, elements, a spike.

    Those of one matrix, of any chain of matrices and of a residual path, too.

    Example: rmtbase law --d-model 768 --d-head 64

    Example: rmtbase law --dims 3072,768 --sigma 0.02

    Example: rmtbase law --depth 24 --sigma 0.3
    """
    import rmtbase
    from rmtbase.errors import ParameterError
    from rmtbase.laws import describe
    from rmtbase.report import print_report
    from rmtbase.terminal.output import show

    if sigma is not None and self_normalized:
        raise ParameterError("sigma", sigma, "none with --self-normalized, where it cancels")
    matrix = {"--d-model": d_model, "--d-head": d_head, "--dims": dims, "--depth": depth}
    names = [name for name, value in matrix.items() if value is not None]
    if names not in (["--d-model", "--d-head"], ["--dims"], ["--depth"], ["--d-model", "--depth"]):
        ways = "either --d-model and --d-head for W_QK, --dims for any chain, or --depth for a residual path"
        values = tuple(matrix[name] for name in names)
        raise ParameterError(" and ".join(names) or "matrix", values[0] if len(values) == 1 else values or None, ways)
    scale = {"sigmas": sigma} if dims and isinstance(sigma, tuple) else sigma_keywords(sigma)
    asked = {"d_model": d_model, "d_head": d_head, "dims": dims, "normalization": normalization}
    options: dict[str, Any] = scale | {name: value for name, value in asked.items() if value is not None}
    values = describe(**options, depth=depth, self_normalized=self_normalized)
    as_json = {"rmtbase_version": rmtbase.__version__, **values}
    show(lambda: as_json, lambda console: print_report(_report(values), console))


def _report(values: dict[str, Any]) -> Iterator[Item]:
    """Yield the items of the report: what the matrix is, its spectrum, and the sections that it has."""
    from rmtbase.report import Heading

    matrix, conventions = _described(values)
    yield Heading(matrix)
    yield conventions
    yield from _spectrum(values["spectrum"])
    for name, section in _SECTIONS.items():
        if values.get(name):
            yield from section(values)
    if not values["exact_moments"]:
        yield "--d-model adds the Tracy–Widom scales and exact moments at that width."
    yield "With --json: all of it in full precision, each with its accuracy; the moments of W_QK in LaTeX, too."


def _described(values: dict[str, Any]) -> tuple[str, str]:
    """Describe the matrix, and its conventions."""
    if "depth" in values:
        width = f", d = {values['d_model']}" if values["d_model"] else ""
        shape = f"depth {values['depth']}, σ = {values['sigma']:.6g}{width}"
        blocks = "G: d × d matrices with independent entries of variance 1. λ: eigenvalues of PPᵀ; s = √λ."
        return f"P = Π (I + σ G / √d), {shape}", blocks
    is_normalized = values["normalization"] == "sqrt_d"
    if "dims" in values:
        dims, sigmas = values["dims"], [f"{sigma:.6g}" for sigma in values["sigmas"]]
        factors = "X" if len(dims) == 2 else f"X₁ ⋯ X{str(len(dims) - 1).translate(_SUBSCRIPTS)}"
        scale = f"σ = {sigmas[0] if len(set(sigmas)) == 1 else ', '.join(sigmas)}"
        scale = f"{_OWN_SCALE} at σ = 1" if values["self_normalized"] else scale
        symbols = f"λ: the {values['rank']} nonzero eigenvalues of WᵀW; s = √λ: its singular values"
        matrix = f"W = {factors}{f' / √{dims[0]}' if is_normalized else ''}"
        return f"{matrix}, dimensions {' × '.join(map(str, dims))}", f"Gaussian factors, {scale}. {symbols}."
    shape = f"d_model {values['d_model']}, d_head {values['d_head']}, γ = {values['aspect_ratio']:.6g}"
    sigma_q, sigma_k = values["sigma_q"], values["sigma_k"]
    scale = f"σ = {sigma_q:.6g}" if sigma_q == sigma_k else f"σ_Q = {sigma_q:.6g}, σ_K = {sigma_k:.6g}"
    scale = f"{_OWN_SCALE} is at σ = 1" if values["self_normalized"] else scale
    symbols = "λ: the d_head nonzero eigenvalues of W_QKᵀ W_QK; s = √λ: its singular values"
    conventions = f"Gaussian weights, {scale}; normalization {values['normalization']}. {symbols}."
    return f"W_QK = W_Qᵀ W_K{' / √d_model' if is_normalized else ''}, {shape}", conventions


def _spectrum(spectrum: dict[str, Any]) -> Iterator[Item]:
    quantiles = [
        (f"{_percent(p)} quantile", x, None if x is None else x**0.5)  # None where a double cannot hold it
        for p, x in spectrum["quantiles"].items()
    ]
    columns = ("Spectrum, large matrices", "λ", "s", "Tracy–Widom scale of λ")
    yield _table(columns, [*_edges(spectrum), *quantiles])
    orders = range(1, len(spectrum["moments"]) + 1)
    kinds = {"moments": "moment", "cumulants": "cumulant", "free_cumulants": "free cumulant"}
    rows = [(name, *spectrum[kind]) for kind, name in kinds.items() if kind in spectrum]
    yield _table(("order", *map(str, orders)), rows)
    if "log_mean" in spectrum:
        yield f"Mean of ln λ: {spectrum['log_mean']:.6g}."
    if "often_quoted" in spectrum:
        quoted = spectrum["often_quoted"]
        (low, high), (low_s, high_s) = quoted["support"], quoted["support_singular_values"]
        yield (
            f"Often quoted, not the law of W_QK: Marchenko–Pastur edges, λ from {low:.6g} to {high:.6g} and s from "
            f"{low_s:.6g} to {high_s:.6g}. Of a random head's λ {100 * quoted['fraction_outside']:.3g} % lie outside."
        )


def _edges(law: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Make rows of λ, s and the scale of the edge."""
    (low, high), (low_s, high_s) = law["support"], law["support_singular_values"]
    low_scale, high_scale = law["edge_scale"]
    return [
        ("upper edge", high, high_s, high_scale),
        ("lower edge", low, low_s, "hard edge" if law["hard_edge"] else low_scale),
        ("mean", law["mean"]),
        ("sd", law["std"]),
    ]


def _extremes(values: dict[str, Any]) -> Iterator[Item]:
    extremes = values["extreme_eigenvalues"]
    laws = {name: law for name, law in extremes.items() if law["reason"] is None}
    if laws:
        parts = [part for law in laws.values() for part in (law, law["singular_value"])]
        rows = [(label, *(part[field] for part in parts)) for label, field in (("mean", "mean"), ("sd", "std"))]
        for p in next(iter(laws.values()))["quantiles"]:
            at_p = [law["quantiles"][p] for law in laws.values()]
            rows.append((f"{_percent(p)} quantile", *(value for x in at_p for value in (x, x**0.5))))
        columns = ("Extremes of one draw", *(symbol for name in laws for symbol in _SYMBOLS[name]))
        yield _table(columns, rows)
    for name, law in extremes.items():
        if law["reason"] is not None:
            yield f"No law here of {_SYMBOLS[name][0]}: {law['reason']}."


def _statistics(values: dict[str, Any]) -> Iterator[Item]:
    from rmtbase.statistics import (
        SPECTRAL_STATISTICS,
        ExtremeMoments,
        inverse_moment_order,
        missing_moment,
        moment_order,
    )

    statistics = values["statistics"]
    laws = {name: law for name, law in statistics.items() if law["reason"] is None}
    accuracies = dict.fromkeys((law["method"], law["accuracy"]) for law in laws.values())
    letters = dict(zip(accuracies, ascii_lowercase, strict=False))
    rows = [
        (name, law["mean"], law["std"], *(law["quantiles"][p] for p in ("0.025", "0.975")), letters[key])
        for name, law in laws.items()
        for key in [(law["method"], law["accuracy"])]
    ]
    if rows:
        yield _table(("Statistics of one draw", "mean", "sd", "2.5 %", "97.5 %", "accuracy"), rows)
    for (method, accuracy), letter in letters.items():
        yield f"{letter}  {method}: {accuracy}"
    missing: dict[str, list[str]] = {}
    for name, law in statistics.items():
        if law["reason"] is not None:
            missing.setdefault(law["reason"], []).append(name)
    for reason, names in missing.items():
        yield f"No law here of {', '.join(names)}: {reason}."
    if len(laws) < len(statistics) and not ("dims" in values or values["self_normalized"]):
        yield f"To simulate what has no law here: {next_command(name='baseline')}"
    # For each statistic without mean or variance, the reason, and where to find its quantiles.
    dims = values["dims"] if "dims" in values else (values["d_model"], values["d_head"], values["d_model"])
    extremes = ExtremeMoments(smallest=inverse_moment_order(tuple(dims)))
    for name, statistic in SPECTRAL_STATISTICS.items():
        lacks = missing_moment(name, moment_order(statistic, extremes, min(dims)))
        if lacks is not None:
            has_quantiles = "its quantiles are those of its law", "a simulation has its median and quantiles"
            yield f"{lacks}; {has_quantiles[name not in laws]}."


def _exact_moments(values: dict[str, Any]) -> Iterator[Item]:
    moments = {name: moments for name, moments in values["exact_moments"].items() if name in _SYMBOLS and moments}
    labels = {"mean": "mean", "std": "sd", "skewness": "skewness", "excess_kurtosis": "excess kurtosis"}
    fields = {field: label for field, label in labels.items() if field in moments["trace"]}
    rows = [(_SYMBOLS[name], *(moment[field] for field in fields)) for name, moment in moments.items()]
    yield _table(("Moments of one draw, exact", *fields.values()), rows)
    for name, moment in moments.items():
        if "mean_formula" in moment:
            yield f"E {_SYMBOLS[name]} = {moment['mean_formula']}"
    if (correlation := values["exact_moments"].get("correlation_of_traces")) is not None:
        yield f"Correlation of Σ λ and Σ λ²: {correlation:.6g}."


def _element(values: dict[str, Any]) -> Iterator[Item]:
    element = values["element"]
    normal = element["normal_of_same_variance"]
    anchor, normal_anchor = element["weibull_anchor"], normal["weibull_anchor"]
    tails = [(f"x with P(w > x) = {p}", x, normal["upper_quantiles"][p]) for p, x in element["upper_quantiles"].items()]
    rows = [
        ("sd", element["std"], element["std"]),
        ("excess kurtosis", element["excess_kurtosis"], 0.0),
        ("entropy, nats", element["entropy"], normal["entropy"]),
        ("KL to the normal law, nats", element["kl_to_normal"], 0.0),
        *tails,
        (f"Weibull anchor of |w|, trim {anchor['trim']:g}: shape", anchor["shape"], normal_anchor["shape"]),
        ("  scale", anchor["scale"], normal_anchor["scale"]),
        ("  R²", anchor["r_squared"], normal_anchor["r_squared"]),
    ]
    yield _table(("One element w of W_QK, exact", "w", "normal law of that sd"), rows)


def _spike(values: dict[str, Any]) -> Iterator[Item]:
    spike = values["spike"]
    either = " (or W_K)" if values["sigma_q"] == values["sigma_k"] else ""
    places = {
        "on_product": "on W_QK, as normalized",
        "on_factor": f"on W_Q{either}, seen in W_QK",
        "on_factor_alone": "on W_Q, seen in W_Q itself",
    }
    powers = [f"power {_percent(p)}" for p in spike["on_product"]["detectable_strength"]]
    found = ((place, spike[key]) for key, place in places.items())
    rows = [(place, facts["threshold"], *facts["detectable_strength"].values()) for place, facts in found]
    yield _table(("Planted spike θ u vᵀ", "threshold", *powers), rows)
    yield (
        "Beyond the threshold λ_max leaves the bulk; then the strengths that the test on λ_max at level "
        f"{_percent(spike['level'])} finds with that power. u and v have unit length."
    )
    if spike["reason"] is not None:
        yield f"No power here: {spike['reason']}."


def _factor(values: dict[str, Any]) -> Iterator[Item]:
    rows, columns = values["factor"]["shape"]
    title = f"One factor W_Q, {rows} × {columns}"
    yield _table((title, "λ", "s", "Tracy–Widom scale of λ"), _edges(values["factor"]))


_SECTIONS = {
    "extreme_eigenvalues": _extremes,
    "statistics": _statistics,
    "exact_moments": _exact_moments,
    "element": _element,
    "spike": _spike,
    "factor": _factor,
}


def _table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> Rows:
    """Make a table of labels and numbers; shorter rows end with empty cells, as those of None are."""
    from rmtbase.report import Column, Rows

    columns = [Column(headings[0], "left"), *(Column(heading, form=".6g") for heading in headings[1:])]
    padded = [(*row, *[None] * (len(columns) - len(row))) for row in rows]
    return Rows(columns, [[math.nan if cell is None else cell for cell in row] for row in padded])


def _percent(probability: str | float) -> str:
    return f"{100 * float(probability):g} %"
