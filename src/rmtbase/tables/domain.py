"""Domains: sets of allowed values of variables and attributes."""

import json
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Real, Shaped

from rmtbase.reasons import Reason
from rmtbase.shown import quoted

_ROUNDING = 1e-9  # relative to the largest magnitude: disorder by less counts as rounding

Order = Literal["any", "ascending", "rising", "falling"]


@dataclass(frozen=True)
class Domain:
    """Set of allowed values, in words and as a check."""

    words: str  #: the set in words, for messages
    kinds: str = "fiu"  #: allowed kinds of elements, as in NumPy's ``dtype.kind``
    least: float = -np.inf  #: lower end of the range
    most: float = np.inf  #: upper end
    inside: bool = False  #: whether the ends themselves are excluded
    whole: bool = False  #: whether values must be integers, in any dtype
    missing: bool = False  #: whether NaN is allowed, for values that are not known or do not exist
    infinite: bool = False  #: whether infinities are allowed, for values that have overflowed
    order: Order = "any"  #: along the last axis; ``ascending`` is strict, the others allow ties and rounding
    unique: bool = False  #: whether no value may occur twice
    choices: tuple[str, ...] = ()  #: the only allowed texts; any text if empty
    record: type | None = None  #: type of the JSON value that a text must encode; None if it need not be JSON
    reason: bool = False  #: whether a text must be that of a :class:`~rmtbase.reasons.Reason`, or empty

    def plain(self, values: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "..."]:
        """Return values as objects: int, bool, str, Reason or float; an int or bool that does not exist is None."""
        if self.reason:
            return np.array([Reason.read(text) for text in values.ravel()], dtype=object).reshape(values.shape)
        if self.kinds == "OUT":
            return values.astype(str).astype(object)
        if not self.whole and self.kinds != "iu":
            return values.astype(float).astype(object)
        plain = np.nan_to_num(values).astype(bool if (self.least, self.most) == (0, 1) else np.int64).astype(object)
        plain[np.isnan(values)] = None
        return plain

    def fault(self, values: object) -> str | None:
        """Say what in an array, or in an attribute's value, does not belong to the set; None if all does."""
        array = np.asarray(values)
        if array.dtype.kind not in self.kinds:
            return f"type {array.dtype if array.dtype.kind != 'O' else 'text'}"
        problem = (self._fault_of_text if array.dtype.kind in "OUT" else self._fault_of_numbers)(array)
        if problem is None and self.unique and len(set(array.ravel().tolist())) < array.size:
            return "a value that comes twice"
        return problem

    def _fault_of_text(self, array: Shaped[np.ndarray, "..."]) -> str | None:
        for text in array.ravel().tolist():
            if not isinstance(text, str):
                return f"type {type(text).__name__}"
            if self.choices and text not in self.choices:
                return quoted(text)
            if self.unique and not text:
                return "an empty name"
            try:
                if self.reason:
                    Reason.read(text)
                value = None if self.record is None else json.loads(text)
            except (ValueError, RecursionError):
                return quoted(text, 80) if self.reason else f"{quoted(text, 60)}, which is not JSON"
            if self.record is not None and not isinstance(value, self.record):
                return f"a JSON {type(value).__name__}"
        return None

    def _fault_of_numbers(self, array: Real[np.ndarray, "..."]) -> str | None:
        if not array.size:
            return None
        low, high = array.min(), array.max()
        if np.isnan(low):
            if not self.missing:
                return "NaN"
            low, high = np.fmin.reduce(array, axis=None), np.fmax.reduce(array, axis=None)
            if np.isnan(low):
                return None
        for end in (low, high):
            if np.isinf(end) and not self.infinite:
                return "infinity"
            if end < self.least or end > self.most or (self.inside and end in (self.least, self.most)):
                return f"the value {end:g}"
        if self.whole and array.dtype.kind == "f" and (fraction := array[np.mod(array, 1.0) > 0]).size:
            return f"the value {fraction[0]:g}"
        if self.order == "any" or not array.ndim:
            return None
        with np.errstate(invalid="ignore"):  # the difference of two infinities is NaN, and breaks no order
            step = np.diff(array, axis=-1)
        if self.order == "ascending":
            wrong = step <= 0
        else:
            # Each row by itself, because a variable may hold statistics of very different sizes.
            finite = np.where(np.isfinite(array), np.abs(array), 0.0)
            slack = _ROUNDING * finite.max(axis=-1, keepdims=True, initial=0.0)
            wrong = step < -slack if self.order == "rising" else step > slack
        return "values out of order" if wrong.any() else None


ANY = Domain("numbers", missing=True, infinite=True)
FINITE = Domain("finite numbers")
FINITE_OR_NAN = Domain("finite numbers, or NaN", missing=True)
AT_MOST_ONE_OR_NAN = Domain("finite numbers of at most 1, or NaN", most=1, missing=True)
POSITIVE = Domain("positive finite numbers", least=0, inside=True)
POSITIVE_OR_NAN = Domain("positive finite numbers, or NaN", least=0, inside=True, missing=True)
NON_NEGATIVE = Domain("finite numbers of at least 0", least=0)
NON_NEGATIVE_OR_NAN = Domain("finite numbers of at least 0, or NaN", least=0, missing=True)
SPREAD = Domain("numbers of at least 0, or NaN", least=0, missing=True, infinite=True)
FALLING = Domain(
    "numbers of at least 0 in falling order, or NaN", least=0, missing=True, infinite=True, order="falling"
)
RISING = Domain("numbers in rising order", missing=True, infinite=True, order="rising")
SIZE_OR_NAN = Domain("integers of at least 1, or NaN", least=1, whole=True, missing=True)
COUNT_OR_NAN = Domain("integers of at least 0, or NaN", least=0, whole=True, missing=True)
FLAG = Domain("0 or 1", least=0, most=1, whole=True)
FLAG_OR_NAN = Domain("0, 1 or NaN", least=0, most=1, whole=True, missing=True)
PROBABILITY = Domain("numbers from 0 to 1, or NaN", least=0, most=1, missing=True)
LEVELS = Domain("probabilities between 0 and 1, ascending", least=0, most=1, inside=True, order="ascending")
EDGES = Domain("finite numbers, ascending", order="ascending")
ORDER = Domain("numbers above 0, or infinity", least=5e-324, infinite=True)
COUNT = Domain("integers of at least 0", kinds="iu", least=0)
SIZE = Domain("integers of at least 1", kinds="iu", least=1)
DRAWS = Domain("integers of at least 2", kinds="iu", least=2)
INTEGER = Domain("an integer", kinds="iu")
PLACES = Domain("integers of at least 0, ascending", kinds="iu", least=0, order="ascending")
LAYERS = Domain("integers of at least -1, ascending", kinds="iu", least=-1, order="ascending")
NUMBERS_OF_LAYERS = Domain("integers of at least -1", kinds="iu", least=-1)
RANKS = Domain("integers of at least 1, ascending", kinds="iu", least=1, order="ascending")
TEXT = Domain("text", kinds="OUT")
REASON = Domain("a code of a reason with its values, or empty", kinds="OUT", reason=True)
NAMES = Domain("names, each once", kinds="OUT", unique=True)
JSON_OBJECT = Domain("a JSON object", kinds="OUT", record=dict)
JSON_LIST = Domain("a JSON list", kinds="OUT", record=list)
