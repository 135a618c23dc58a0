"""First lines of docstrings: a noun phrase or an imperative, with the subject first. Ruff's D401 tests the mood."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = (".ci", "benchmarks", "docs", "examples", "sims", "src", "studies")
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


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_open_with_their_subject_or_a_verb(folder):
    lines = {
        f"{path.relative_to(ROOT)}:{line}": text
        for path in (ROOT / folder).rglob("*.py")
        for line, text in _first_lines(path)
    }
    assert lines
    found = [f"{place}: {text}" for place, text in lines.items() if OPENING.match(text) and not text.endswith("?")]
    assert not found, "\n".join(sorted(found))
