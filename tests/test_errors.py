"""Errors carry what explains them, also from one process to another."""

import inspect
import pickle

import pytest

from rmtbase import errors
from rmtbase.errors import CheckpointError, MissingCheckpointFileError, MissingFileError, RmtbaseError, TableError

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, RmtbaseError) and kind is not RmtbaseError
]


def one_of(kind):
    """An error of that kind, with some value for each parameter of its constructor."""
    parameters = inspect.signature(kind.__init__).parameters.values()
    values = {"found": (2, 3), "shape": (2, 3), "supported": ["a", "b"], "needed": 7, "available": 8}
    given = {one.name: values.get(one.name, "word") for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD}
    del given["self"]
    return kind(**given)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_pickled_error_is_the_same_error(kind):
    error = one_of(kind)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_a_missing_file_is_pythons_own_kind_of_error_and_a_checkpoints_only_where_it_is_of_one():
    assert issubclass(MissingFileError, FileNotFoundError)
    assert not issubclass(MissingFileError, CheckpointError)
    assert issubclass(MissingCheckpointFileError, (MissingFileError, CheckpointError))


def test_no_message_holds_a_control_code_a_line_break_or_a_megabyte():
    error = TableError("tables/\x1b[31m\u202e.nc", "a\nb\x07" + "x" * 10**6, "c\td")
    assert str(error).isprintable()
    assert len(str(error)) < 2200
    assert r"tables/\x1b[31m\u202e.nc" in str(error)
    assert str(error.path) == "tables/\x1b[31m\u202e.nc"
