"""Names of a model's tokens, where its folder has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmtbase.errors import CorruptFileError
from rmtbase.models._demo import demo_root
from rmtbase.models._files import read_json_object

_LARGEST = 1 << 27  # bytes; the largest vocabularies take a third


def token_names(folder: Path) -> dict[int, str]:
    """Read the tokens by number from ``tokenizer.json`` or ``vocab.json`` in a checkpoint's folder; {} without either.

    Tokens are returned as stored: a space in a byte-level tokenizer is Ġ. The tokens of the bundled model are bytes.

    Raises:
        CorruptFileError: the file does not hold a vocabulary.
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
    """Read {token: number}, or the file of ``tokenizers`` with that or with a list of (token, score) in order."""
    vocabulary = content["model"]["vocab"] if "model" in content else content
    if isinstance(vocabulary, list):
        found = {number: str(one[0]) for number, one in enumerate(vocabulary)}
    else:
        found = {int(number): str(token) for token, number in vocabulary.items()}
    added = content.get("added_tokens", ()) if "model" in content else ()
    return found | {int(one["id"]): str(one["content"]) for one in added}
