"""Users of each public name: its own package, other packages, tests, other code of the repository, and pages.

    python tests/public_names.py               # counts for each package
    python tests/public_names.py laws nulls    # and the names of these that no page and no other code uses

A name counts as used where it is imported from its package, read from it as an attribute, or named in a string such as
``"laws.GaussianChain"``; by a page where it stands in code font or in a block of code.
"""

import ast
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rmtbase"
CODE = ("studies", "sims", "examples", "benchmarks", "docs")
KINDS = ("nowhere", "own package", "tests", "results", "other packages", "code", "pages")
"""The widest use of a name, ascending.

``results`` are classes that public functions give or take, and ``code`` is that in the folders of :data:`CODE`."""
WITH_ALL = tuple(sorted(path.parent.name for path in SOURCE.glob("*/__init__.py") if "__all__" in path.read_text()))

_DOTTED = re.compile(r"(?:rmtbase\.)?(\w+)\.(\w+)(?:\.\w+)*")
_IN_CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)


def uses() -> dict[str, dict[str, str]]:
    """The widest use of each public name, for each package."""
    found: dict[tuple[str, str], set[str]] = {}
    for path, kind in _files():
        for package, name in _named(path):
            own = kind == "src" and path.relative_to(SOURCE).parts[0] == package
            reading = ("own package" if own else "other packages") if kind == "src" else kind
            found.setdefault((package, name), set()).add(reading)
    annotated = set(_annotated())
    words = Counter(word for path in _pages() for code in _IN_CODE.findall(path.read_text(encoding="utf-8"))
                    for word in set(re.findall(r"\w+", code)))  # fmt: skip
    return {
        package: {
            name: "pages"
            if words[name]
            else max(
                found.get((package, name), {"nowhere"}) | ({"results"} if name in annotated else set()), key=KINDS.index
            )
            for name in import_module(f"rmtbase.{package}").__all__
        }
        for package in WITH_ALL
    }


def _annotated() -> Iterator[str]:
    """Words in the annotations of public functions, and of methods and attributes of public classes."""
    for package in WITH_ALL:
        module = import_module(f"rmtbase.{package}")
        for name in module.__all__:
            value = getattr(module, name)
            for one in (value, *vars(value).values()) if inspect.isclass(value) else (value,):
                one = getattr(one, "func", getattr(one, "fget", one))  # of cached and plain properties
                for annotation in getattr(one, "__annotations__", {}).values():
                    yield from (word for word in re.findall(r"\w+", str(annotation)) if word != name)


def _files() -> Iterator[tuple[Path, str]]:
    yield from ((path, "src") for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.name != "__init__.py")
    yield from ((path, "tests") for path in (ROOT / "tests").rglob("*.py"))
    yield from ((path, "code") for folder in CODE for path in (ROOT / folder).rglob("*.py"))


def _pages() -> Iterator[Path]:
    yield ROOT / "README.md"
    yield from (path for path in (ROOT / "docs").rglob("*.md") if "generated" not in path.parts)


def _named(path: Path) -> Iterator[tuple[str, str]]:
    """(package, name) of each use in a file; a package's ``__init__`` uses nothing of its own."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    facade = path.parent.parent == SOURCE and path.name == "__init__.py"
    packages: dict[str, str] = {}  # by the names that they have in the file
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "rmtbase":
            packages |= {one.asname or one.name: one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rmtbase."):
            package = node.module.split(".")[1]  # type: ignore[union-attr]
            if not (facade and path.parent.name == package):
                yield from ((package, one.name) for one in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _DOTTED.findall(node.value) if _DOTTED.fullmatch(node.value.partition(":")[0]) else ()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        if isinstance(node.value, ast.Name) and node.value.id in packages:
            yield packages[node.value.id], node.attr
        elif isinstance(node.value, ast.Attribute) and ast.unparse(node.value.value) == "rmtbase":
            yield node.value.attr, node.attr


def main() -> None:
    """Print the counts, and the names of the packages that are asked for."""
    found = uses()
    rows = {package: Counter(names.values()) for package, names in found.items()}
    rows["all"] = sum(rows.values(), Counter())
    print(f"{'package':14}", *(f"{kind:>15}" for kind in (*KINDS, "together")))
    for package, counts in rows.items():
        print(f"{package:14}", *(f"{counts[kind]:15}" for kind in KINDS), f"{counts.total():15}")
    for package in sys.argv[1:]:
        for kind in KINDS[:-2]:
            print(f"\n{package}, {kind}:", *(name for name, one in found[package].items() if one == kind))


if __name__ == "__main__":
    main()
