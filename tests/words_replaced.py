"""Results of every kind, with every English text in the source of rmtbase replaced by "x".

    python tests/words_replaced.py words FOLDER     as the package is
    python tests/words_replaced.py x FOLDER         with "x" for each text of two words or more

Both print as JSON what a reader of words could change: the numbers and codes of each table, the numbers of its JSON,
the data that its figures draw, and how many lines each command prints.
"""

import ast
import contextlib
import hashlib
import importlib.abc
import importlib.machinery
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

_TWO_WORDS = re.compile(r"(?<![\w./-])[A-Za-z]{2,}[,;:.)?]* +\(?[A-Za-z]{2,}(?![\w./-])")
_SETTING = re.compile(r"\w+: value")  # a line of YAML
_PLACES = re.compile("(outside )?(value|upper|lower|center) (value|left|right|center)")  # Matplotlib's codes


class _Replaced(ast.NodeTransformer):
    """Texts of two words or more become "x"; the values within a template are still formatted."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node if node.name == "name" else self.generic_visit(node)  # an ensemble's name keys its draws

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and _TWO_WORDS.search(node.value) and not _PLACES.fullmatch(node.value):
            return ast.copy_location(ast.Constant("x"), node)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        words = "".join(part.value if isinstance(part, ast.Constant) else "value" for part in node.values)
        letters = any(re.search("[a-z]{2}", part.value) for part in node.values if isinstance(part, ast.Constant))
        if not (letters and _TWO_WORDS.search(words)) or any(code.fullmatch(words) for code in (_SETTING, _PLACES)):
            return self.generic_visit(node)
        values = [self.generic_visit(part) for part in node.values if isinstance(part, ast.FormattedValue)]
        return ast.copy_location(ast.JoinedStr([ast.copy_location(ast.Constant("x"), node), *values]), node)


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = _Replaced().visit(ast.parse(self.get_data(path)))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname.split(".")[0] != "rmtbase":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def commands(folder: Path) -> dict[str, list[str]]:
    """Commands of every kind of result, each with the table that it writes."""

    def to(name: str) -> list[str]:
        return ["-o", str(folder / f"{name}.nc")]

    heads = ["--matrices", "none"]
    first, last = str(folder / "first.nc"), str(folder / "scores.nc")
    return {
        "scores": ["score", "demo", "--null", "analytic", "--circuits", "qk,ov", *to("scores")],
        "first": ["score", "demo@step-0", "--null", "analytic", *to("first")],
        "signs": ["score", "demo", "--null", "signs", "--draws", "99", *heads, *to("signs")],
        "signal": ["signal", "demo", *heads, *to("signal")],
        "composition": ["composition", "demo", *to("composition")],
        "depth": ["depth", "demo", *to("depth")],
        "changes": ["diff", "demo@step-200", "demo", *to("changes")],
        "trajectory": ["trajectory", "demo", "--revisions", "step-0,final", *heads, *to("trajectory")],
        "comparison": ["compare", first, last, *to("comparison")],
        "baseline": ["baseline", "--d-model", "48", "--d-head", "8", "--draws", "64", *to("baseline")],
        "law": ["law", "--d-model", "768", "--d-head", "64"],
        "constants": ["constants"],
    }  # fmt: skip


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Numbers, codes and flags in JSON, each with its path; texts of several words are left out."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}/{key}")
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from leaves(item, f"{path}/{place}")
    elif not isinstance(value, str) or _is_code(value):
        yield path, value


def _is_code(text: str) -> bool:
    return text.isidentifier() and not text.startswith("x")


def digest(array: Any) -> str:
    values = np.asarray(array)
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16] + str(values.shape)


def contents(path: Path) -> dict[str, str]:
    """Numbers and codes of a table, by variable; texts of several words are left out."""
    tree = open_table(path)
    groups = {"": tree} if isinstance(tree, xr.Dataset) else {node.path: node.to_dataset() for node in tree.subtree}
    found = {}
    for group, dataset in groups.items():
        for name, variable in dataset.variables.items():
            values = variable.values
            if values.dtype.kind in "OUT":
                values = np.array([text if _is_code(text) else "" for text in values.astype(str).ravel()])
            found[f"{group}/{name}"] = digest(values)
    return found


def data_of(artist: Any) -> list[Any]:
    """Arrays that an artist draws."""
    if isinstance(artist, Line2D):
        return [artist.get_xydata()]
    if isinstance(artist, Collection):
        return [artist.get_offsets(), *(path.vertices for path in artist.get_paths()), artist.get_facecolor()]
    if isinstance(artist, AxesImage):
        return [artist.get_array()]
    return [artist.get_path().vertices, artist.get_facecolor()] if isinstance(artist, Patch) else []


def drawn(path: Path) -> dict[str, list[str]]:
    """Data of all lines, points, images and areas of each figure of a table."""
    table, data = open_table(path), {}
    for name, figure in figures(table, names=figure_names(table)).items():
        artists = [artist for ax in figure.axes for artist in ax.get_children() if artist is not ax.patch]
        data[name] = [digest(array) for artist in artists for array in data_of(artist)]
        pyplot.close(figure)
    return data


def run(arguments: list[str]) -> tuple[int, str]:
    """Run a command in this process: its exit code and what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        try:
            main(arguments)
        except SystemExit as end:
            return int(end.code or 0), printed.getvalue()
    return 0, printed.getvalue()


def results(folder: Path, *names: str) -> dict[str, Any]:
    """Everything that must not depend on words."""
    found = {}
    for name, arguments in commands(folder).items():
        if names and name not in names:
            continue
        code, report = run(["--verbose", *arguments])
        _, printed = run(["--json", *arguments])
        table = folder / f"{name}.nc"
        found[name] = {
            "status": code,
            "lines": None if name == "law" else report.count("\n"),  # footnotes of law of equal words are one
            "json": dict(leaves(json.loads(printed))),
            "table": contents(table) if table.exists() else {},
            "figures": drawn(table) if table.exists() else {},
        }
    return found


if __name__ == "__main__":
    if sys.argv[1] == "x":
        sys.meta_path.insert(0, _Finder())
    import matplotlib.pyplot as pyplot
    import xarray as xr
    from matplotlib.collections import Collection
    from matplotlib.image import AxesImage
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    from rmtbase.cli import main
    from rmtbase.report._glossary import Glossary
    from rmtbase.results import open_table
    from rmtbase.results.figures import figure_names, figures

    Glossary.explained = lambda *_: []  # it goes from words to words
    print(json.dumps(results(Path(sys.argv[2]), *sys.argv[3:])))
