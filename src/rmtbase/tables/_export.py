"""Tables for other programs, as comma-separated values and Parquet, and for print in LaTeX."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.reasons import Reason, packaged_texts
from rmtbase.shown import as_latex, json_safe, last_place, shown, to_place
from rmtbase.tables._frame import frame_groups, to_pandas

if TYPE_CHECKING:
    import pandas as pd

EXPORT_FORMATS = ("csv", "parquet", "latex", "json")

_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # first characters of a formula, also in full width
_BEFORE = " \"'"  # characters that spreadsheets strip before they look for a formula
_PARQUET = "pip install 'rmtbase[parquet]'"
_KEPT = ("kind", "model", "revision", "family", "null", "table", "normalization", "rmtbase_version", "provenance")
_LONG = 40  # number of rows from which a table may break across pages
_DIGITS = 5
_OF_A_HEAD = ("sigma_q", "sigma_k", "omnibus_p_value", "omnibus_q_value")  # repeated for each statistic
_LATEX = packaged_texts("rmtbase.tables", "latex.toml")
_ERRORS = {**dict.fromkeys(("mean", "drift", "difference"), "standard_error"), "noise_scale": "noise_scale_std"}
_BESIDE = {"analytic_mean": "mean", "analytic_std": "std"}  # as many digits as of the simulated value, if known
_NAMES = ("statistic", "component", "measure")
_TOLD = ("d_model", "d_head", "sigma_q", "sigma_k", "name", "stack", "null")  # in a comment if the same in all rows
_BRIEF = ("p_value", "q_value", "z_score")  # three digits are enough for these


def export(
    table: xr.Dataset | xr.DataTree,
    format: Literal["csv", "parquet", "latex", "json"] = "csv",
    *,
    group: str | None = None,
    columns: Collection[str] | None = None,
    statistics: Collection[str] | None = None,
) -> bytes:
    """Export a table, or a group of a tree, to the bytes of a file, with the rows and columns of :func:`to_pandas`.

    CSV keeps every digit; texts are made safe as by :func:`csv_text`. Parquet keeps types and, in its metadata, the
    attributes that describe the origin of the table. LaTeX (booktabs; longtable from 40 rows on) is for print: a few
    columns, with each value to the second digit of its standard error if the table has it, else to five digits. An
    analytic value has as many digits as the simulated one beside it, or as are known if these are fewer.

    Args:
        table: a table of any kind, as made or opened.
        format: ``"csv"``, ``"parquet"`` (which needs pyarrow), ``"latex"`` or ``"json"``, a list of rows with null
            where there is no number.
        group: group of a tree, as for :func:`to_pandas`.
        columns: names, in order; if None all, or for LaTeX those that suit print.
        statistics: keep only rows with these statistics, with ``*`` and ``?`` as wildcards; all if None.

    Raises:
        ParameterError: the format, a group, a column or a statistic is unknown, or pyarrow is not installed for
            Parquet.
    """
    frame = to_pandas(table, group)
    if statistics is not None and "statistic" not in frame:
        raise ParameterError("statistics", ", ".join(statistics), "none: the table has no statistics")
    if statistics is not None:
        chosen = matching("statistics", statistics, dict.fromkeys(frame["statistic"]))
        frame = frame.loc[frame["statistic"].isin(chosen)].reset_index(drop=True)
    if columns is not None:
        unknown = [name for name in columns if name not in frame.columns]
        if unknown:
            raise ParameterError("columns", ", ".join(unknown), f"some of {', '.join(frame.columns)}")
    group = group or next(iter(frame_groups(table)), None)
    if format == "latex":
        chosen = None if columns is None else list(columns)
        return latex_table(frame, chosen, {str(name): value for name, value in table.attrs.items()}, group).encode()
    frame = frame if columns is None else frame.filter(items=list(columns))
    if format == "parquet":
        return _parquet(frame, {name: table.attrs[name] for name in _KEPT if name in table.attrs})
    titles = list(map(str, frame.columns))
    rows = (dict(zip(titles, row, strict=True)) for row in frame.itertuples(index=False, name=None))
    if format == "json":
        return json.dumps(json_safe(list(rows)), indent=1).encode()
    return csv_text(titles, rows).encode()


def matching(
    option: str, patterns: Collection[str], names: Iterable[str], listed: Callable[[str], str] = str
) -> list[str]:
    """Select names by patterns, each of which must match one; an error lists the names, each as ``listed`` gives it."""
    every = list(names)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in every):
            raise ParameterError(option, pattern, f"one of {', '.join(dict.fromkeys(map(listed, every)))}")
    return [name for name in every if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _parquet(frame: pd.DataFrame, facts: dict) -> bytes:
    try:
        import pyarrow as pa  # type: ignore[import-not-found]  # an extra
        import pyarrow.parquet as pq  # type: ignore[import-not-found]
    except ImportError as error:
        raise ParameterError("format", "parquet", f"csv or latex: pyarrow is not installed ({_PARQUET})") from error
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in facts.items()}
    written = {f"rmtbase.{name}": text.encode(errors="backslashreplace") for name, text in texts.items()}
    arrow = arrow.replace_schema_metadata({**(arrow.schema.metadata or {}), **written})
    stream = io.BytesIO()
    pq.write_table(arrow, stream)
    return stream.getvalue()


def csv_text(titles: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """CSV with all digits of numbers; a text that a spreadsheet would run as a formula gets a leading apostrophe."""
    titles, file = list(titles), io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(_cell, titles))
    writer.writerows([_cell(row.get(title, "")) for title in titles] for row in rows)
    return file.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = shown(value)
    return f"'{text}" if text.lstrip(_BEFORE).startswith(_FORMULA) else text


def latex_table(frame: pd.DataFrame, columns: Sequence[str] | None, attrs: Mapping[str, Any], group: str | None) -> str:
    r"""Format a frame as a ``tabular``, or a ``longtable`` from 40 rows on, with booktabs rules and escaped names."""
    comment = partial(as_latex, longest=2000)  # it stays within its line
    cells_of: dict[str, list[Any]] = {str(name): frame[name].tolist() for name in frame.columns}
    facts = {name: attrs[name] for name in ("model", "revision") if attrs.get(name)}
    if columns is None:
        columns, shared = _printed(cells_of)
        facts |= shared
    if not columns or frame.empty:
        raise ParameterError("table", f"{len(frame)} rows of {len(columns)} columns", "at least one of each")
    cells = [_column(name, cells_of) for name in columns]
    sides = "".join("l" if any(isinstance(value, str) for value in cells_of[name]) else "r" for name in columns)
    head = " & ".join(_LATEX["headings"].get(name, as_latex(name.replace("_", " "))) for name in columns) + r" \\"
    rows = [" & ".join(row) + r" \\" for row in zip(*cells, strict=True)]
    contents = ", ".join(part for part in (str(attrs.get("kind", "table")), group) if part)
    lines = [f"% rmtbase {comment(attrs.get('rmtbase_version', ''))}: {comment(contents)}"]
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
    names = [name for name in (*_LATEX["places"], *_LATEX["numbers"]) if name in columns and name not in left_out]
    # NaN is not itself.
    names = [name for name in names if any(value == value and value != "" for value in columns[name])]
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
