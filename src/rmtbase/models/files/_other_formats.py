"""Formats of other programs, recognised by file names and first bytes; and the folders of adapters."""

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from rmtbase.reasons import packaged_texts
from rmtbase.shown import quoted, shown
from rmtbase.words import listing

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
MODEL_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
MERGED = "the merged checkpoint (peft: merge_and_unload, then save_pretrained)"
"""Advice for adapters."""
CHECKPOINT = "a checkpoint in Hugging Face format: config.json with model.safetensors"
_ARRAYS = f"{CHECKPOINT}; or queries and keys as arrays, to rmtbase.score_heads(w_q, w_k)"
MOST_FILES = 10_000  # names in a folder that are searched
_LISTED, _LONGEST_NAME = 6, 60


class Format(NamedTuple):
    pattern: str  # of the names of its files, in which case does not matter
    found: str  # what it is
    expected: str

    def has(self, name: str) -> bool:
        return re.fullmatch(self.pattern, name, re.IGNORECASE) is not None


@cache
def other_programs() -> dict[str, Any]:
    return packaged_texts("rmtbase.models.files", "other_programs.toml")


@cache
def known_formats(kind: str) -> tuple[Format, ...]:
    advice = {"merged": MERGED, "checkpoint": CHECKPOINT, "arrays": _ARRAYS}
    return tuple(Format(pattern, found, text.format(**advice)) for pattern, found, text in other_programs()[kind])


def format_of(name: str) -> Format | None:
    return next((kind for kind in known_formats("formats") if kind.has(name)), None)


def format_that_begins(content: bytes) -> str | None:
    beginnings = other_programs()["beginnings"]
    return next((found for pattern, found in beginnings if re.match(pattern, content.decode("latin-1"))), None)


def adapter_in_words(config: Mapping[str, Any]) -> str:
    base, kind = config.get("base_model_name_or_path"), config.get("peft_type")
    of_base = f" of the base model {quoted(base)}" if isinstance(base, str) and base else ""
    return (f"a {shown(kind, _LONGEST_NAME)} adapter" if isinstance(kind, str) else "an adapter") + of_base


def is_adapter_alone(folder: Path) -> bool:
    beside = ("config.json", *MODEL_WEIGHTS)
    return os.path.lexists(folder / ADAPTER_CONFIG) and not any(os.path.lexists(folder / name) for name in beside)


def adapters_within(folder: Path) -> list[str]:
    """List the subfolders that hold adapters, which is how PEFT saves several of them."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, MOST_FILES) if entry.is_dir()]
    except OSError:
        return []
    return sorted(name for name in names if os.path.lexists(folder / name / ADAPTER_CONFIG))


def which_adapter(folder: Path) -> str | None:
    """Return the advice to pass one of the adapters in subfolders, or None if there are none."""
    names = adapters_within(folder)
    if not names:
        return None
    content = "adapters in folders within it" if len(names) > 1 else "an adapter within it"
    paths = " or ".join(shown(str(folder / name), 200) for name in names[:_LISTED])
    return f"the folder holds {content}: pass {paths}"


def listed(names: Sequence[str]) -> str:
    return listing([shown(name, _LONGEST_NAME) for name in names], _LISTED)
