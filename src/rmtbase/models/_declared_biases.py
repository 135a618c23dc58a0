"""Biases of queries, keys, values and outputs that a model should have, by its configuration, beside those stored."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from rmtbase.shown import quoted

UNUSED_BIASES = "biases that are stored and that the model does not have"
"""How a note of them begins: they are not folded in."""
_SHOWN = 3


class Declared(NamedTuple):
    """Whether the maps of a symbol have a bias.

    Attributes:
        present: that they have.
        key: of the configuration that says so; None where each model of the type is so.
        said: that the configuration itself has the key, and not its class alone.
    """

    present: bool
    key: str | None = None
    said: bool = False

    def in_words(self) -> str:
        """Who says so."""
        return f"{self.key} = {str(self.present).lower()}" if self.key else "the model's class"


def declared(
    biases: Mapping[str, bool | str], config: Mapping[str, Any], of_class: Mapping[str, Any]
) -> dict[str, Declared]:
    """Whether the maps of each symbol have a bias: as every model of the type, or as the configuration says."""
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
    """What the stored biases are otherwise than they should be, in words.

    Args:
        expected: by the symbol of the maps, as the table has it.
        tensors: the names of the weights of each, in all layers.
        stored: the names of the tensors that there are.
        refuse: the error that a bias is not stored of which the configuration itself says that it is there, and why.
    """
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
