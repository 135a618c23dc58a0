"""Selection of modules by PEFT's settings: its rules for ``target_modules`` and for tables of patterns.

Patterns are regular expressions in an adapter that may come from anybody. Python's engine can take exponential time on
them. Here they are matched with sets of end positions instead: each part of a pattern maps the positions in the name at
which it may begin to those at which it may end. The time is at most (length of the pattern) × (length of the name)².

Source: ``check_target_module_exists`` (peft/tuners/tuners_utils.py) and ``get_pattern_key`` (peft/utils/other.py) of
    PEFT 0.21.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from rmtbase.errors import ParameterError
from rmtbase.shown import shown

_Ends = Callable[[str, frozenset[int]], frozenset[int]]
"""Function that maps the positions of a text at which a part of a pattern begins to those at which it ends."""

_LONGEST = 4_000  # characters of a pattern
_DEEPEST = 40  # levels of nested groups
_MOST_COPIES = 200  # counted repetitions
_ATOM = re.compile(
    r"\\[dDwWsSbBAZ]|\\[^A-Za-z0-9]|\\[tn]|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[\]()|*+?{}]|[\]{}]", re.DOTALL
)
_TIMES = re.compile(r"(?:[*+?]|\{(?P<least>\d{0,4})(?P<more>,(?P<most>\d{0,4}))?\})")
_GROUP = re.compile(r"\((?:\?(?::|P<\w+>|(?P<ahead>[=!])))?(?!\?)")


def matches(pattern: str, name: str) -> bool:
    """Return True if the pattern matches the whole name, as ``re.fullmatch`` does."""
    return len(name) in _compiled(pattern)(name, frozenset((0,)))


def first_match(patterns: Iterable[str], module: str) -> str | None:
    """Return the first pattern that matches a module's whole name or its end after a dot, or None."""
    return next((one for one in patterns if matches(rf"(.*\.)?({one})", module)), None)


def is_targeted(settings: Mapping[str, Any], module: str) -> bool:
    """Return True if the settings of an adapter select a module, by name or because all linear maps are selected.

    Without a list or pattern of targets, every module that is not excluded is selected, unless parameters are targeted.
    """
    targets, excluded = settings.get("target_modules"), settings.get("exclude_modules")
    if isinstance(excluded, str) and excluded and matches(excluded, module):
        return False
    if isinstance(excluded, list) and _ends_with(module, excluded):
        return False
    saved = settings.get("modules_to_save")
    if isinstance(saved, list) and any(matches(rf"(.*\.)?({one})(\..*)?", module) for one in saved):
        return False
    if isinstance(targets, str):
        return targets.lower() == "all-linear" or matches(targets, module)
    if not isinstance(targets, list):
        return targets is not None or settings.get("target_parameters") is None
    if module in targets:
        return True
    return _ends_with(module, targets) and _is_of_layers(settings, module)


def _ends_with(module: str, names: Iterable[Any]) -> bool:
    return any(f".{module}".endswith(f".{one}") for one in names if isinstance(one, str))


def _is_of_layers(settings: Mapping[str, Any], module: str) -> bool:
    """Return True if a module is in one of the layers to transform, or if no layers are named."""
    layers, words = settings.get("layers_to_transform"), settings.get("layers_pattern")
    if layers is None or layers == []:
        return True
    if not words:
        found = re.match(r".*?\.[^.]*\.(\d+)\.", module)
        return found is not None and int(found[1]) in (layers if isinstance(layers, list) else [layers])
    for word in [words] if isinstance(words, str) else words:
        if "|" in re.sub(r"\(.*\)", "", word):  # PEFT does not group it, so that the alternatives split its own pattern
            raise ParameterError("layers_pattern", shown(word, 80), "words without alternatives")
        # The layer's number is the first one after the word.
        for number in re.finditer(r"\.(\d+)(?=\.)", module):
            if first_match([word], module[: number.start()]) is not None:
                return int(number[1]) in (layers if isinstance(layers, list) else [layers])
    return False


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> _Ends:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ParameterError("pattern", shown(pattern, 80), f"a regular expression ({error})") from error
    if len(pattern) > _LONGEST:
        raise ParameterError("pattern", shown(pattern, 80), f"one of at most {_LONGEST} characters")
    ends, position = _alternatives(pattern, 0, 0)
    if position != len(pattern):
        raise _unread(pattern, position)
    return ends


