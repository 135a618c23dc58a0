"""What a model's tokens are called, where its folder says so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmtbase.errors import CorruptFileError
from rmtbase.models._demo import demo_root
from rmtbase.models._files import read_json_object

_LARGEST = 1 << 27  # bytes; the largest vocabularies take a third


def token_names(folder: Path) -> dict[int, str]:
    """The tokens by number that ``tokenizer.json`` or ``vocab.json`` of a checkpoint's folder names; {} without either.

    As they are stored: of a byte-level tokenizer a space is Ġ. Those of the bundled model are bytes.

    Raises:
        CorruptFileError: a file of that name that is none.
    """
    if folder.resolve().is_relative_to(demo_root().resolve()):
        return {one: repr(chr(one)) for one in range(256)}
    for name in ("tokenizer.json", "vocab.json"):
        path = folder / name
        if path.is_file():
            return _read(path)
    return {}


def _read(path: Path) -> dict[int, str]:
    content = read_json_object(path, _LARGEST)
    try:
        return _tokens(content)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptFileError(path, "no list of tokens", "the tokens of a vocabulary with their numbers") from error


def _tokens(content: Mapping[str, Any]) -> dict[int, str]:
    """Of {token: number}, or of what ``tokenizers`` writes: that, or a list of (token, score) in order."""
    vocabulary = content["model"]["vocab"] if "model" in content else content
    if isinstance(vocabulary, list):
        found = {number: str(one[0]) for number, one in enumerate(vocabulary)}
    else:
        found = {int(number): str(token) for token, number in vocabulary.items()}
    added = content.get("added_tokens", ()) if "model" in content else ()
    return found | {int(one["id"]): str(one["content"]) for one in added}
