"""``rmtbase signal --heavy-tails``: exponents and verdicts in the table, JSON, CSV, LaTeX, the file and its picture."""

import csv
import io
import json

import numpy as np
import pytest

from rmtbase.models import ArrayModel
from rmtbase.reasons import Reason
from rmtbase.results import open_table
from rmtbase.results.figures import figure_names
from rmtbase.results.signal import heavy_tails, signal, signal_rows, summarize_tails
from rmtbase.results.signal.figures import tail_exponents
from rmtbase.results.signal.schema import VERDICTS
from rmtbase.tables import export, write_table


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


def test_files_without_tails_are_as_they_were(run, request, model_folder):
    old = open_table(request.config.rootpath / "tests/data/signal.nc", "signal")
    assert not any(row.tails for row in signal_rows(old))
    assert not any(name.startswith("tails") for name in figure_names(old))
    printed = json.loads(run("signal", model_folder, "--matrices", "none", "--json").out)
    assert not any("heavy_tails" in one for one in printed["spectra"])
