"""Sizes that a configuration gives, under the keys in the table of architectures."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rmtbase.errors import CheckpointError, MissingTensorError, UnprovedConfigurationError
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.layouts._layout_table import Entry, entries
from rmtbase.models.layouts._layout_table import known_types as supported_architectures
from rmtbase.shown import quoted

# If an architecture has no key of its own for a size, these common keys may only repeat its defined value.
_USUAL_WORDS = {"d_head": ("head_dim", "head_size", "attention_head_size"), "n_key_heads": ("num_key_value_heads",)}
# These kinds of rotation add no factor to q·k.
_WITHOUT_FACTOR = {"default", "axial", "linear", "dynamic", "llama3", "mrope", "proportional"}
SIZES = (
    *("n_layers", "n_heads", "d_model", "n_key_heads", "d_rotary", "d_head", "d_value", "d_mlp", "d_latent"),
    "d_query_latent",
)  # sizes in the order in which they are read: a size may be computed from earlier ones


class Sizes:
    """Sizes that a configuration gives, and the keys that give them: those of ``wanted`` that the entry has."""

    def __init__(
        self, entry: Entry, path: Path, names: Sequence[str] = SIZES, optional: Sequence[str] = ("d_mlp",)
    ) -> None:
        self._config, self._entry, self._path = entry.config, entry, path
        self.said: list[str] = []
        self.sizes: dict[str, int] = {}
        for name in names:
            value = self._of(name, optional=name in optional) if name in entry.sizes else None
            if value is not None:
                self.sizes[name] = value
        self.sizes.setdefault("n_key_heads", self.sizes["n_heads"])
        self.sizes.setdefault("d_value", self.sizes["d_head"])
        if self.sizes["n_heads"] % self.sizes["n_key_heads"]:
            expected = "expected a number of heads that is a multiple of the key heads"
            raise CheckpointError(path, f"{self.because}: {expected}")
        self._require_agreement()

    @property
    def because(self) -> str:
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
            advice = ", without which heads have the type's own size" if name == "d_head" else ""
            raise CheckpointError(self._path, f"no {' or '.join(named)}{advice}; expected a positive integer")
        return self._computed(text)

    def _computed(self, text: str) -> int:
        """Evaluate numbers and keys with ``*``, ``+``, ``/`` and ``//`` between them, from left to right."""
        first, *rest = re.split(r" ([*+]|//?) ", text)
        total = self._term(first)
        for operation, term in zip(rest[::2], rest[1::2], strict=True):
            value = self._term(term)
            if operation == "/" and total % value:
                expected = "expected a head size, or a d_model divisible by the heads"
                raise CheckpointError(self._path, f"{self.because}: {expected}")
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
        for name in ("n_layers", "n_heads", "n_key_heads", "d_model", "d_head"):
            if name not in self.sizes:
                continue
            text = self._entry.sizes.get(name, "")
            named = text.partition(" else ")[0].split(" or ")
            keys_known = [key for key in named if re.fullmatch(r"[a-z_]\w*", key) and key not in self.sizes]
            # Latent attention has its own keys; with one key head for all, any value is accepted.
            usual = () if "d_rotary" in self.sizes or text.isdigit() else _USUAL_WORDS.get(name, ())
            for key in keys_known or usual:
                value = self._config.get(key)
                if value is not None and (type(value) is not int or value != self.sizes[name]):
                    expected = f"{self.sizes[name]}, {'two names of one size' if keys_known else 'as these imply'}"
                    problem = f"{key} = {quoted(value)} beside {self.because}"
                    raise CheckpointError(self._path, f"{problem}; expected {expected}")

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
        return self._entry.sizes.get(name, name).partition(" else ")[0]

    def rotated(self) -> int | None:
        text = self._entry.rotated
        if text is None or text == "?":
            return None
        fraction = text.removeprefix("d_head * ")
        if fraction == text:
            value = self.number(text)
            return None if value is None else int(value)
        part = _held(self._config, fraction)
        if part is None:
            part = self._config.get("rotary_pct", 0.25 if fraction == "partial_rotary_factor" else 1.0)
        if isinstance(part, bool) or not isinstance(part, (int, float)) or not 0 <= part <= 1:
            problem = f"the rotated part {quoted(part)} of a head"
            raise CheckpointError(self._path, f"{problem}; expected a number from 0 to 1")
        return int(self.sizes["d_head"] * part)

    def scale(self) -> float | None:
        rotary = self._config.get("rope_parameters") or self._config.get("rope_scaling")
        rotary = rotary if isinstance(rotary, Mapping) else {}
        settings = [part for part in (rotary, *rotary.values()) if isinstance(part, Mapping)]
        kinds = {str(part.get("rope_type", part.get("type", "default"))) for part in settings}
        turned = 1.0 if kinds <= _WITHOUT_FACTOR else self._factor_of_rotation(kinds, rotary)
        scale = None if turned is None else self.number(self._entry.scale, optional=True)
        return None if scale is None or turned is None else scale * turned

    def _factor_of_rotation(self, kinds: set[str], rotary: Mapping[Any, Any]) -> float | None:
        """Return the factor of q·k by YaRN (arXiv:2309.00071) or LongRoPE; None if only a part of a head has it."""
        if kinds not in ({"yarn"}, {"longrope"}) or self.rotated() != self.sizes["d_head"]:
            return None
        words = ("attention_factor", "factor", "mscale", "mscale_all_dim")
        settings: list[Any] = [rotary.get(word) for word in words]
        attention_factor, factor, mscale, mscale_all_dim = settings
        key = "original_max_position_embeddings"
        original: Any = rotary.get(key, self._config.get(key))
        try:
            if attention_factor is None and factor is None:
                factor = self._config["max_position_embeddings"] / original
            if attention_factor is not None or factor <= 1:
                return float(1 if attention_factor is None else attention_factor) ** 2
            if kinds == {"longrope"}:
                return 1 + math.log(factor) / math.log(original)
            gains = (mscale, mscale_all_dim) if mscale and mscale_all_dim else (1, 0)
            above, below = (0.1 * gain * math.log(factor) + 1 for gain in gains)
            return (above / below) ** 2
        except (KeyError, TypeError, ValueError, ZeroDivisionError):  # one of them is not a number that can be
            return None

    def number(self, text: str | None, optional: bool = False) -> float | None:
        """Evaluate a product in the table's notation, or what follows ``or`` where there is no such key."""
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
            if value is None and (otherwise or re.fullmatch(r"[0-9.]+", keys)):
                value = float(otherwise or keys)
            if value is None and optional:
                return None
            number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
            if not (number > 0 if root else number >= 0) or not number < math.inf:
                expected = "a finite positive number" if root else "a finite number that is not negative"
                raise CheckpointError(self._path, f"{keys} = {quoted(value)}; expected {expected}")
            total *= number**-0.5 if root else number
        return total


