"""Mutations of a plan, and how an independent reader would write it."""

import json
import tomllib
from pathlib import Path
from random import Random
from typing import Any

from mutations import Mutator

_VALUES = (
    "true", "-1", "0", "0.5", "nan", "-inf", "1e400", "9223372036854775808", "1000000000000", "9" * 5000, "0x10",
    "1979-05-27T07:32:00Z", '""', '"text"', '"\\u001b[31m[red]\\u202e"', f'"{"x" * 100_000}"', '"../outside"', "[]",
    "[1, [2, 3]]", "[" * 20_000 + "]" * 20_000, "[" + ", ".join(map(str, range(1, 20_001))) + "]", "{ a = 1 }", "6",
    "7", "'axes'", "'elements'", "'float32'",
)  # fmt: skip
_LINES = (
    "seed = 3", "unknown = 1", "[[case]]", "[case]", "sigma = 2.0", "dims = [3, 4]", 'measure = "elements"',
    'normalization = "sqrt_d"', "a.b.c.d = 1", '"\\u001b[2J" = 1', "x" * 100_000 + " = 1", "\x00", "# \x01",
    "[" * 5000 + "a" + "]" * 5000, ".".join(["a"] * 50_000) + " = 1", "n_rows = [" + "[1, 2], " * 1000 + "]",
)  # fmt: skip


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _write(path: Path, lines: list[str]) -> None:
    path.write_bytes("\n".join([*lines, ""]).encode("utf-8", "surrogatepass"))


def _other_value(rng: Random, path: Path, donor: bytes) -> None:
    lines = _lines(path)
    place = rng.choice([number for number, line in enumerate(lines) if " = " in line])
    lines[place] = f"{lines[place].partition(' = ')[0]} = {rng.choice(_VALUES)}"
    _write(path, lines)


def _other_lines(rng: Random, path: Path, donor: bytes) -> None:
    """A line removed, added, twice, or elsewhere."""
    lines = _lines(path)
    place = rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            del lines[place]
        case 1:
            lines.insert(place, rng.choice(_LINES))
        case 2:
            lines.insert(place, rng.choice(lines))
        case _:
            lines.insert(rng.randrange(len(lines)), lines.pop(place))
    _write(path, lines)


def _many(rng: Random, path: Path, donor: bytes) -> None:
    """Cases without end: combinations, or one after another."""
    lines = _lines(path)
    if rng.random() < 0.5:
        numbers = str(list(range(1, rng.choice((1_000, 100_000)))))
        lines = [line for line in lines if not line.startswith("n_")] + [
            f"n_rows = {numbers}",
            f"n_columns = {numbers}",
        ]
    else:
        lines += [f"[[case]]\nn_rows = {i}\nn_columns = 1" for i in range(rng.choice((1_000, 50_000)))]
    _write(path, lines)


def _encoded(rng: Random, path: Path, donor: bytes) -> None:
    path.write_bytes(path.read_text().encode(rng.choice(("utf-8-sig", "utf-16", "utf-32", "utf-16-le"))))


def _padded(rng: Random, path: Path, donor: bytes) -> None:
    path.write_bytes(path.read_bytes() + rng.choice((b"#", b" ", b"\n", b"[")) * rng.choice((1, 1000, 100_000_000)))


TOML = (
    Mutator("another value", _other_value),
    Mutator("other lines", _other_lines),
    Mutator("many cases", _many),
    Mutator("another encoding", _encoded),
    Mutator("padding", _padded),
)


def rewritten(content: bytes) -> str:
    """A document as TOML's own reader understands it, written plainly.

    Raises:
        ValueError, RecursionError: it is none.
    """
    table = tomllib.loads(content.decode())
    cases = table.pop("case", [])
    top = [f"{json.dumps(key, ensure_ascii=False)} = {_plain(value)}" for key, value in table.items()]
    return "\n".join([*top, f"case = {_plain(cases)}"])


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(key, ensure_ascii=False)} = {_plain(one)}" for key, one in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_plain, value)) + "]"
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value) if isinstance(value, int | float) else str(value).replace(" ", "T")
