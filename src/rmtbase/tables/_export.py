"""Tables for other programs: comma-separated values, Parquet, and LaTeX."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.shown import json_safe, shown
from rmtbase.tables._frame import frame_groups, to_pandas
from rmtbase.tables._latex import latex_table

if TYPE_CHECKING:
    import pandas as pd

EXPORT_FORMATS = ("csv", "parquet", "latex", "json")

_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # first characters of a formula, also in full width
_BEFORE = " \"'"  # characters that spreadsheets strip before they look for a formula
_PARQUET = "pip install 'rmtbase[parquet]'"
_KEPT = ("kind", "model", "revision", "family", "null", "table", "normalization", "rmtbase_version", "provenance")


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
    metadata = {
        f"rmtbase.{name}": value if isinstance(value, str) else json.dumps(value) for name, value in facts.items()
    }
    written = {name: value.encode(errors="backslashreplace") for name, value in metadata.items()}
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
