"""LaTeX tables for print."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rmtbase.errors import ParameterError
from rmtbase.reasons import Reason
from rmtbase.shown import as_latex, last_place, to_place

if TYPE_CHECKING:
    import pandas as pd

_LONG = 40  # number of rows from which a table may break across pages
_DIGITS = 5
_PLACES = (
    "case", "step", "d_model", "d_head", "sigma_q", "sigma_k", "name", "model", "published_model", "pair", "group",
    "contrast", "first", "second", "first_group", "second_group", "null", "stack", "layer", "head", "expert",
    "super_weight", "component", "row", "column", "statistic", "measure", "kind", "earlier", "later",
)  # fmt: skip
_NUMBERS = (
    "score", "expected_score",
    "mean", "std", "analytic_mean", "analytic_std", "observed", "null_mean", "null_std", "z_score", "p_value",
    "q_value", "effective_depth", "effective_depth_low", "effective_depth_high", "distance", "fits",
    "value", "magnitude_over_core", "log10_tail_probability", "first_step", "lasting_step",
    "n_matrices", "n_departed", "shape", "scale", "median_scale", "r_squared", "nearest_model",
    "nearest_distance", "nearest_random_median", "nearest_q_value", "alignment", "alignment_p_value", "omnibus_p_value",
    "omnibus_q_value", "drift", "difference", "adjusted_p_value", "n_scored_heads", "n_departed_heads", "budget",
    "budget_state", "transmission_shape", "transmission_scale", "n_directions", "no_number", "signal_share",
    "learned_share_bound", "threshold", "noise_scale", "rest_p_value", "first_p_value", "power_law_exponent",
    "exponent_p_value", "tail_verdict",
)  # fmt: skip
_OF_A_HEAD = ("sigma_q", "sigma_k", "omnibus_p_value", "omnibus_q_value")  # repeated for each statistic
_ERRORS = {
    "mean": "standard_error",
    "drift": "standard_error",
    "difference": "standard_error",
    "noise_scale": "noise_scale_std",
}
_BESIDE = {"analytic_mean": "mean", "analytic_std": "std"}  # as many digits as of the simulated value, if known
_HEADINGS = {
    "d_model": "$d$", "d_head": "$h$", "sigma_q": r"$\sigma_Q$", "sigma_k": r"$\sigma_K$", "z_score": "$z$",
    "p_value": "$p$", "q_value": "$q$", "omnibus_p_value": "omnibus $p$", "omnibus_q_value": "omnibus $q$",
    "adjusted_p_value": "adjusted $p$", "alignment_p_value": "its $p$", "std": "sd", "analytic_std": "analytic sd",
    "null_std": "null sd", "log10_tail_probability": r"$\log_{10} P$", "shape": r"$\hat k$",
    "scale": r"$\hat\lambda$", "median_scale": r"median $\hat\lambda$", "r_squared": "$R^2$",
    "transmission_shape": r"$\hat k$", "transmission_scale": r"$\hat\lambda$",
}  # fmt: skip
_NAMES = ("statistic", "component", "measure")
_TOLD = ("d_model", "d_head", "sigma_q", "sigma_k", "name", "stack", "null")  # in a comment if the same in all rows
_BRIEF = ("p_value", "q_value", "z_score")  # three digits are enough for these


def latex_table(
    frame: pd.DataFrame, columns: Sequence[str] | None, attributes: Mapping[str, Any], group: str | None
) -> str:
    r"""Format a frame as a ``tabular``, or a ``longtable`` from 40 rows on, with booktabs rules and escaped names."""
    comment = partial(as_latex, longest=2000)  # it stays within its line
    cells_of: dict[str, list[Any]] = {str(name): frame[name].tolist() for name in frame.columns}
    facts = {name: attributes[name] for name in ("model", "revision") if attributes.get(name)}
    if columns is None:
        columns, shared = _printed(cells_of)
        facts |= shared
    if not columns or frame.empty:
        raise ParameterError("table", f"{len(frame)} rows of {len(columns)} columns", "at least one of each")
    cells = [_column(name, cells_of) for name in columns]
    sides = "".join("l" if any(isinstance(value, str) for value in cells_of[name]) else "r" for name in columns)
    head = " & ".join(_HEADINGS.get(name, as_latex(name.replace("_", " "))) for name in columns) + r" \\"
    rows = [" & ".join(row) + r" \\" for row in zip(*cells, strict=True)]
    contents = ", ".join(part for part in (str(attributes.get("kind", "table")), group) if part)
    lines = [f"% rmtbase {comment(attributes.get('rmtbase_version', ''))}: {comment(contents)}"]
    lines += [f"% {comment(', '.join(f'{name} {value}' for name, value in facts.items()))}"] if facts else []
    reasons = Counter(Reason.read(text).words for text in cells_of.get("reason", ()) if text)
    lines += [f"% {count} of {len(rows)} rows lack numbers: {comment(why)}" for why, count in reasons.items()]
    if len(rows) >= _LONG:
        lines += [r"% \usepackage{booktabs,longtable}", rf"\begin{{longtable}}{{{sides}}}", r"\toprule", head]
        lines += [r"\midrule", r"\endhead", r"\bottomrule", r"\endlastfoot", *rows, r"\end{longtable}"]
    else:
        lines += [r"% \usepackage{booktabs}", rf"\begin{{tabular}}{{{sides}}}", r"\toprule", head]
        lines += [r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def _printed(columns: Mapping[str, list[Any]]) -> tuple[list[str], dict[str, Any]]:
    left_out = _OF_A_HEAD if "head" in columns else ()
    names = [name for name in (*_PLACES, *_NUMBERS) if name in columns and name not in left_out]
    names = [
        name for name in names if any(value == value and value != "" for value in columns[name])
    ]  # NaN is not itself
    if "name" in names or "d_model" in names:
        names = [name for name in names if name != "case"]  # these identify the case
    shared = {}
    if len(columns[names[0]] if names else ()) > 1:
        shared = {name: columns[name][0] for name in names if name in _TOLD and len(set(columns[name])) == 1}
    return [name for name in names if name not in shared], shared


def _column(name: str, columns: Mapping[str, list[Any]]) -> list[str]:
    if name in _BESIDE:
        return _beside(name, columns)
    errors = _errors(name, columns)
    digits = 3 if name.endswith(_BRIEF) else _DIGITS
    return [
        as_latex(value.replace("_", " ") if name in _NAMES and value.islower() else value)
        if isinstance(value, str)
        else with_error(value, spread)
        if spread > 0 and math.isfinite(spread) and math.isfinite(value)
        else number(value, digits)
        for value, spread in zip(columns[name], errors, strict=True)
    ]


def _errors(name: str, columns: Mapping[str, list[Any]]) -> list[float]:
    possible = f"{name}_standard_error", name.replace("quantile", "quantile_standard_error", 1), _ERRORS.get(name, "")
    error = next((column for column in possible if column in columns and column != name), None)
    return [math.nan] * len(columns[name]) if error is None else columns[error]


def _beside(name: str, columns: Mapping[str, list[Any]]) -> list[str]:
    """Format analytic values to the last digit of the simulated value beside them, or to the last one that is known."""
    missing = [math.nan] * len(columns[name])
    errors = _errors(_BESIDE[name], columns) if _BESIDE[name] in columns else missing
    tolerances = columns.get(f"{name}_tolerance", missing)
    places = [last_place(*pair) for pair in zip(errors, tolerances, strict=True)]
    return [
        number(value, _DIGITS) if place is None or math.isnan(value) else _in_math_mode(to_place(value, place))
        for value, place in zip(columns[name], places, strict=True)
    ]


def _in_math_mode(text: str) -> str:
    mantissa, e, exponent = text.partition("e")
    return rf"${mantissa} \times 10^{{{int(exponent)}}}$" if e else f"${text}$"


def number(value: float, digits: int) -> str:
    """Format a number to that many significant digits, in math mode; NaN becomes a dash."""
    if isinstance(value, bool) or (float(value).is_integer() and abs(value) < 1e7):
        return f"${int(value)}$"
    if math.isnan(value):
        return "--"
    if math.isinf(value):
        return r"$\infty$" if value > 0 else r"$-\infty$"
    if 1e-3 <= abs(value) < 1e6:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        return f"${value:.{decimals}f}$"
    return _in_math_mode(f"{value:.{digits - 1}e}")


def with_error(value: float, error: float) -> str:
    exponent = 0
    if not (1e-3 <= max(abs(value), error) < 1e6):
        exponent = math.floor(math.log10(max(abs(value), error)))
    value, error = value / 10.0**exponent, error / 10.0**exponent
    decimals = max(0, 1 - math.floor(math.log10(error)))
    text = rf"{value:.{decimals}f} \pm {error:.{decimals}f}"
    return rf"$({text}) \times 10^{{{exponent}}}$" if exponent else f"${text}$"
