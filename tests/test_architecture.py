"""The files, functions, classes and packages that the pages about the architecture name exist."""

import ast
import pkgutil
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import rmtbase

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rmtbase"
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("docs/architecture.md", "CONTRIBUTING.md")}
ARCHITECTURE = PAGES["docs/architecture.md"]
CODE = sorted({name for page in PAGES.values() for name in re.findall(r"`([^`\n]+)`", page)})
PLACES = [name for name in CODE if re.fullmatch(r"[\w./-]+\.(py|md|toml|json|yaml)(::[\w.]+)?", name)]
FOLDERS = [name for name in CODE if re.fullmatch(r"(tests|benchmarks|sims|studies|docs)(/\w+)*/?", name)]
DOTTED = [name for name in CODE if re.fullmatch(r"rmtbase(\.\w+)+", name)]
WAYS = {
    title: re.findall(r"^\d+\. .*(?:\n   .*)*", text, flags=re.MULTILINE)
    for title, text in re.findall(r"^## (The way of .*)\n((?:(?!^## ).*\n)*)", ARCHITECTURE, flags=re.MULTILINE)
}
MOST_STOPS = 12


def _file(name: str) -> Path:
    """Of the source, or else of the repository."""
    return SOURCE / name if (SOURCE / name).is_file() else ROOT / name


@cache
def _named(path: Path, inside: str = "") -> frozenset[str]:
    """What a file, or a class in it, defines."""
    body: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    for name in filter(None, inside.split(".")):
        body = next(node.body for node in body if isinstance(node, ast.ClassDef) and node.name == name)
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(found)


def _exists(place: str) -> bool:
    name, _, inside = place.partition("::")
    above, _, last = inside.rpartition(".")
    path = _file(name)
    return path.is_file() and (not inside or last in _named(path, above))


def test_every_place_that_is_named_exists():
    assert [place for place in PLACES if not _exists(place)] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_that_is_named_exists(folder):
    assert (ROOT / folder).exists()


@pytest.mark.parametrize("name", DOTTED)
def test_a_name_that_is_dotted_can_be_imported(name):
    *packages, last = name.split(".")
    module = import_module(".".join(packages))
    if not hasattr(module, last):
        import_module(name)


def test_every_room_has_its_line():
    named = set(re.findall(r"\w+", re.findall(r"```\n(.*?)```", ARCHITECTURE, flags=re.DOTALL)[0]))
    assert {room.name for room in pkgutil.iter_modules(rmtbase.__path__) if not room.name.startswith("_")} <= named


@pytest.mark.parametrize("way", WAYS)
def test_a_way_has_few_stops_and_each_names_its_function(way):
    assert 0 < len(WAYS[way]) <= MOST_STOPS
    for stop in WAYS[way]:
        assert "::" in stop


def test_both_ways_are_told():
    assert list(WAYS) == ["The way of a draw", "The way of a tensor"]


UNUSED = {"DiscreteDistribution", "PrecisionError"}
"""Public names that no other code uses: a base class of laws, and an error."""


@pytest.mark.parametrize("package", ["constants", "ensembles", "laws", "linalg", "montecarlo", "nulls", "statistics"])
def test_public_names_of_the_mathematics_have_a_user_beside_tests(package):
    own = SOURCE / package
    code = [
        path
        for folder in ("src", "studies", "sims", "examples", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
    ]
    pages = [ROOT / "README.md", *(path for path in (ROOT / "docs").rglob("*.md") if "generated" not in path.parts)]
    texts = [path.read_text(encoding="utf-8") for path in (*code, *pages) if own not in path.parents]
    words = set(re.findall(r"\w+", " ".join(texts)))
    results = {
        name
        for path in own.rglob("*.py")
        for hint in re.findall(r"(?:->|\w:) (.*)", path.read_text())
        for name in re.findall(r"\w+", hint)
    }
    assert set(import_module(f"rmtbase.{package}").__all__) - words - results <= UNUSED


DOCUMENTED = (".ci", "benchmarks", "docs", "examples", "sims", "src", "studies")
OPENING = re.compile(
    r"(Of|What|Which|Whether|How|Where|One|Those|When|Who|Whose|Why|That|To|In|As|By|For|With|From|At|On|If|Not|No)"
    r"[\s,:;.]"
)
"""Words with which no docstring opens: a question word or a preposition puts its subject last."""


def _first_lines(path):
    """The line number and the first line of each docstring in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text.splitlines()[0]


@pytest.mark.parametrize("folder", DOCUMENTED)
def test_docstrings_open_with_their_subject_or_a_verb(folder):
    lines = {
        f"{path.relative_to(ROOT)}:{line}": text
        for path in (ROOT / folder).rglob("*.py")
        for line, text in _first_lines(path)
    }
    assert lines
    found = [f"{place}: {text}" for place, text in lines.items() if OPENING.match(text) and not text.endswith("?")]
    assert not found, "\n".join(sorted(found))
