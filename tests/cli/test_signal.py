"""``rmtbase signal``, with ``--heavy-tails`` too: a table for the reader, JSON, CSV and LaTeX, a file and a picture."""

import csv
import io
import json
import re

import numpy as np
import pytest

from rmtbase.heads.direction_tokens import DirectionReading
from rmtbase.models import ArrayModel, open_model
from rmtbase.reasons import Reason
from rmtbase.report import print_report
from rmtbase.results import open_table
from rmtbase.results.figures import figure_names
from rmtbase.results.signal import heavy_tails, signal, signal_rows, summarize_tails
from rmtbase.results.signal.figures import tail_exponents
from rmtbase.results.signal.report import _reading_items
from rmtbase.results.signal.rows import discoveries
from rmtbase.results.signal.schema import VERDICTS
from rmtbase.tables import export, write_table
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


@pytest.fixture(scope="module")
def tree():
    """Two heads of noise, one with a direction, one too small a rank."""
    rng = np.random.default_rng(1)
    w_q, w_k = rng.standard_normal((2, 4, 20, 30))
    w_q[2] += 12.0 * np.outer(rng.standard_normal(20), rng.standard_normal(30)) / 5.0
    w_q[3, 1] = w_q[3, 0]
    return signal(ArrayModel.from_factors(w_q, w_k, "made"), circuits=("qk",), matrices="none", heavy_tails=True)


@pytest.mark.exhaustive
def test_numbers_are_those_of_each_spectrum_by_itself(tree):
    heads = tree["circuits/qk/heads"].to_dataset().isel(layer=0)
    values = np.sqrt(heads["eigenvalue"].values[2])
    alone = heavy_tails(values, dims=(30, 20, 30))
    assert heads["power_law_exponent"][2] == pytest.approx(alone.fit.exponent)
    assert heads["tail_verdict"][2] == alone.comparison.verdict != "noise"
    assert heads["noise_p_value"][2] == alone.comparison.p_value[0] == 0.01
    assert (heads["null_exponent_low"] < heads["null_exponent_high"])[:3].all()
    reason = str(Reason("tail_rank", {"rank": 19, "needed": 20}))
    assert (heads["tail_verdict"][3], heads["tail_reason"][3]) == ("", reason)
    rows = signal_rows(tree)
    (line,) = summarize_tails(rows, 0.05)
    assert (line.what, line.spectra, sum(line.verdicts.values())) == ("qk", 3, 3)
    assert tuple(line.verdicts) == tuple(VERDICTS)


@pytest.mark.exhaustive
def test_files_tables_and_pictures_hold_them(tree, tmp_path):
    assert open_table(write_table(tree, tmp_path / "tails.nc"), "signal").identical(tree)
    assert "tail verdict" in export(tree, "latex", group="qk").decode()
    assert figure_names(tree) == {"directions-qk": True, "tails-qk": True}
    ax = tail_exponents(tree, "qk")
    exponent = tree["circuits/qk/heads/power_law_exponent"].values
    marks = [line for line in ax.lines if line.get_linestyle() == "None" and line.get_label() != "not testable"]
    drawn = np.concatenate([line.get_ydata() for line in marks])
    np.testing.assert_allclose(np.sort(drawn), np.sort(exponent[np.isfinite(exponent)]))
    assert "of 3 heads" in ax.get_title()


@pytest.mark.exhaustive
def test_the_command_tells_them(run, model_folder, tmp_path):
    path = tmp_path / "tails.nc"
    ran = run("signal", model_folder, "--circuits", "qk", "--heavy-tails", "-o", path)
    assert ran.status == 0
    assert "What a spectrum is: the one candidate that the likelihood" in " ".join(ran.out.split())
    assert "without tails: dims" in ran.out
    found = [row.tails for row in signal_rows(open_table(path, "signal"))]
    printed = (run("export", path, "--group", group).out for group in ("qk", "matrices"))
    rows = [row for text in printed for row in csv.DictReader(io.StringIO(text))]
    assert [row["tail_verdict"] for row in rows] == [one["tail_verdict"] for one in found]
    assert {one["tail_verdict"] for one in found} > {""}


def test_files_without_tails_and_decisions_are_as_they_were(run, request, model_folder):
    old = open_table(request.config.rootpath / "tests/data/signal.nc", "signal")
    assert not any(row.tails for row in signal_rows(old))
    assert not any(name.startswith("tails") for name in figure_names(old))
    printed = json.loads(run("signal", model_folder, "--matrices", "none", "--json").out)
    assert not any("heavy_tails" in one for one in printed["spectra"])
    printed = run("signal", model_folder, "--format", "peft").out
    assert set(json.loads(printed)) >= {"target_modules", "rank_pattern"}
    assert "unfrozen_parameters:" in run("signal", model_folder, "--format", "yaml").out
