"""The shipped table of digits, from which listing is instant."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from rmtbase.constants._constant import Constant
from rmtbase.constants._digits import agreed_digits

PUBLISHED_DIGITS = 100


@cache
def _table() -> dict[str, str]:
    return json.loads(files("rmtbase.constants").joinpath("digits.json").read_text(encoding="utf-8"))


def published(**fields: Any) -> Constant:
    """A :class:`Constant` with its digits from the table ``digits.json``."""
    return Constant(**fields, published=_table().get(fields["name"], ""))


def recomputed(constant: Constant) -> str:
    """What the table should hold for a constant; ``python -m rmtbase.constants`` prints the whole of it."""
    return agreed_digits(constant.compute, min(PUBLISHED_DIGITS, constant.most_digits))
