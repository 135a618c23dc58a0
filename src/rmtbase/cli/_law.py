"""``rmtbase law``: every analytic number of one shape of W_QK, of a chain or of a residual path, without draws."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rmtbase.terminal.command_line import INTEGER, next_command
from rmtbase.terminal.options import DHead, Dims, DModel, Normalization, Sigma, sigma_keywords

_DIGITS = 6
_WIDEST_NOTE = 100
_SINGULAR = "_singular"
_WIDTHS = (30, 10, 8, 10, 10, 1)  # of the columns of statistics: name, mean, sd, two quantiles, note
_WITH_JSON = "With --json: all of it in full precision, each with its accuracy."
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


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
    from rmtbase.terminal.output import show

    if sigma is not None and self_normalized:
        raise ParameterError("sigma", sigma, "none with --self-normalized, where it cancels")
    _require_one_matrix(d_model, d_head, dims, depth)
    scale = {"sigmas": sigma} if dims and isinstance(sigma, tuple) else sigma_keywords(sigma)
    asked = {"d_model": d_model, "d_head": d_head, "dims": dims, "normalization": normalization}
    options: dict[str, Any] = scale | {name: value for name, value in asked.items() if value is not None}
    values = describe(**options, depth=depth, self_normalized=self_normalized)
    shown = _print_path if "depth" in values else _print_chain if "dims" in values else _print_law
    show(lambda: {"rmtbase_version": rmtbase.__version__, **values}, partial(shown, values))


def _require_one_matrix(d_model: int | None, d_head: int | None, dims: Any, depth: int | None) -> None:
    """Refuse options that name no matrix, half of one, or two."""
    from rmtbase.errors import ParameterError

    given = {"--d-model": d_model, "--d-head": d_head, "--dims": dims, "--depth": depth}
    names = [name for name, value in given.items() if value is not None]
    ways = "either --d-model and --d-head for W_QK, --dims for any chain, or --depth for a residual path"
    if names not in (["--d-model", "--d-head"], ["--dims"], ["--depth"], ["--d-model", "--depth"]):
        values = tuple(given[name] for name in names)
        raise ParameterError(" and ".join(names) or "matrix", values[0] if len(values) == 1 else values or None, ways)


def _print_chain(values: dict[str, Any], console: Console) -> None:
    _print_chain_header(values, console)
    _print_spectrum(values["spectrum"], console)
    _print_extremes(values["extreme_eigenvalues"], console)
    _print_statistics(values["statistics"], True, console)
    _print_missing_moments(values["dims"], values["statistics"], console)
    _print_exact_moments(values["exact_moments"], console)
    console.print()
    _note(_WITH_JSON, console)


def _print_chain_header(values: dict[str, Any], console: Console) -> None:
    dims, sigmas = values["dims"], [f"{sigma:.6g}" for sigma in values["sigmas"]]
    divided = f" / √{dims[0]}" if values["normalization"] == "sqrt_d" else ""
    factors = "X" if len(dims) == 2 else f"X₁ ⋯ X{str(len(dims) - 1).translate(_SUBSCRIPTS)}"
    shape = " × ".join(map(str, dims))
    console.print(Text.assemble((f"W = {factors}{divided}", "bold"), f"    dimensions {shape}"))
    if values["self_normalized"]:
        scale = (
            "each divided by its own estimate of σ in extreme eigenvalues, statistics and moments, the rest at σ = 1"
        )
    else:
        scale = f"σ = {sigmas[0] if len(set(sigmas)) == 1 else ', '.join(sigmas)}"
    _note(
        f"Gaussian factors, {scale}. λ: the {values['rank']} nonzero eigenvalues of WᵀW; s = √λ: its singular values.",
        console,
    )


def _print_path(values: dict[str, Any], console: Console) -> None:
    depth, width = values["depth"], values["d_model"]
    shape = f"depth {depth}, σ = {values['sigma']:.6g}" + (f", d = {width}" if width else "")
    console.print(Text.assemble(("P = Π (I + σ G / √d)", "bold"), f"    {shape}"))
    _note("G: d × d matrices with independent entries of variance 1. λ: eigenvalues of PPᵀ; s = √λ.", console)
    spectrum = values["spectrum"]
    _print_spectrum(spectrum, console)
    _note(f"mean of ln λ: {_number(spectrum['log_mean'])}", console)
    if values["exact_moments"]:
        _print_exact_moments(values["exact_moments"], console)
    else:
        _note("--d-model adds the Tracy–Widom scales and exact moments at that width", console)
    console.print()
    _note(_WITH_JSON, console)


def _print_law(values: dict[str, Any], console: Console) -> None:
    _print_header(values, console)
    _print_spectrum(values["spectrum"], console)
    _print_extremes(values["extreme_eigenvalues"], console)
    _print_statistics(values["statistics"], values["self_normalized"], console)
    d_model, d_head = values["d_model"], values["d_head"]
    _print_missing_moments((d_model, d_head, d_model), values["statistics"], console)
    _print_exact_moments(values["exact_moments"], console)
    _print_element(values["element"], console)
    _print_spike(values["spike"], values["sigma_q"] == values["sigma_k"], console)
    _print_factor(values["factor"], console)
    console.print()
    _note(f"{_WITH_JSON} The moments are there in LaTeX, too.", console)


def _print_header(values: dict[str, Any], console: Console) -> None:
    divided = " / √d_model" if values["normalization"] == "sqrt_d" else ""
    shape = f"d_model {values['d_model']}, d_head {values['d_head']}, γ = {values['aspect_ratio']:.6g}"
    console.print(Text.assemble((f"W_QK = W_Qᵀ W_K{divided}", "bold"), f"    {shape}"))
    if values["self_normalized"]:
        weights = (
            "Gaussian weights; in extreme eigenvalues, statistics and moments each factor is divided by its own "
            "estimate of σ, the rest is at σ = 1"
        )
    else:
        sigma_q, sigma_k = values["sigma_q"], values["sigma_k"]
        one = f"σ = {sigma_q:.6g}"
        weights = f"Gaussian weights, {one if sigma_q == sigma_k else f'σ_Q = {sigma_q:.6g}, σ_K = {sigma_k:.6g}'}"
    _note(
        f"{weights}; normalization {values['normalization']}. λ: the d_head nonzero eigenvalues of W_QKᵀ W_QK; "
        "s = √λ: its singular values.",
        console,
    )


def _print_spectrum(spectrum: dict[str, Any], console: Console) -> None:
    _title("Spectrum", "law of λ in the limit of large matrices", console)
    quantiles = [
        (f"{_percent(p)} quantile", x, None if x is None else x**0.5)  # None where a double cannot hold it
        for p, x in spectrum["quantiles"].items()
    ]
    _print_table(("", "λ", "s", "Tracy–Widom scale of λ"), [*_edges(spectrum), *quantiles], console)
    console.print()
    orders = range(1, len(spectrum["moments"]) + 1)
    kinds = {"moments": "moment", "cumulants": "cumulant", "free_cumulants": "free cumulant"}
    rows = [(name, *spectrum[kind]) for kind, name in kinds.items() if kind in spectrum]
    _print_table(("order", *map(str, orders)), rows, console)
    if "often_quoted" not in spectrum:
        return
    console.print()
    quoted = spectrum["often_quoted"]
    (low, high), (low_s, high_s) = quoted["support"], quoted["support_singular_values"]
    _note(
        "Often quoted, not the law of W_QK: Marchenko–Pastur edges, "
        f"λ from {_number(low)} to {_number(high)} and s from {_number(low_s)} to {_number(high_s)}. "
        f"Of a random head's λ {_number(100 * quoted['fraction_outside'], 3)} % lie outside.",
        console,
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


def _print_extremes(extremes: dict[str, Any], console: Console) -> None:
    _title("Extreme eigenvalues", "of one draw; Tracy–Widom or Bessel edge, to second order", console)
    symbols = {"largest_eigenvalue": ("λ_max", "s_max"), "smallest_eigenvalue": ("λ_min", "s_min")}
    known = {name: law for name, law in extremes.items() if law["reason"] is None}
    if known:
        both = [part for law in known.values() for part in (law, law["singular_value"])]
        rows: list[tuple[Any, ...]] = [
            ("mean", *(part["mean"] for part in both)),
            ("sd", *(_number(part["std"], 4) for part in both)),
        ]
        for p in next(iter(known.values()))["quantiles"]:
            at_p = [law["quantiles"][p] for law in known.values()]
            rows.append((f"{_percent(p)} quantile", *(value for x in at_p for value in (x, x**0.5))))
        _print_table(("", *(symbol for name in known for symbol in symbols[name])), rows, console)
    for name, law in extremes.items():
        if law["reason"] is not None:
            _note(f"no law of {symbols[name][0]} here: {law['reason']}", console)


def _print_statistics(statistics: dict[str, Any], self_normalized: bool, console: Console) -> None:
    _title("Statistics", "of one draw", console)
    known = {name: law for name, law in statistics.items() if law["reason"] is None}
    notes = dict.fromkeys((law["method"], law["accuracy"]) for law in known.values())
    letters = dict(zip(notes, "abcdefghijklmnopqrstuvwxyz", strict=False))
    rows = {
        name: (
            name.removesuffix(_SINGULAR),
            _number(law["mean"]),
            _number(law["std"], 4),
            *(_number(law["quantiles"][p]) for p in ("0.025", "0.975")),
            letters[law["method"], law["accuracy"]],
        )
        for name, law in known.items()
    }
    heading = ("", "mean", "sd", "2.5 %", "97.5 %", "")
    of_eigenvalues = [row for name, row in rows.items() if not name.endswith(_SINGULAR)]
    of_singular_values = [row for name, row in rows.items() if name.endswith(_SINGULAR)]
    if of_eigenvalues:
        _print_table(heading, of_eigenvalues, console, _WIDTHS)
    if of_singular_values:
        _note(f"of s instead of λ, named *{_SINGULAR}", console)
        _print_table((), of_singular_values, console, _WIDTHS)
    for (method, accuracy), letter in letters.items():
        known_how = accuracy if accuracy.startswith(method) else f"{method}: {accuracy}"
        _note(f"{letter}  {re.sub('standard deviations?', 'sd', known_how)}", console, hang=3)
    missing: dict[str, list[str]] = {}
    for name, law in statistics.items():
        if law["reason"] is not None:
            missing.setdefault(_condition(law["reason"], name), []).append(name)
    for condition, names in missing.items():
        _note(f"no law here, {condition}: {', '.join(names)}", console)
    if missing and not self_normalized:
        _note(f"to simulate what has no law here: {next_command(name='baseline')}", console)


def _print_missing_moments(dims: Sequence[int], statistics: dict[str, Any], console: Console) -> None:
    """Print for each statistic without mean or variance the reason, and where to find its quantiles."""
    from rmtbase.statistics import (
        SPECTRAL_STATISTICS,
        ExtremeMoments,
        inverse_moment_order,
        missing_moment,
        moment_order,
    )

    extremes = ExtremeMoments(smallest=inverse_moment_order(tuple(dims)))
    for name, statistic in SPECTRAL_STATISTICS.items():
        lacks = missing_moment(name, moment_order(statistic, extremes, min(dims)))
        if lacks is not None:
            known = statistics[name]["reason"] is None
            where = "its quantiles are those of its law" if known else "a simulation has its median and quantiles"
            _note(f"{lacks}; {where}", console)


def _print_exact_moments(moments: dict[str, Any], console: Console) -> None:
    _title("Moments", "of one draw; exact at this size", console)
    symbols = {"trace": "Σ λ", "trace_of_square": "Σ λ²", "log_determinant": "Σ ln λ"}
    fields = {"mean": "mean", "std": "sd", "skewness": "skewness", "excess_kurtosis": "excess kurtosis"}
    held = [field for field in fields if field in moments["trace"]]
    rows = [
        (symbol, *(moments[name][field] for field in held)) for name, symbol in symbols.items() if moments.get(name)
    ]
    _print_table(("", *(fields[field] for field in held)), rows, console)
    for name in ("trace", "trace_of_square"):
        if "mean_formula" in moments[name]:
            _note(f"E {symbols[name]} = {_formula(moments[name]['mean_formula'])}", console)
    if moments.get("correlation_of_traces") is not None:
        _note(f"correlation of Σ λ and Σ λ²: {_number(moments['correlation_of_traces'])}", console)


def _print_element(element: dict[str, Any], console: Console) -> None:
    _title("One element w of W_QK", "variance-gamma, exact", console)
    normal = element["normal_of_same_variance"]
    anchor, normal_anchor = element["weibull_anchor"], normal["weibull_anchor"]
    tails = [
        (f"x with P(w > x) = {p.replace('e-0', 'e-')}", x, normal["upper_quantiles"][p])
        for p, x in element["upper_quantiles"].items()
    ]
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
    _print_table(("", "w", "normal law of that sd"), rows, console)


def _print_spike(spike: dict[str, Any], alike: bool, console: Console) -> None:
    _title("A planted rank-one spike", "strength θ of θ u vᵀ, u and v of unit length", console)
    places = {
        "on_product": "on W_QK, as normalized",
        "on_factor": f"on W_Q{' (or W_K)' if alike else ''}, seen in W_QK",
        "on_factor_alone": "on W_Q, seen in W_Q itself",
    }
    powers = list(spike["on_product"]["detectable_strength"])
    rows = [
        (place, spike[key]["threshold"], *spike[key]["detectable_strength"].values()) for key, place in places.items()
    ]
    _print_table(("", "threshold", *(f"power {_percent(p)}" for p in powers)), rows, console)
    _note(
        "beyond the threshold λ_max leaves the bulk; then the strengths that the test on λ_max at level "
        f"{_percent(spike['level'])} finds with that power",
        console,
    )
    if spike["reason"] is not None:
        _note(f"no power here, {_condition(spike['reason'], 'largest_eigenvalue')}", console)


def _print_factor(factor: dict[str, Any], console: Console) -> None:
    rows, columns = factor["shape"]
    _title(f"One factor W_Q, {rows} × {columns}", "Marchenko–Pastur law of λ of W_Q", console)
    _print_table(("", "λ", "s", "Tracy–Widom scale of λ"), _edges(factor), console)


def _condition(reason: str, statistic: str) -> str:
    """Shorten the reason why a law is missing to its condition."""
    return re.split("[,:]", reason.replace(f" for the {statistic}", ""), maxsplit=1)[0]


def _title(title: str, of_what: str, console: Console) -> None:
    console.print()
    console.print(Text.assemble((title, "bold"), (f"   {of_what}", "dim")))


def _note(text: str, console: Console, hang: int = 0) -> None:
    width, indent = min(console.width, _WIDEST_NOTE) if console.is_terminal else console.width, "  "
    bound = text.replace(" %", "\u00a0%")  # a number and its per cent sign stay on one line
    lines = textwrap.wrap(bound, width, initial_indent=indent, subsequent_indent=indent + hang * " ")
    console.print(Text("\n".join(lines).replace("\u00a0", " "), "dim"))


def _print_table(
    heading: Sequence[str], rows: Iterable[Sequence[Any]], console: Console, widths: Sequence[int] = ()
) -> None:
    """Print a table with labels aligned left and numbers aligned right; texts are not formatted."""
    rows = list(rows)
    shown = Table(
        box=None, show_header=bool(heading), header_style="dim", pad_edge=False, padding=(0, 1 if widths else 3, 0, 0)
    )
    for place in range(len(heading) or len(rows[0])):
        shown.add_column(
            heading[place] if heading else "",
            justify="right" if place else "left",
            min_width=widths[place] if widths else None,
            no_wrap=True,
        )
    for row in rows:
        shown.add_row(*(cell if isinstance(cell, str) else _number(cell) for cell in row))
    console.print(Padding(shown, (0, 0, 0, 2), expand=False))


def _number(value: float | None, digits: int = _DIGITS) -> str:
    """Format a number with ``digits`` significant digits, whole numbers without decimals, exponents without padding."""
    if value is None:
        return "–"
    if math.isclose(value, round(value), rel_tol=1e-14) and abs(value) < 10**digits:
        return f"{value:.0f}"
    text = f"{value:.{digits - 1}e}" if abs(value) < 1e-3 else f"{value:#.{digits}g}".rstrip(".")
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else text


def _percent(probability: str | float) -> str:
    return f"{100 * float(probability):g} %"


def _formula(python: str) -> str:
    """Typeset a formula in Python's notation: powers as superscripts, products by juxtaposition."""
    raised = re.sub(r"\*\*(\d+)", lambda power: power[1].translate(_SUPERSCRIPTS), python)
    return raised.replace("sigma_q", "σ_Q").replace("sigma_k", "σ_K").replace("sigma", "σ").replace("*", " ")
