"""``rmtbase signal``: a table for the reader, JSON and a file for machines."""

import json
import re

import pytest

from rmtbase.heads.direction_tokens import DirectionReading
from rmtbase.models import open_model
from rmtbase.report import print_report
from rmtbase.results import open_table
from rmtbase.results.signal import signal, signal_rows
from rmtbase.results.signal.report import _reading_items
from rmtbase.results.signal.rows import discoveries
from rmtbase.terminal.endings import VERBOSITY, Verbosity
from rmtbase.terminal.streams import out


def test_the_table_is_printed_and_written(run, tmp_path):
    path = tmp_path / "signal.nc"
    ran = run("-v", "signal", "demo@step-200", "--circuits", "ov", "--matrices", "none", "-o", path)
    assert ran.status == 0
    assert f"rmtbase: wrote {path}" in ran.err
    found = signal(open_model("demo", "step-200"), circuits=("ov",), matrices="none")
    assert open_table(path, "signal").identical(found)
    rows = signal_rows(found)
    have = f"{discoveries(rows, 0.05)} of {len(rows)} spectra have a learned direction"
    assert have in ran.out
    assert [line.split()[:2] for line in ran.out.splitlines() if "   32   " in line] == [["qk", "32"], ["ov", "32"]]
    assert re.search(r"as one: 3[12] of 32 groups have a direction[.;]", ran.out)
    first = max(rows, key=lambda row: row.numbers["signal_share"])
    assert f"{100 * first.numbers['signal_share']:.1f} %" in ran.out


def test_json_holds_every_head(run):
    options = ("demo@step-0", "--matrices", "none", "--circuits", "qk")
    printed = json.loads(run("signal", *options, "--json").out)
    assert (printed["revision"], printed["level"], len(printed["spectra"])) == ("step-0", 0.05, 32)
    assert isinstance(printed["spectra"][0]["n_directions"], int)
    assert printed["spectra"][0]["noise_floor"] is True
    assert [one["key_head"] for one in printed["groups"]] == 4 * list(range(4))
    assert printed["groups"][0].keys() >= {"n_directions", "directions", "layer", "what"}


@pytest.mark.exhaustive
def test_a_difference_is_looked_at(run):
    printed = json.loads(run("signal", "demo", "--minus", "demo@step-0", "--matrices", "none", "--json").out)
    assert "step-0" in printed["model"]


def test_decisions_are_printed(run, model_folder):
    printed = run("signal", model_folder, "--format", "peft").out
    assert set(json.loads(printed)) >= {"target_modules", "rank_pattern"}
    assert "unfrozen_parameters:" in run("signal", model_folder, "--format", "yaml").out


def test_directions_are_read_as_tokens(run, model_folder):
    options = ("demo@step-200", "--circuits", "qk", "--matrices", "none", "--directions", 1)
    ran = run("signal", *options)
    found = "24 of 24 directions point at tokens beyond chance, at a false discovery rate of 5 %"
    assert found in ran.out and ran.out.count(", read ") == 24
    assert "A direction and its opposite are the same." in ran.out
    printed = json.loads(run("signal", *options, "--json").out)
    assert printed["sentences"][1].startswith(found)
    tokens = printed["tokens"]
    assert [(one["side"], one["direction"]) for one in tokens[:2]] == [("left", 0), ("right", 0)]
    assert len(tokens) == 24
    ran = run("signal", model_folder, "--directions", 1)
    assert ran.status == 2
    assert "with a known embedding" in ran.err


def test_directions_that_point_at_no_tokens_are_told_in_one_line_and_listed_on_request(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    ends = [("a", 1.0)], [("b", -1.0)]
    readings = [DirectionReading("", 0, "qk", 0, k, "left", False, *ends, p_value=1.0) for k in range(75)]

    def printed(found):
        print_report(_reading_items(found, 0.05, "rmtbase signal demo --verbose"), out())
        return capsys.readouterr().out

    said = printed(readings)
    assert said.startswith("None of 75 directions points at tokens beyond chance")
    assert len(said.splitlines()) == 2 and "left, read" not in said
    before = VERBOSITY.set(Verbosity.VERBOSE)
    try:
        assert printed(readings).count("left, read") == 75
    finally:
        VERBOSITY.reset(before)
    said = printed([readings[0]._replace(p_value=1e-9), *readings[1:]])
    assert said.startswith("1 of 75 directions points at tokens beyond chance") and said.count("left, read") == 1
    assert "The other 74: rmtbase signal demo --verbose" in said
    assert printed([]).startswith("No direction was read as tokens")
