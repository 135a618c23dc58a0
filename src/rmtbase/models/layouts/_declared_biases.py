"""Comparison of the biases that a model's configuration declares with those that are stored."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from rmtbase.shown import quoted

UNUSED_BIASES = "biases that are stored and that the model does not have"
"""Beginning of the note about them; they are not folded in."""
_SHOWN = 3


class Declared(NamedTuple):
    """Declaration that the maps of a symbol have a bias or have none."""

    present: bool  # whether they have a bias
    key: str | None = None  # the key of the configuration that says so; None where it holds for every model of the type
    said: bool = False  # whether the configuration itself has the key, rather than only the defaults of its class

    def in_words(self) -> str:
        """Name the source of the declaration."""
        return f"{self.key} = {str(self.present).lower()}" if self.key else "the model's class"


def declared(
    biases: Mapping[str, bool | str], config: Mapping[str, Any], of_class: Mapping[str, Any]
) -> dict[str, Declared]:
    """Return whether the maps of each symbol have a bias, by the model type or by the configuration."""
    found = {}
    for symbols, key in biases.items():
        value = key if isinstance(key, bool) else config.get(key, of_class.get(key))
        if isinstance(value, bool):
            one = Declared(value) if isinstance(key, bool) else Declared(value, key, key in config)
            found |= dict.fromkeys(symbols.split(), one)
    return found


def bias_notes(
    expected: Mapping[str, Declared],
    tensors: Mapping[str, Iterable[str]],
    stored: Container[str],
    refuse: Callable[[str, str], Exception] | None = None,
) -> Iterator[str]:
    """Yield notes on differences between the declared and the stored biases."""
    missing: dict[str, Declared] = {}
    unused: dict[str, Declared] = {}
    for symbol, one in expected.items():
        for name in tensors.get(symbol, ()):
            bias = name.removesuffix("weight") + "bias"
            if name.endswith("weight") and name in stored and one.present != (bias in stored):
                (missing if one.present else unused)[bias] = one
    for bias, one in missing.items():
        if one.said and refuse is not None:
            raise refuse(bias, f"{one.in_words()}; correct that, if the model has no such biases")
    for words, found in (("biases that the model has and that are not stored", missing), (UNUSED_BIASES, unused)):
        if found:
            more = f", … ({len(found)} of them)" if len(found) > _SHOWN else ""
            by = ", ".join(dict.fromkeys(one.in_words() for one in found.values()))
            yield f"{words} ({by}): {', '.join(map(quoted, list(found)[:_SHOWN]))}{more}"