def _held(config: Mapping[str, Any], key: str) -> Any:
    part, _, within = key.partition(".")
    if within:
        inner = config.get(part)
        return _held(inner, within) if isinstance(inner, Mapping) else None
    parameters = config.get("rope_parameters")
    inner = parameters.get(key) if isinstance(parameters, Mapping) else None
    return config.get(key) if inner is None else inner


_SHOWN = 3  # names in a message


def with_sizes(config: Mapping[str, Any], checkpoint: Checkpoint) -> dict[str, Any]:
    """Add missing sizes that the tensors show to the configuration, under the keys of its type."""
    completed, architecture = dict(config), config.get("model_type")
    if architecture not in supported_architectures():
        return completed
    try:
        stacks_of_type = list(entries(config, str(architecture), checkpoint.config_path))
    except UnprovedConfigurationError:  # its network may be run
        return completed
    if len(stacks_of_type) != 1 or stacks_of_type[0].inside:
        return completed
    (entry,) = stacks_of_type
    layout = entry.layout
    (first, *_) = layout.holding("q")
    query = layout.layer + first
    pattern = re.escape(query).replace(re.escape("{}"), r"(?P<layer>\d+)")
    matches = [match for name in checkpoint.names if (match := re.fullmatch(rf"(?P<prefix>|.*\.){pattern}", name))]
    stacks = {match["prefix"]: match[0] for match in matches}
    if not stacks and not entry.attends:
        raise MissingTensorError(checkpoint.path, query.format(0), str(architecture))
    if not stacks:  # perhaps no layer attends
        return completed
    if len(stacks) > 1:
        named = ", ".join(map(quoted, list(stacks.values())[:_SHOWN]))
        raise CheckpointError(checkpoint.path, f"tensors {named}; expected one stack of layers, not {len(stacks)}")
    prefix = next(iter(stacks))
    attending = min(int(match["layer"]) for match in matches)
    of_layers = re.compile(re.escape(prefix + layout.layer).replace(re.escape("{}"), r"(\d+)"))

    def linear(symbol: str) -> tuple[int, ...]:
        for tensor in layout.holding(symbol):
            name = prefix + layout.layer.format(attending) + tensor
            shape = checkpoint.shape(name) if name in checkpoint else ()
            if len(shape) == 2:
                return shape[::-1] if layout.tensors[tensor].transposed else shape
        return 0, 0

    def size(name: str, shown: int | None) -> int | None:
        keys = entry.sizes.get(name, "").partition(" else ")[0].split(" or ")
        words = [key for key in keys if re.fullmatch(r"[a-z_]\w*", key) and key not in entry.sizes]
        value = next((completed[word] for word in words if completed.get(word) is not None), None)
        if value is None and words and shown:
            completed[words[0]] = value = shown
        return value if type(value) is int and value > 0 else None

    query_rows, d_model = linear("q")
    if first in layout.holding("k"):
        query_rows = 0  # unknown: the rows include those of the keys
    size("n_layers", len({match[1] for name in checkpoint.names if (match := of_layers.match(name))}))
    size("d_model", d_model)
    size("d_mlp", linear("up")[0])
    n_heads = size("n_heads", None)
    d_head = size("d_head", query_rows // n_heads if n_heads else None)
    size("n_key_heads", linear("k")[0] // d_head if d_head else None)
    return completed
