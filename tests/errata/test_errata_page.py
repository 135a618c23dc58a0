"""docs/errata.md keeps its word: each point is shown by a test that is there, and each test belongs to a point."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "errata.md").read_text(encoding="utf-8")
POINTS = re.split(r"^#{2,3} (?=\d)", re.sub(r"^## Of code$[^#]*", "", PAGE, flags=re.MULTILINE), flags=re.MULTILINE)[1:]
ROWS = ("Right", "Difference", "Function", "Test")


def names_in(file: str) -> list[str]:
    """The names of the tests of one file."""
    return re.findall(r"^def (test_\w+)", (HERE / file).read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_the_points_are_numbered_in_order_those_of_code_apart():
    numbers = [int(point.partition(".")[0]) for point in POINTS]
    assert sorted(numbers) == list(range(1, len(POINTS) + 1))
    of_texts = [number for number, point in zip(numbers, POINTS, strict=True) if "| Written |" in point]
    assert numbers == [*of_texts, 8, 31, 32]
    assert of_texts == sorted(of_texts)


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.partition("\n")[0])
def test_every_point_says_what_is_written_and_what_is_right_and_names_its_tests(point):
    rows = dict(re.findall(r"^\| (\w+) \| (.+) \|$", point, flags=re.MULTILINE))
    assert tuple(rows) in (("Written", *ROWS), ("Reported", *ROWS))
    files = re.findall(r"`(test_\w+\.py)`", rows["Test"])
    named = re.findall(r"`(test_\w+)`", rows["Test"])
    assert files
    assert set(named) <= {name for file in files for name in names_in(file)}


def test_every_file_of_tests_is_named_by_a_point():
    files = {path.name for path in HERE.glob("test_*.py")} - {Path(__file__).name}
    assert files == {name for point in POINTS for name in re.findall(r"`(test_\w+\.py)`", point)}


def test_the_tests_hold_the_page_to_its_quotations():
    from test_singular_values import CAPTION, TEXT

    assert f'"{TEXT}"' in PAGE
    assert f'"{CAPTION}"' in PAGE
