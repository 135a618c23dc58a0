"""Mutations of JSON: of what it says, and of how it is written."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from mutations import Mutator

Change = Callable[[Random, Any], str | bytes]

STRANGE: tuple[Any, ...] = (
    None, True, False, [], {}, "", "text", "4", -1, 0, 1, 0.5, 2**31, 2**63, 10**18, 10**400, 1e308, [[[]]],
    [1, 2, 3], {"a": 1}, "\x1b]0;title\x07\x1b[31m[red]red[/red]\u202egnp.exe\u200b\r\n", "\ud800", "x" * 100_000,
    "../../../etc/passwd", "\x00", "e\u0301", "=cmd()"
)  # fmt: skip
"""Values that are out of place almost anywhere."""

RAW = (
    "NaN", "Infinity", "-Infinity", "1e999", "-0", "9" * 5000, "0." + "9" * 5000, "1e-999999999", "01", "'x'",
    "undefined", '"\\u12"', '"\x01"', "[" * 100_000 + "]" * 100_000, '{"a":' * 50_000 + "1" + "}" * 50_000,
    "[" * 1_000_000, "[" + "0," * 300_000 + "0]", "{" + ",".join(f'"k{i}":{i}' for i in range(100_000)) + "}",
    "/* nothing */ 1"
)  # fmt: skip
"""Texts that no writer of JSON makes of a value."""

_MARK = "@@mark@@"


def _places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """The ways to everything inside a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*path, key)
        yield from _places(one, (*path, key))


def _holder(value: Any, path: tuple) -> Any:
    for key in path[:-1]:
        value = value[key]
    return value


def _some(rng: Random, value: Any, fits: Callable[[Any], bool] = lambda one: True) -> tuple[Any, Any]:
    """A random place whose value fits: what holds it, and under which key."""
    found = [path for path in _places(value) if fits(_holder(value, path)[path[-1]])]
    path = rng.choice(found or list(_places(value)))
    return _holder(value, path), path[-1]


def _strange_value(rng: Random, value: Any) -> str:
    holder, key = _some(rng, value)
    holder[key] = rng.choice(STRANGE)
    return json.dumps(value)


