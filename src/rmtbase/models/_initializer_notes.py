"""What a configuration says of how weights were drawn, where the name alone misleads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rmtbase.shown import quoted

_CUTOFF = "initializer_cutoff_factor"  # ModernBERT's, in units of σ
_ABOUT = ("init", "initialization", "initialisation")
_DEPTH = 3


def initializer_notes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Which law a configuration's truncated normal or orthogonal initializer stands for, in words."""
    notes = []
    cutoff = config.get(_CUTOFF)
    if isinstance(cutoff, int | float) and not isinstance(cutoff, bool) and 0.0 < cutoff < 100.0:
        law = (
            "--initialization truncated_normal"
            if cutoff == 2
            else "none of --initialization has this cut; from 4 on they are as good as normal"
        )
        notes.append(f"configuration: {_CUTOFF} = {cutoff:g}: weights are cut at {cutoff:g} standard deviations: {law}")
    for key, value in _initializers(config, _DEPTH):
        if "trunc" in value.lower() and "normal" in value.lower():
            notes.append(
                f"configuration: {quoted(key)} is {quoted(value)}: trunc_normal_ of torch and transformers cuts at "
                "-2 and 2, not at two standard deviations, so that weights of std 0.02 are normal (--initialization "
                "normal); truncated_normal is for cuts at two standard deviations, as by jax and flax"
            )
        elif "orthogonal" in value.lower():
            notes.append(f"configuration: {quoted(key)} is {quoted(value)}: --initialization orthogonal has its null")
    return tuple(notes)


def _initializers(config: Mapping[str, Any], depth: int) -> Iterator[tuple[str, str]]:
    """The entries about initialisation that are texts, those of inner settings too."""
    for key, value in config.items():
        name = str(key)
        if isinstance(value, Mapping) and depth > 1:
            inside = _initializers(value, depth - 1)
            about = any(word in name.lower() for word in _ABOUT)
            yield from ((f"{name}.{inner}", text) for inner, text in inside)
            if about and isinstance(value.get("name"), str):
                yield name, value["name"]
        elif isinstance(value, str) and len(value) < 100 and any(word in name.lower() for word in _ABOUT):
            yield name, value