def _unread(pattern: str, position: int) -> ParameterError:
    return ParameterError(
        "pattern", shown(pattern, 80), f"one without {shown(pattern[position : position + 12], 12)}, which is not read"
    )


def _alternatives(pattern: str, position: int, depth: int) -> tuple[_Ends, int]:
    """Parse the content of a group: sequences of parts, with ``|`` between alternatives."""
    if depth > _DEEPEST:
        raise ParameterError("pattern", shown(pattern, 80), f"one of at most {_DEEPEST} groups within each other")
    each: list[list[_Ends]] = [[]]
    while position < len(pattern) and pattern[position] != ")":
        if pattern[position] == "|":
            each.append([])
            position += 1
            continue
        one, position = _part(pattern, position, depth)
        each[-1].append(one)
    return _any_of([_in_turn(parts) for parts in each]), position


def _part(pattern: str, position: int, depth: int) -> tuple[_Ends, int]:
    """Parse one part and its quantifier."""
    if pattern[position] == "(":
        group = _GROUP.match(pattern, position)
        if group is None:
            raise _unread(pattern, position)
        inner, position = _alternatives(pattern, group.end(), depth + 1)
        one = _ahead(inner, group["ahead"] == "=") if group["ahead"] else inner
        position += 1
    else:
        atom = _ATOM.match(pattern, position)
        if atom is None:
            raise _unread(pattern, position)
        one, position = _atom(re.compile(atom[0])), atom.end()
    times = _TIMES.match(pattern, position)
    if times is None or times[0] == "{}":
        return one, position
    if pattern[times.end() : times.end() + 1] == "+":
        raise _unread(pattern, position)
    position = times.end() + (pattern[times.end() : times.end() + 1] == "?")  # lazy ones have the same ends
    least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(times[0], (None, None))
    if least is None:
        least = int(times["least"] or 0)
        most = (int(times["most"]) if times["most"] else None) if times["more"] else least
    if max(least, most or 0) > _MOST_COPIES:
        raise ParameterError("pattern", shown(pattern, 80), f"one that repeats nothing more than {_MOST_COPIES} times")
    return _repeated(one, least, most), position


def _atom(compiled: re.Pattern[str]) -> _Ends:
    def ends(text: str, starts: frozenset[int]) -> frozenset[int]:
        return frozenset(found.end() for start in starts if (found := compiled.match(text, start)))

    return ends


def _in_turn(parts: list[_Ends]) -> _Ends:
    def ends(text: str, starts: frozenset[int]) -> frozenset[int]:
        for one in parts:
            starts = one(text, starts)
        return starts

    return ends


def _any_of(each: list[_Ends]) -> _Ends:
    def ends(text: str, starts: frozenset[int]) -> frozenset[int]:
        return frozenset().union(*(one(text, starts) for one in each))

    return ends if len(each) > 1 else each[0]


def _ahead(inner: _Ends, wanted: bool) -> _Ends:
    def ends(text: str, starts: frozenset[int]) -> frozenset[int]:
        return frozenset(start for start in starts if bool(inner(text, frozenset((start,)))) == wanted)

    return ends


def _repeated(one: _Ends, least: int, most: int | None) -> _Ends:
    def ends(text: str, starts: frozenset[int]) -> frozenset[int]:
        for _ in range(least):
            before, starts = starts, one(text, starts)
            if starts == before:
                break
        found = reached = starts
        for _ in range(len(text) + 1 if most is None else most - least):
            reached = one(text, reached) - found
            if not reached:
                break
            found |= reached
        return found

    return ends
