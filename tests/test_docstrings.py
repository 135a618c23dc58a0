"""First lines of docstrings: a noun phrase or an imperative, with the subject first."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "rmtbase"
OPENINGS = frozenset(
    [
        "Of",
        "What",
        "Which",
        "Whether",
        "How",
        "Where",
        "One",
        "Those",
        "When",
        "Who",
        "Whose",
        "Why",
        "That",
        "To",
        "In",
        "As",
        "By",
        "For",
        "With",
        "From",
        "At",
        "On",
        "If",
        "Not",
        "No",
    ]
)
"""Words with which no docstring opens: a question word or a preposition puts its subject last."""


def _docstrings(path):
    """The line and the docstring of each module, class and function in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


@pytest.mark.parametrize("package", sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()))
def test_docstrings_open_with_their_subject_or_a_verb(package):
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {text.splitlines()[0]}"
        for path in sorted((SOURCE / package).rglob("*.py"))
        for line, text in _docstrings(path)
        if text.split()[0].strip(",:;.") in OPENINGS and not text.splitlines()[0].endswith("?")  # a question is one
    ]
    assert not found, "\n".join(found)


def test_the_openings_are_found():
    path = SOURCE / "laws" / "__init__.py"
    assert any(text for _, text in _docstrings(path))