def _raw_value(rng: Random, value: Any) -> str:
    holder, key = _some(rng, value)
    holder[key] = _MARK
    return json.dumps(value).replace(f'"{_MARK}"', rng.choice(RAW))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _other_number(rng: Random, value: Any) -> str:
    holder, key = _some(rng, value, _is_number)
    if _is_number(number := holder[key]):
        others = (number + 1, number - 1, number * 2, -number, number // 2, float(number), number * 10**9)
        holder[key] = rng.choice(others)
    return json.dumps(value)


def _other_text(rng: Random, value: Any) -> str:
    """A letter more, less, or another one."""
    holder, key = _some(rng, value, lambda one: isinstance(one, str) and one)
    text = str(holder[key])
    place = rng.randrange(len(text) + 1)
    holder[key] = text[:place] + rng.choice(("", "x", "0", "\u202e", "\x1b[2J")) + text[place + rng.randrange(2) :]
    return json.dumps(value)


def _exchange(rng: Random, value: Any) -> str:
    holder, key = _some(rng, value)
    kind = type(holder[key])
    other, place = _some(rng, value, lambda one: type(one) is kind and not isinstance(one, dict | list))
    holder[key], other[place] = other[place], holder[key]
    try:
        return json.dumps(value)
    except ValueError:  # one was inside the other
        return "{}"


def _is_object(one: Any) -> bool:
    return isinstance(one, dict) and bool(one)


def _object(rng: Random, value: Any) -> dict:
    objects = [value, *(_holder(value, path)[path[-1]] for path in _places(value))]
    return rng.choice([one for one in objects if _is_object(one)])


def _remove(rng: Random, value: Any) -> str:
    one = _object(rng, value)
    del one[rng.choice(list(one))]
    return json.dumps(value)


def _add(rng: Random, value: Any) -> str:
    keys = ("unknown", "", "__proto__", "k" * 10_000, "\x1b[31m", "\ud800")
    strange = rng.choice(STRANGE)
    _object(rng, value)[rng.choice(keys)] = strange
    return json.dumps(value)


def _rename(rng: Random, value: Any) -> str:
    one = _object(rng, value)
    key = rng.choice(list(one))
    one[rng.choice((f"{key} ", key[:-1], key.upper(), f"{key}\x00", f"\u202e{key}", key * 3000))] = one.pop(key)
    return json.dumps(value)


def _twice(rng: Random, value: Any) -> str:
    """One key twice in an object; the second time with its own value, or another's."""
    one = _object(rng, value)
    key = rng.choice(list(one))
    again = rng.choice((one[key], one[rng.choice(list(one))], rng.choice(STRANGE)))
    items = list(one.items())
    one.clear()
    one.update({_MARK: again, **dict(items)} if rng.random() < 0.5 else {**dict(items), _MARK: again})
    return json.dumps(value).replace(f'"{_MARK}"', json.dumps(key))


def _whole(rng: Random, value: Any) -> str:
    nested = json.dumps([value]), json.dumps(json.dumps(value))
    return rng.choice(("null", "[]", "3", '"text"', "[{}]", "", " ", *nested))


def _encoded(rng: Random, value: Any) -> bytes:
    encodings = ("utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-32-be", "utf-7")
    return json.dumps(value).encode(rng.choice(encodings))


def _not_text(rng: Random, value: Any) -> bytes:
    text = json.dumps(value).encode()
    place = text.index(b'"', rng.randrange(len(text) // 2)) + 1
    return text[:place] + rng.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5", b"\x00")) + text[place:]


def _padded(rng: Random, value: Any) -> str:
    before = rng.choice((" ", "\n", "\t")) * rng.choice((1, 100, 50_000_000))
    return before + json.dumps(value) + " " * rng.choice((0, 1, 100))


def _trailing(rng: Random, value: Any) -> str:
    return json.dumps(value) + rng.choice(("}", "{}", ",", "\x00", "x", json.dumps(value)))


CHANGES: dict[str, Change] = {
    "a strange value": _strange_value, "a raw value": _raw_value, "another number": _other_number,
    "another text": _other_text, "two values exchanged": _exchange, "a key removed": _remove, "a key added": _add,
    "a key renamed": _rename, "a key twice": _twice, "another document": _whole, "another encoding": _encoded,
    "bytes that are no text": _not_text, "padding": _padded, "something after the end": _trailing,
}  # fmt: skip
"""From the value that a document holds to another document."""


def changed(rng: Random, change: Change, content: bytes) -> bytes:
    """A document, changed."""
    made = change(rng, json.loads(content))
    return made.encode("utf-8", "surrogatepass") if isinstance(made, str) else made


def _mutator(name: str, change: Change) -> Mutator:
    def apply(rng: Random, path: Path, donor: bytes) -> None:
        path.write_bytes(changed(rng, change, path.read_bytes()))

    return Mutator(name, apply)


JSON = tuple(_mutator(name, change) for name, change in CHANGES.items())


def of_header(name: str, split: Callable, joined: Callable, change: Callable[[Random, bytes], bytes]) -> Mutator:
    """A mutator of the header of a file, from what splits the file into header and data, and what joins the two."""

    def apply(rng: Random, path: Path, donor: bytes) -> None:
        header, data = split(path.read_bytes())
        path.write_bytes(joined(change(rng, header), data))

    return Mutator(f"header: {name}", apply)


def of_json_header(split: Callable, joined: Callable) -> Iterator[Mutator]:
    """All changes of JSON, made to a header."""
    for name, how in CHANGES.items():
        yield of_header(name, split, joined, lambda rng, header, how=how: changed(rng, how, header))
