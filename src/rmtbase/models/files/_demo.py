"""The bundled model at several stages of its training, and the names of a model's tokens."""

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from rmtbase.errors import CorruptFileError, ParameterError
from rmtbase.models.files._files import read_json_object
from rmtbase.shown import quoted

_LARGEST = 1 << 27  # bytes; the largest vocabularies take a third
_MOST_TOKENS = 1 << 32
_LONGEST = 80  # characters of a value in a message


def demo_root() -> Path:
    return Path(str(files("rmtbase.models").joinpath("demo")))


def demo_revisions() -> tuple[str, ...]:
    """Return the bundled checkpoints' names in the order of training. Raises MissingFileError, CorruptFileError."""
    return tuple(_read_index()[0])


def demo_steps() -> dict[str, int]:
    return _read_index()[0]


def demo_checkpoint(revision: str | None = None) -> tuple[Path, str]:
    steps, default = _read_index()
    name = default if revision is None else revision
    if name not in steps:
        raise ParameterError("revision", name, f"one of the bundled checkpoints: {', '.join(steps)}")
    return demo_root() / name, name


def _read_index() -> tuple[dict[str, int], str]:
    path = demo_root() / "index.json"
    index = read_json_object(path)
    try:
        return {str(entry["name"]): int(entry["step"]) for entry in index["revisions"]}, str(index["default"])
    except (KeyError, TypeError, ValueError) as error:
        expected = "one: install again"
        raise CorruptFileError(path, "no list of revisions with their steps and a default", expected) from error


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
