"""Names that somebody else chose: printed as they are, harmless, short, and never in the way of the work."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase.nulls import Table
from rmtbase.results import open_table
from rmtbase.results.scores.figures._eigenvalues import ordered_eigenvalues
from rmtbase.results.scores.figures._heatmaps import matrix_z_heatmap
from rmtbase.tables import export

MARKUP = "[red]x[reverse]y [link=https:a]z :bomb: [bold"
CONTROLS = "a\x1b[2J\x1b]8;;x\x07\u202eb\rc\nd"
NOT_UTF8 = os.fsdecode(b"caf\xe9")


def is_one_line(text):
    return text.count("\n") == 1 and text.endswith("\n") and text[:-1].isprintable()


def test_markup_in_a_name_is_printed_as_it_is(run, weights, null_file, tmp_path):
    folder = weights.save(tmp_path / MARKUP)
    ran = run("score", folder, "--null", null_file)
    assert ran.status == 0 and ran.out.startswith(f"{MARKUP}: 8 heads")
    assert run("depth", folder, "--draws", 19, "--max-depth", 2).out.splitlines()[0] == MARKUP


@pytest.mark.parametrize(
    "command",
    [
        ["plot", CONTROLS],
        ["score", f"./{CONTROLS}"],
        ["score", f"demo@{CONTROLS}"],
        ["score", "demo", "--null", f"./{CONTROLS}"],
        ["baseline", "--d-model", 8, "--d-head", 2, "-o", f"none/{CONTROLS}"],
        ["baseline", CONTROLS],
        ["baseline", f"./{CONTROLS}"],
        ["constants", CONTROLS],
        ["law", "--d-model", 8, "--d-head", 2, "--normalization", CONTROLS],
        [CONTROLS],
        [f"--{CONTROLS}"],
    ],
)
def test_control_characters_in_a_refused_argument_are_shown_as_their_escapes(command, run):
    ran = run(*command)
    assert ran.status == 2
    assert is_one_line(ran.err), ran.err
    assert "\\x1b" in ran.err


@pytest.mark.parametrize(
    "command", [["plot"], ["score"], ["score", "demo", "--null"], ["demo", "-o"], ["baseline"], ["constants"]]
)
def test_a_name_of_a_megabyte_or_too_long_for_any_file_is_one_short_line(command, run):
    for name in ("a" * 5000, "b/" * 2500, "./" + "c" * 10**6):
        ran = run(*command, name)
        assert ran.status == 2
        assert is_one_line(ran.err)
        assert len(ran.err) < 2100


def test_a_nul_in_a_name_is_one_line(run):
    for command in (["plot", "a\0b"], ["score", "./a\0b"], ["baseline", "--d-model", "8\0"]):
        ran = run(*command)
        assert ran.status == 2
        assert is_one_line(ran.err)
        assert "\\x00" in ran.err


@pytest.mark.exhaustive
def test_folders_and_files_whose_names_are_not_utf8_are_used_as_any_others(run, weights, null_file, tmp_path):
    here = tmp_path / NOT_UTF8
    folder = weights.save(here / f"model{NOT_UTF8}")
    outputs = {kind: here / f"{NOT_UTF8}.{kind}" for kind in ("nc", "html")}
    ran = run("score", folder, "--null", null_file, "-o", outputs["nc"], "-o", outputs["html"])
    assert ran.status == 0, ran.err
    assert ran.out.startswith("modelcaf\\udce9: 8 heads")
    assert all(line.startswith("rmtbase: ") for line in ran.err.splitlines())
    assert f"wrote {tmp_path}/caf\\udce9/caf\\udce9.nc" in ran.err
    readable = outputs["nc"].rename(tmp_path / "scores.nc")
    assert open_table(readable, "scores").attrs["model"] == "modelcaf\\udce9"
    assert "modelcaf\\udce9" in outputs["html"].read_text()


def test_a_table_in_such_a_folder_is_drawn_chunk_by_chunk_as_any_other(run, shape, tmp_path, monkeypatch):
    assert is_one_line(run("baseline", *shape, "--draws", 5, "-o", tmp_path / CONTROLS).err)
    assert (tmp_path / CONTROLS).exists()
    (tmp_path / NOT_UTF8).mkdir()
    monkeypatch.chdir(tmp_path / NOT_UTF8)
    ran = run("baseline", *shape, "--draws", 20, "--json", "-o", f"{NOT_UTF8}.nc")
    assert (ran.status, json.loads(ran.out)["file"]) == (0, f"{NOT_UTF8}.nc")
    assert is_one_line(ran.err)
    readable = Path(f"{NOT_UTF8}.nc").rename(tmp_path / "table.nc")
    assert open_table(readable, "baseline").identical(rmtbase.baseline(32, 8, draws=20))


@pytest.mark.exhaustive
def test_output_that_its_encoding_cannot_hold_is_escaped(run_process):
    ran = run_process("law", "--d-model", 8, "--d-head", 4, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert ran.status == 0
    assert ran.out.startswith("W_QK = W_Q\\u1d40 W_K")
    ran = run_process("law", "--d-model", 8, "--d-head", 4, "--json", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert json.loads(ran.out)["d_head"] == 4


def test_a_fault_of_our_own_is_one_line_and_status_70():
    def ended(fault, *options):
        code = f"import rmtbase.constants\nrmtbase.constants.current_set = lambda: {fault}\n"
        code += f"from rmtbase.cli import main\nmain({['constants', *options]})"
        command = [sys.executable, "-c", code]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return ran.returncode, ran.stderr

    said = "rmtbase: internal error: ZeroDivisionError: division by zero"
    said += " (rmtbase --debug shows where; please report it)\n"
    assert ended("1 / 0") == (70, said)
    status, err = ended("1 / 0", "--debug")
    assert status == 70 and err.startswith("Traceback") and err.endswith(said)
    status, err = ended("bytearray(2**62)")
    assert status == 2 and is_one_line(err) and err.startswith("rmtbase: error: out of memory")


FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", " =1+1", '"=1+1', "'=1+1", "\t=1+1", "\r=1+1", "\n=1+1", "＝1+1")


@pytest.fixture(scope="module")
def tree(null_file, tmp_path_factory, make_weights):
    queries, keys = np.random.default_rng(3).standard_normal((2, 2, 4, 8, 32))
    folder = make_weights(queries, keys).save(tmp_path_factory.mktemp("models") / "model")
    return rmtbase.score(folder, Table(null_file))


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_of_a_csv_is_run_as_a_formula(text, tree):
    tree = tree.copy()
    heads = tree["heads"].to_dataset()
    statistic = [text, *heads["statistic"].values[1:].tolist()]
    tree["heads"] = heads.assign_coords(statistic=statistic, layer=[text, "b"]).assign(
        farthest_statistic=(("layer", "head"), np.full(heads["farthest_statistic"].shape, text))
    )
    rows = list(csv.reader(io.StringIO(export(tree, "csv", group="heads").decode())))
    assert len(rows) == 1 + 8 * len(statistic)
    assert {len(row) for row in rows} == {len(rows[0])}
    texts = [cell for row in rows for cell in row if not is_number(cell)]
    assert sum("1" in cell for cell in texts) > 8
    assert [cell for cell in texts if re.match('[ "]*[=+@＝\t\r\n-]', cell)] == []
    z = [float(row[rows[0].index("z_score")]) for row in rows[1:] if row[rows[0].index("statistic")] == "trace"]
    np.testing.assert_array_equal(z, heads["z_score"].sel(statistic="trace").values.ravel())
    assert min(z) < 0


def is_number(cell):
    try:
        float(cell)
    except ValueError:
        return False
    return cell[0] != "+"


@pytest.mark.parametrize(
    "name", mostly_exhaustive(["$", "$x$", r"$\frac$", r"\$\alpha$", "{}%s", CONTROLS, NOT_UTF8, "m" * 10**5], always=3)
)
def test_no_name_is_read_as_mathematics_by_a_figure(name, null_file, tree, tmp_path):
    title = ordered_eigenvalues(open_table(null_file, "baseline").assign_attrs(model=name)).get_figure().get_suptitle()
    assert title.isprintable()
    assert len(title) < 100
    assert title.count("$") == title.count(r"\$") == name.count("$")
    matrices = tree["matrices"].to_dataset()
    named = {one: [f"{name}{k}" for k in range(matrices.sizes[one])] for one in ("layer", "component")}
    figure = matrix_z_heatmap(matrices.assign_coords(named)).get_figure()
    figure.savefig(tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").read_text().startswith("<?xml")
