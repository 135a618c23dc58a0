"""Output of the commands that make a table: the table, its page, and its report on the terminal."""

import ast
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pandas as pd
import typer
import xarray as xr

from rmtbase.errors import OutputError, ParameterError
from rmtbase.heads.read_sites import require_circuits, sites_of
from rmtbase.models import WeightMatrices, open_model, opened_from, require_other_files
from rmtbase.report import Item, print_report
from rmtbase.results import KINDS
from rmtbase.results.attributes import result_json
from rmtbase.tables import KINDS as TABLE_KINDS
from rmtbase.tables import require_replaceable, require_writable, rows_of, write_bytes, write_table
from rmtbase.terminal.endings import say
from rmtbase.terminal.output import show
from rmtbase.terminal.streams import bars, say_written
from rmtbase.words import listing

_PAGES = (".html", ".htm")


class Outputs:
    """Table that a command writes, and its page: checked before long work, written after it.

    Args:
        paths: files to write. A name that ends in ``.html`` is the page, any other name the table.
        kind: kind of the table, or several kinds, which may replace each other.
        default: path of the table if ``paths`` has none.

    Raises:
        OutputError: a file cannot be written, is stdout, or there are two files for the same thing.
    """

    def __init__(
        self, paths: Path | Sequence[Path] | None, kind: str | Sequence[str], default: Path | None = None
    ) -> None:
        files = [paths] if isinstance(paths, Path) else list(paths or ())
        pages = [path for path in files if path.suffix.lower() in _PAGES]
        tables = [path for path in files if path not in pages] or ([] if default is None else [default])
        for path, *surplus in filter(None, (tables, pages)):
            if surplus:
                raise OutputError(surplus[0], f"{path} is named for the same output; expected one of them")
            if path == Path("-"):
                raise OutputError("-", "this file cannot be written to stdout; name a file")
            require_writable(path)
        self._kinds, self._gate = [kind] if isinstance(kind, str) else kind, ("", None)
        self.table, self.page = (next(iter(paths_of), None) for paths_of in (tables, pages))
        self._before = _version(self.table)

    def require_replaceable(self, *read: WeightMatrices | Path) -> None:
        """Raise :class:`~rmtbase.errors.OutputError` if a file is there that must not be replaced, or that is read."""
        paths = {form: path for form, path in {"table": self.table, "html": self.page}.items() if path is not None}
        inputs = [source for source in read if isinstance(source, Path)]
        for model in (source for source in read if not isinstance(source, Path)):
            require_other_files(paths.values(), model)
            inputs += [source.path for source in opened_from(model)]
        for form, path in paths.items():
            require_replaceable(path, form, inputs=inputs, variants=self._kinds)

    def run(self, *models: str, shown: Mapping[str, Any] = MappingProxyType({}), **options: Any) -> None:
        """Open the models, measure them as the folder of this kind does, write the files, and print the report.

        ``shown`` are options of the report and of its JSON, which is made of both where the kind has no ``as_json``.
        """
        folder = KINDS[self._kinds[0]]
        module, words = (import_module(f"rmtbase.results.{folder}.{name}") for name in ("measure", "report"))
        table = self.measure(getattr(module, folder), *map(self.open, models), **options)
        report = partial(words.report, **shown)
        as_json = getattr(words, "as_json", None)
        self.finish(table, partial(_plain_json, report) if as_json is None else partial(as_json, **shown), report)

    def open(self, model: str, **options: Any) -> Any:
        """Open a model that is read, and check as :meth:`require_replaceable`."""
        opened = open_model(model, **options)
        self.require_replaceable(opened)
        return opened

    @staticmethod
    def measure(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Return what a function measures, with its progress on the terminal."""
        with bars() as progress:
            return function(*args, **options, progress=progress)

    def gate(self, command: str, condition: str | None, heads: Sequence[Mapping[str, Any]]) -> None:
        """Judge the condition of ``--fail-if`` before long work, and have :meth:`finish` apply it."""
        self._gate = command, condition
        if condition is not None:
            _met(command, heads, condition)

    def finish(
        self,
        table: xr.Dataset | xr.DataTree,
        as_json: Callable[[Any], object],
        report: Callable[[Any], Iterable[Item]],
        page: Callable[[Any], str] | None = None,
        *,
        drawn: xr.Dataset | xr.DataTree | None = None,
        written: bool = False,
        gated: bool = True,
    ) -> None:
        """Write the files, name each on stderr, and print the result; the functions take the table."""
        data = cache(lambda: as_json(table))
        items = cache(lambda: list(report(table)))  # the page and the terminal show the same
        files = [] if self.table is None else [self.table]
        if written:
            files = [path for path in files if _version(path) != self._before]
        elif self.table is not None:
            write_table(table, self.table)
        if self.page is not None:
            if page is None:  # the report of a table of any kind, and its standard figures
                from rmtbase.report.page import render_page

                shown = table if drawn is None else drawn
                figures = import_module(f"rmtbase.results.{KINDS[str(shown.attrs['kind'])]}.figures")
                content = render_page(shown, items(), figures.figure_recipes)
            else:
                content = page(table)
            files.append(write_bytes(content.encode(), self.page))
        say_written(*files)
        command, condition = self._gate
        if condition is None or not gated:
            show(data, lambda console: print_report(items(), console))
            return
        heads = cast("dict[str, Any]", data())["heads"]
        met = _met(command, heads, condition)
        show(data, lambda console: print_report(items(), console))
        undecided = "cannot be told to meet or not", met.isna(), UNDECIDED
        for kind, mask, status in (("meet", met.fillna(False), FOUND), undecided):
            chosen = [head for head, is_chosen in zip(heads, mask, strict=True) if is_chosen]
            places = [" ".join(f"{name} {head[name]}" for name in _PLACE if name in head) for head in chosen]
            if places:
                say(f"{len(places)} of {len(heads)} {kind} --fail-if {condition!r}: {listing(places, _NAMED)}")
                raise typer.Exit(status)


def _plain_json(report: Callable[[Any], Iterable[Item]], table: xr.Dataset) -> dict[str, Any]:
    """Return the sentences of a report, and the variables of a table; rows without numbers are padding."""
    schema = TABLE_KINDS[table.attrs["kind"]].groups[""]
    rows = rows_of(table, schema, *next(iter(schema.values())).dims)
    rows = [row for row in rows if not all(row[name] is None or row[name] != row[name] for name in schema)]
    sentences = [item for item in report(table) if type(item) is str]
    return result_json(table.attrs, ("model", "revision"), [], sentences, rows=rows)


def _version(path: Path | None) -> tuple[int, int] | None:
    status = path.stat() if path is not None and path.exists() else None
    return None if status is None else (status.st_ino, status.st_mtime_ns)


FOUND = 3  # exit status if a head meets the condition of ``--fail-if``
UNDECIDED = 4  # exit status if no head meets that condition, but heads that could not be tested might

_NAMED = 5  # heads
_MOST_VALUES = 12  # of a name of a place
_PLACE = ("stack", "step", "layer", "what", "head")  # names that identify a head in a record
# JSON type → type of pandas that also has values that are not known
_TYPES: dict[str, Any] = {"boolean": "boolean", "integer": "Int64", "number": "Float64", "string": "string"}


def places_of(model: WeightMatrices, circuits: Sequence[str] = ("qk",)) -> list[dict[str, Any]]:
    """List the places of all heads of a model by some circuits, as the JSON of its scores or signal names them."""
    return [
        ({"stack": site.place.stack} if site.place.stack else {})
        | {"layer": site.place.layer, "what": circuit.name, "head": head}
        for circuit in require_circuits(model, circuits)
        for site in (model.sites[index] for index in sites_of(model, circuit))
        for head in range(getattr(site, circuit.heads))
    ]


def _met(command: str, heads: Sequence[Mapping[str, Any]], condition: str) -> pd.Series:
    schema = json.loads((files("rmtbase.results") / "schemas" / f"{command}.json").read_text(encoding="utf-8"))
    fields = schema["properties"]["heads"]["items"]
    names = [name for name in fields["properties"] if name in fields["required"] or any(name in head for head in heads)]
    columns = {}
    for name in names:
        types = fields["properties"][name]["type"]  # one, or a list of two of which one is null
        kind = types if isinstance(types, str) else next(kind for kind in types if kind != "null")
        columns[name] = pd.array([head.get(name) for head in heads], dtype=_TYPES[kind])
    table = pd.DataFrame(columns)
    try:
        met = table.eval(condition, engine="python", local_dict={}, global_dict={})
    except Exception as error:  # pandas raises errors of many kinds for text that it cannot read
        expected = f"a condition on {', '.join(table)}, such as 'layer == 3 and not differs' ({error})"
        raise ParameterError("fail_if", condition, expected) from None
    if not isinstance(met, pd.Series) or met.dtype.kind != "b":
        raise ParameterError("fail_if", condition, f"a condition, true or false, on {', '.join(table)}")
    for name, values in _places_named(condition):
        present = table[name].dropna() if name in table else pd.Series(dtype=object)
        if len(present) and not bool(present.isin(values).any()):
            texts = [str(value) for value in present.unique().tolist()]
            texts = texts if len(texts) <= _MOST_VALUES else [*texts[: _MOST_VALUES - 1], "…", texts[-1]]
            raise ParameterError("fail_if", condition, f"a {name} that is there: {', '.join(texts)}")
    return met


def _places_named(condition: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield each name of a place that a condition compares for equality, with the values that it may have."""
    for node in ast.walk(ast.parse(condition.strip(), mode="eval")):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.In) and len(node.ops) == 1:
            for name, value in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
                if isinstance(name, ast.Name) and name.id in _PLACE:
                    try:
                        value = ast.literal_eval(value)
                    except ValueError:  # another name, or a calculation
                        continue
                    yield name.id, list(value) if isinstance(value, list | tuple | set) else [value]
