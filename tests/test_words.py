"""Words of counts, reasons as codes with values, rows as plain values; and words come last: none changes a number."""

import doctest
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from rmtbase import reasons, words
from rmtbase.reasons import NotTestable, Reason, templates
from rmtbase.tables import rows_of
from rmtbase.tables._schema import Variable
from rmtbase.tables.domain import ANY, COUNT_OR_NAN, FLAG_OR_NAN, REASON, TEXT

ZEROS, NOT_RECORDED = Reason("all_zeros"), Reason("not_recorded")


@pytest.mark.parametrize("module", [words, reasons])
def test_examples_of_words_are_what_they_return(module):
    tested = doctest.testmod(module)
    assert tested.attempted and not tested.failed


def test_a_reason_survives_its_text_and_several_are_one():
    both = Reason.join(Reason(), ZEROS, NOT_RECORDED)
    for reason in (Reason(), ZEROS, both):
        assert Reason.read(str(reason)) == reason
    assert both.codes == ("all_zeros", "not_recorded") and Reason.join(Reason(), ZEROS) == ZEROS and not Reason.join()
    assert both.words == "all zeros, which have no shape to test; no reason is recorded in this file"


@pytest.mark.parametrize(
    "text", ["all zeros", "unknown_code", "all_zeros [", "all_zeros 3", 'several {"reasons": ["x"]}', "several", "{}"]
)
def test_a_text_that_is_no_reason_is_refused(text):
    with pytest.raises(ValueError, match="is not a reason"):
        Reason.read(text)
    assert REASON.fault(np.array([text], dtype=object)) is not None


def test_every_template_has_a_code_of_its_own_and_no_sentence_end():
    for code, text in templates().items():
        assert code.islower() and code.replace("_", "").isalpha() and text and not text.endswith("."), code


def test_rows_have_the_types_of_their_domains():
    dims = ("layer", "head")
    schema = {
        "sigma": Variable(dims, "σ", ANY),
        "count": Variable(dims, "n", COUNT_OR_NAN),
        "flag": Variable(dims, "f", FLAG_OR_NAN),
        "reason": Variable(dims, "why", REASON),
        "word": Variable(dims, "word", TEXT),
        "strength": Variable((*dims, "direction"), "s", ANY),
    }
    group = xr.Dataset(
        {
            "sigma": (dims, [[1.0, 2.0, np.nan]]),
            "count": (dims, [[3.0, np.nan, np.nan]]),
            "flag": (dims, [[1.0, np.nan, np.nan]]),
            "reason": (dims, [["", "all_zeros", ""]]),
            "word": (dims, [["a", "b", ""]]),
            "strength": ((*dims, "direction"), np.ones((1, 3, 2))),
        },
        {"layer": [4], "head": [0, 1, 2]},
    )
    first, second = rows_of(group, schema, *dims)
    place = {"layer": 4, "head": 0}
    assert first == place | {"sigma": 1.0, "count": 3, "flag": True, "reason": Reason(), "word": "a"}
    assert second["count"] is None and second["flag"] is None and second["reason"] == ZEROS
    assert type(first["count"]) is int and type(first["flag"]) is bool
    assert rows_of(group, schema, *dims, along=("direction",))[0]["strength"] == [1.0, 1.0]


def test_what_is_not_testable_is_counted_by_code():
    untested = [NotTestable("a", ZEROS), NotTestable("b", NOT_RECORDED), NotTestable("c", ZEROS)]
    assert words.untested_words(untested, 7, "head") == (
        "3 of 7 heads cannot be tested: all zeros, which have no shape to test (2); "
        "no reason is recorded in this file (1)"
    )


SCRIPT = Path(__file__).with_name("words_replaced.py")
TOGETHER = [
    ("scores", "first", "comparison"),
    pytest.param(("composition", "changes", "depth", "law", "constants"), marks=pytest.mark.weekly),
    pytest.param(("signal", "signs", "trajectory", "baseline"), marks=pytest.mark.weekly),
]
"""Commands of one process each; a comparison is of the scores before it."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("names", TOGETHER, ids=lambda names: names[0])
def test_nothing_but_words_depends_on_words(names, tmp_path):
    environment = os.environ | {"MPLBACKEND": "agg", "RMTBASE_PROOF": "0"}
    environment.pop("COLUMNS", None)  # shorter texts would be wrapped into fewer lines
    processes = []
    for mode in ("words", "x"):
        (tmp_path / mode).mkdir()
        command = [sys.executable, str(SCRIPT), mode, str(tmp_path / mode), *names]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True))
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    as_written, replaced = map(json.loads, printed)
    for name in names:
        assert as_written[name]["status"] == 0 and as_written[name]["json"]
        for part, values in as_written[name].items():
            assert replaced[name][part] == values, f"{name}: {part}"
