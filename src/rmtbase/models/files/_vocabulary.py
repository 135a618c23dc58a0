"""Names of a model's tokens, where its folder has them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rmtbase.errors import CorruptFileError
from rmtbase.models.files._demo import demo_root
from rmtbase.models.files._files import read_json_object
from rmtbase.shown import quoted

_LARGEST = 1 << 27  # bytes; the largest vocabularies take a third
_MOST_TOKENS = 1 << 32
_LONGEST = 80  # characters of a value in a message


def token_names(folder: Path) -> dict[int, str]:
    """Read the tokens by number from ``tokenizer.json`` or ``vocab.json`` of a checkpoint; {} without either."""
    if folder.resolve().is_relative_to(demo_root().resolve()):
        return {byte: repr(chr(byte)) for byte in range(256)}
    path = folder / "tokenizer.json"
    if not path.is_file():
        path = folder / "vocab.json"
        return _numbered(path, read_json_object(path, _LARGEST).items()) if path.is_file() else {}
    content = read_json_object(path, _LARGEST)
    model = content.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    pairs: Iterable[tuple[Any, Any]]
    if isinstance(vocabulary, dict):
        pairs = vocabulary.items()
    elif isinstance(vocabulary, list):  # of [token, score], in the order of the numbers
        pairs = ((entry[0] if isinstance(entry, list) and entry else entry, i) for i, entry in enumerate(vocabulary))
    else:
        raise CorruptFileError(path, f"model = {quoted(model, _LONGEST)}", "an object with a table or a list vocab")
    added = content.get("added_tokens", [])
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise CorruptFileError(path, f"added_tokens = {quoted(added, _LONGEST)}", "a list of objects")
    return _numbered(path, [*pairs, *((token.get("content"), token.get("id")) for token in added)])


def _numbered(path: Path, tokens: Iterable[tuple[Any, Any]]) -> dict[int, str]:
    names: dict[int, str] = {}
    for token, number in tokens:
        if not isinstance(token, str):
            raise CorruptFileError(path, f"the token {quoted(token, _LONGEST)}", "a text")
        if type(number) is not int or not 0 <= number < _MOST_TOKENS:  # a boolean is no number
            described = f"the number {quoted(number, _LONGEST)} of the token {quoted(token, _LONGEST)}"
            raise CorruptFileError(path, described, f"a whole number from 0 to {_MOST_TOKENS - 1:,}")
        names[number] = token
    return names
