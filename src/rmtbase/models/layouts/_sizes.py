"""Sizes that a configuration gives, under the keys in the table of architectures."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rmtbase.errors import CheckpointError
from rmtbase.models.layouts._layout_table import Entry
from rmtbase.shown import quoted

# If an architecture has no key of its own for a size, these common keys may only repeat its defined value.
_USUAL_WORDS = {"d_head": ("head_dim", "head_size", "attention_head_size"), "n_key_heads": ("num_key_value_heads",)}
_WITHOUT_FACTOR = {  # these kinds of rotation add no factor to q·k
    "default",
    "axial",
    "linear",
    "dynamic",
    "llama3",
    "mrope",
    "proportional",
}
SIZES = (
    *("n_layers", "n_heads", "d_model", "n_key_heads", "d_rotary", "d_head", "d_value", "d_mlp", "d_latent"),
    "d_query_latent",
)
"""Sizes in the order in which they are read: a size may be computed from earlier ones."""


class Sizes:
    """Sizes that a configuration gives, and the keys that give them: those of ``wanted`` that the entry has.

    Raises:
        CheckpointError: a size that is not ``optional`` is absent, or one is not a positive integer, or they do not fit
            together.
    """

    def __init__(
        self, entry: Entry, path: Path, wanted: Sequence[str] = SIZES, optional: Sequence[str] = ("d_mlp",)
    ) -> None:
        self._config, self._entry, self._path = entry.config, entry, path
        self.said: list[str] = []
        self.sizes: dict[str, int] = {}
        for name in wanted:
            value = self._of(name, optional=name in optional) if name in entry.sizes else None
            if value is not None:
                self.sizes[name] = value
        self.sizes.setdefault("n_key_heads", self.sizes["n_heads"])
        self.sizes.setdefault("d_value", self.sizes["d_head"])
        if self.sizes["n_heads"] % self.sizes["n_key_heads"]:
            raise CheckpointError(
                path, f"{self.because}: expected a number of heads that is a multiple of the key heads"
            )
        self._require_agreement()

    @property
    def because(self) -> str:
        """The keys that were read, and their values."""
        return ", ".join(dict.fromkeys(self.said))

    def _of(self, name: str, optional: bool = False) -> int | None:
        """Evaluate ``a or b else c / d``: the first key that is present, or else a number, key or ratio."""
        text = self._entry.sizes[name]
        keys, _, otherwise = text.partition(" else ")
        named = keys.split(" or ")
        if re.fullmatch(r"\w+", named[0]) and not named[0].isdigit():
            for key in named:
                value = self._config.get(key)
                if value is not None:
                    return self._positive(key, value)
            if otherwise:
                return self._computed(otherwise)
            if optional:
                return None
            own = ", without which heads have the type's own size" if name == "d_head" else ""
            raise CheckpointError(self._path, f"no {' or '.join(named)}{own}; expected a positive integer")
        return self._computed(text)

    def _computed(self, text: str) -> int:
        """Evaluate numbers and keys with ``*``, ``+``, ``/`` and ``//`` between them, from left to right.

        A remainder of ``/`` is an error; ``//`` drops it and gives at least one.
        """
        first, *rest = re.split(r" ([*+]|//?) ", text)
        total = self._term(first)
        for operation, term in zip(rest[::2], rest[1::2], strict=True):
            value = self._term(term)
            if operation == "/" and total % value:
                raise CheckpointError(
                    self._path, f"{self.because}: expected a head size, or a d_model divisible by the heads"
                )
            quotient = total // value
            total = {"*": total * value, "+": total + value, "/": quotient, "//": max(1, quotient)}[operation]
        return total

    def _term(self, text: str) -> int:
        if text.isdigit():
            return int(text)
        for name, words in self._entry.sizes.items():
            if name in self.sizes and text in words.partition(" else ")[0].split(" or "):
                return self.sizes[name]  # under any of its keys
        value = self._config.get(text)
        if value is None and text in self.sizes:
            return self.sizes[text]
        if isinstance(value, list):  # one for each layer
            value = len(value)
        if value is None:
            raise CheckpointError(self._path, f"no {text}; expected a positive integer")
        return self._positive(text, value)

    def _positive(self, key: str, value: Any) -> int:
        if type(value) is not int or value < 1:
            raise CheckpointError(self._path, f"{key} = {quoted(value)}; expected a positive integer")
        self.said.append(f"{key} = {value}")
        return value

    def _require_agreement(self) -> None:
        """Raise if two keys of one size disagree, or a common key that the type does not use gives another size."""
        for name in ("n_layers", "n_heads", "n_key_heads", "d_model", "d_head"):
            if name not in self.sizes:
                continue
            text = self._entry.sizes.get(name, "")
            named = text.partition(" else ")[0].split(" or ")
            known = [key for key in named if re.fullmatch(r"[a-z_]\w*", key) and key not in self.sizes]
            # Latent attention has its own keys; with one key head for all, any value is accepted.
            usual = () if "d_rotary" in self.sizes or text.isdigit() else _USUAL_WORDS.get(name, ())
            for key in known or usual:
                said = self._config.get(key)
                if said is not None and (type(said) is not int or said != self.sizes[name]):
                    why = "two names of one size" if known else "as these imply"
                    raise CheckpointError(
                        self._path, f"{key} = {quoted(said)} beside {self.because}; expected {self.sizes[name]}, {why}"
                    )

    def rows(self) -> dict[str, int]:
        """Return the total number of rows of each symbol of the table, together with the sizes."""
        sizes = self.sizes
        query, key = sizes["n_heads"] * sizes["d_head"], sizes["n_key_heads"] * sizes["d_head"]
        rows = {**sizes, "q": query, "g": query, "k": key, "v": sizes["n_key_heads"] * sizes["d_value"]}
        if "d_mlp" in sizes:
            rows |= dict.fromkeys(("up", "gate", "down"), sizes["d_mlp"])
        if "d_query_latent" in sizes:
            rows["a"] = sizes["d_query_latent"]
        if "d_latent" in sizes:
            rows |= {"c": sizes["d_latent"], "r": sizes["d_rotary"]}
            rows["n"] = sizes["n_heads"] * (sizes["d_head"] - sizes["d_rotary"])
        return rows

    def missing(self, name: str) -> str:
        """Return the keys of a size that is missing, for an error."""
        return self._entry.sizes.get(name, name).partition(" else ")[0]

    def rotated(self) -> int | None:
        """Return how many of a head's dimensions are rotated, or None if there is no rotation or it is unknown."""
        text = self._entry.rotated
        if text is None or text == "?":
            return None
        fraction = text.removeprefix("d_head * ")
        if fraction == text:
            value = self.number(text)
            return None if value is None else int(value)
        found = _held(self._config, fraction)
        found = (
            self._config.get("rotary_pct", 0.25 if fraction == "partial_rotary_factor" else 1.0)
            if found is None
            else found
        )
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found <= 1:
            raise CheckpointError(
                self._path, f"the rotated part {quoted(found)} of a head; expected a number from 0 to 1"
            )
        return int(self.sizes["d_head"] * found)

    def scale(self) -> float | None:
        """Return the factor of q·k before the softmax, or None if it is unknown."""
        rotary = self._config.get("rope_parameters") or self._config.get("rope_scaling")
        rotary = rotary if isinstance(rotary, Mapping) else {}
        each = [one for one in (rotary, *rotary.values()) if isinstance(one, Mapping)]
        kinds = {str(one.get("rope_type", one.get("type", "default"))) for one in each}
        turned = 1.0 if kinds <= _WITHOUT_FACTOR else self._factor_of_rotation(kinds, rotary)
        scale = None if turned is None else self.number(self._entry.scale, optional=True)
        return None if scale is None or turned is None else scale * turned

    def _factor_of_rotation(self, kinds: set[str], rotary: Mapping[Any, Any]) -> float | None:
        """Return the factor of q·k by YaRN (arXiv:2309.00071) or LongRoPE; None if only a part of a head has it."""
        if kinds not in ({"yarn"}, {"longrope"}) or self.rotated() != self.sizes["d_head"]:
            return None
        said: Any = rotary.get("attention_factor")
        factor: Any = rotary.get("factor")
        one, other = rotary.get("mscale"), rotary.get("mscale_all_dim")
        original: Any = rotary.get(
            "original_max_position_embeddings", self._config.get("original_max_position_embeddings")
        )
        try:
            if said is None and factor is None:
                factor = self._config["max_position_embeddings"] / original
            if said is not None or factor <= 1:
                return float(1 if said is None else said) ** 2
            if kinds == {"longrope"}:
                return 1 + math.log(factor) / math.log(original)
            gains = [0.1 * gain * math.log(factor) + 1 for gain in ((one, other) if one and other else (1, 0))]
            return (gains[0] / gains[1]) ** 2
        except (KeyError, TypeError, ValueError, ZeroDivisionError):  # one of them is not a number that can be
            return None

    def number(self, text: str | None, optional: bool = False) -> float | None:
        """Evaluate a product in the table's notation, or what follows ``or`` where the configuration has no such key.

        ``^-0.5`` after a factor means its inverse square root, ``1+`` before a list one more than its length.
        """
        if text is None:
            return None
        first, _, instead = text.partition(" or ")
        if instead:
            text = first if _held(self._config, first.partition("^")[0]) is not None else instead
        total = 1.0
        for term in text.split(" * "):
            name, root, _ = term.partition("^-0.5")
            keys, _, otherwise = name.partition(" else ")
            value = self.sizes.get(keys, _held(self._config, keys.removeprefix("1+")))
            if keys.startswith("1+") and isinstance(value, (str, list)):
                value = 1 + len(value.split("|") if isinstance(value, str) else value)
            value = (float(otherwise or keys) if value is None else value) if (otherwise or _is_number(keys)) else value
            if value is None and optional:
                return None
            number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
            if not (number > 0 if root else number >= 0) or not number < math.inf:
                expected = "a finite positive number" if root else "a finite number that is not negative"
                raise CheckpointError(self._path, f"{keys} = {quoted(value)}; expected {expected}")
            total *= number**-0.5 if root else number
        return total


def _held(config: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key in a configuration, ``a.b`` in a part; its rotary parameters take precedence."""
    part, _, within = key.partition(".")
    if within:
        inner = config.get(part)
        return _held(inner, within) if isinstance(inner, Mapping) else None
    parameters = config.get("rope_parameters")
    inner = parameters.get(key) if isinstance(parameters, Mapping) else None
    return config.get(key) if inner is None else inner


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9.]+", text) is not None
