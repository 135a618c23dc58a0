"""Reasons why something was not tested: codes with values in files, sentences by ``reasons.toml`` for people."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from rmtbase.shown import in_one_line, quoted

_SEVERAL = "several"
_LISTED = 4  # largest number of reasons in one sentence


def packaged_texts(package: str, name: str) -> dict[str, Any]:
    """Read a file of texts that comes with the package."""
    return tomllib.loads(files(package).joinpath(name).read_text(encoding="utf-8"))


@cache
def templates() -> dict[str, str]:
    """Return the sentence of each code, with the names of its values in braces."""
    sections = packaged_texts("rmtbase", "reasons.toml")
    return {code: words for section in sections.values() for code, words in section.items()}


@dataclass(frozen=True)
class Reason:
    """Reason why there is no test, or no number; true unless it is none.

    >>> reason = Reason("all_zeros")
    >>> str(reason), Reason.read("all_zeros") == reason, reason.words
    ('all_zeros', True, 'all zeros, which have no shape to test')
    """

    code: str = ""
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __bool__(self) -> bool:
        return bool(self.code)

    def __str__(self) -> str:
        """Text in files: the code, and its values as JSON if it has any."""
        return f"{self.code} {json.dumps(self.details, sort_keys=True)}" if self.details else self.code

    @classmethod
    def read(cls, text: object) -> Reason:
        """Read a reason from its text in a file; a ValueError unless it is a known code with its values as JSON."""
        code, _, details = str(text).partition(" ")
        try:
            reason = cls(code, dict(json.loads(details or "{}")))
            _ = reason.words
        except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{quoted(str(text), 80)} is not a reason") from error
        return reason

    @classmethod
    def join(cls, *reasons: Reason) -> Reason:
        """Return one reason for several, of which some may be none."""
        present = [reason for reason in reasons if reason]
        if len(present) > 1:
            return cls(_SEVERAL, {"reasons": list(map(str, present))})
        return present[0] if present else cls()

    @property
    def parts(self) -> list[Reason]:
        """The reasons that were joined; none if there is no reason."""
        if self.code == _SEVERAL:
            return [Reason.read(text) for text in self.details["reasons"]]
        return [self] if self else []

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes of the reasons that were joined: reasons with the same codes differ only in their values."""
        return tuple(part.code for part in self.parts)

    @property
    def words(self) -> str:
        """Words without a capital and a full stop; "" if there is no reason."""
        return "; ".join(templates()[part.code].format(**part.details) for part in self.parts)


NOT_RECORDED = Reason("not_recorded")


@in_one_line
class NotTestable(NamedTuple):
    """Head, matrix, pair or measure for which there is no test."""

    place: str  # its name, such as ``layer 3 head 2``
    reason: Reason  # why there is no test


def listed_reasons(reasons: Sequence[Reason]) -> str:
    """List reasons by their codes, the most frequent first, each with its count if there are several."""
    codes = [reason.codes for reason in reasons]
    counts = Counter(codes).most_common()
    words = [reasons[codes.index(key)].words for key, _ in counts[:_LISTED]]
    if len(words) == 1:
        return words[0]
    listed = "; ".join(f"{text} ({count})" for text, (_, count) in zip(words, counts, strict=False))
    more = sum(count for _, count in counts[_LISTED:])
    return f"{listed}; other reasons ({more})" if more else listed


def not_testable_json(untested: Sequence[NotTestable]) -> list[dict[str, str]]:
    """Return the list for ``not_testable`` in JSON."""
    return [{"place": item.place, "reason": item.reason.words} for item in untested]
