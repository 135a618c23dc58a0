"""Tables for other programs: what is written is what the table holds, whatever its names are."""

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
import xarray as xr

import rmtbase
from rmtbase.errors import ParameterError
from rmtbase.results import open_table
from rmtbase.shown import as_latex
from rmtbase.tables import export, frame_groups, to_pandas, write_table

DATA = Path(__file__).parents[1] / "data"
HOSTILE = "=cmd|'/C calc'!A1\n\\input{secrets} & 50 % $x_1$ ~^{}#\x1b[31m\udcff"
KINDS_WITH_A_FRAME = ("baseline", "spectra", "elements", "atlas", "effective_depth", "scores")


def rows_of(content):
    return list(csv.DictReader(io.StringIO(content.decode())))


@pytest.fixture(scope="module")
def stored():
    return {kind: open_table(DATA / f"{kind}.nc", kind) for kind in KINDS_WITH_A_FRAME}


@pytest.fixture
def hostile(stored):
    """Scores of components and a model whose names were made to harm."""
    tree = stored["scores"].copy()
    matrices = tree["matrices"].to_dataset()
    names = [HOSTILE, *matrices["component"].values.tolist()[1:]]
    tree["matrices"] = xr.DataTree(matrices.assign_coords(component=names))
    tree.attrs = tree.attrs | {"model": HOSTILE}
    return tree


@pytest.mark.parametrize("kind", KINDS_WITH_A_FRAME)
def test_parquet_and_csv_hold_the_frame_to_the_bit(kind, stored):
    table = stored[kind]
    for group in frame_groups(table) or [None]:
        frame = to_pandas(table, group)
        read = pd.read_parquet(io.BytesIO(export(table, "parquet", group=group)))
        pd.testing.assert_frame_equal(read, frame, check_dtype=False)
        rows = rows_of(export(table, "csv", group=group))
        assert list(rows[0]) == list(frame.columns)
        for name in frame.columns:
            if frame[name].dtype.kind == "f":
                np.testing.assert_array_equal([float(row[name] or "nan") for row in rows], frame[name])


def test_rows_and_columns_can_be_chosen_and_parquet_says_where_a_table_is_from(stored, monkeypatch):
    tree = stored["scores"]
    facts = pyarrow.parquet.read_schema(io.BytesIO(export(tree, "parquet"))).metadata
    assert facts[b"rmtbase.model"].decode() == tree.attrs["model"] and b"rmtbase.provenance" in facts
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ParameterError, match=r"pyarrow is not installed \(pip install 'rmtbase\[parquet\]'\)"):
        export(tree, "parquet")
    chosen = {"statistics": ["stable_rank", "trace*"], "columns": ["head", "statistic", "z_score"]}
    rows = rows_of(export(tree, "csv", **chosen))
    assert list(rows[0]) == chosen["columns"]
    assert {row["statistic"] for row in rows} == {"stable_rank", "trace", "trace_of_square"}
    for options, words in (
        ({"columns": ["alpha"]}, "z_score"),
        ({"statistics": ["alpha"]}, "stable_rank"),
        ({"group": "alpha"}, "heads, by_head, elements, matrices"),
        ({"format": "xlsx"}, "'csv', 'parquet', 'latex'"),
    ):
        with pytest.raises(ParameterError, match=words):
            export(tree, **options)
    with pytest.raises(ParameterError, match="has no statistics"):
        export(stored["effective_depth"], statistics=["trace"])


def test_names_run_nothing_in_a_spreadsheet_and_nothing_in_latex(hostile):
    first = rows_of(export(hostile, "csv", group="matrices"))[0]["component"]
    assert first.startswith("'=cmd")
    assert "\x1b" not in first
    names = pd.read_parquet(io.BytesIO(export(hostile, "parquet", group="matrices")))["component"]
    assert names[0] == HOSTILE.replace("\udcff", r"\udcff")
    text = export(hostile, "latex", group="matrices").decode()
    assert r"\input" not in text.replace(r"\textbackslash{}input", "")
    assert all(line.startswith("% ") for line in text.splitlines()[:3])
    assert text.count("\x1b") == 0
    assert as_latex("50 % & \\x_1") == r"50 \% \& \textbackslash{}x\_1"


def test_latex_shows_values_to_their_errors_and_what_is_shared_once(stored):
    table = stored["baseline"]
    text = export(table, "latex", statistics=["trace"]).decode()
    row = to_pandas(table).query("case == 0 and statistic == 'trace'").iloc[0]
    value, error = re.search(r"trace & \$([\d.]+) \\pm ([\d.]+)\$", text).groups()
    assert float(error) == pytest.approx(row["standard_error"], rel=0.06)
    assert float(value) == pytest.approx(row["mean"], abs=float(error))
    assert r"\toprule" in text
    one = export(table.isel(case=[0]), "latex", statistics=["trace*"]).decode()
    assert r"d\_model" in one.splitlines()[1]
    assert "$d$" not in one


def table_of_two_moments(error, tolerance):
    """One statistic, simulated as 0.797411 and known as 0.7974987654321."""
    row = {"mean": 0.797411, "std": 0.053, "standard_error": error, "std_standard_error": error}
    row |= {"analytic_mean": 0.7974987654321, "analytic_std": 0.0529876543}
    row |= {"analytic_mean_tolerance": tolerance, "analytic_std_tolerance": tolerance}
    cells = {name: (("case", "statistic"), [[value]]) for name, value in row.items()}
    return xr.Dataset(cells, {"case": [0], "statistic": ["stable_rank"]})


@pytest.mark.parametrize(
    ("error", "tolerance", "printed"),
    [
        (0.000053, 0.0, ("0.797411", "0.797499", "0.052988")),  # exact: to the digits of the simulation
        (0.000053, np.nan, ("0.797411", "0.797499", "0.052988")),  # its accuracy is not stated
        (0.000053, 0.000004, ("0.797411", "0.797499", "0.052988")),
        (0.000053, 0.00081, ("0.797411", "0.79750", "0.05299")),  # no digit that is not known
        (0.0021, 0.0, ("0.7974", "0.7975", "0.0530")),
    ],
)
def test_latex_has_an_analytic_value_to_the_digits_of_the_simulated_one_or_to_those_known(error, tolerance, printed):
    chosen = ["mean", "analytic_mean", "analytic_std"]
    text = export(table_of_two_moments(error, tolerance), "latex", columns=chosen).decode()
    mean, *analytic = text.splitlines()[-3].removesuffix(r" \\").split(" & ")
    assert mean.startswith(f"${printed[0]} \\pm ")
    assert analytic == [f"${one}$" for one in printed[1:]]


def test_quantiles_have_their_errors_in_every_export():
    table = rmtbase.baseline(16, 4, draws=200)
    row = table.isel(case=0).sel(statistic="stable_rank", probability=0.5)
    value, error = row["quantile"].item(), row["quantile_standard_error"].item()
    (one,) = json.loads(export(table, "json", statistics=["stable_rank"]))
    assert (one["quantile_0.5"], one["quantile_standard_error_0.5"]) == (value, error)
    assert one["quantile_standard_error_0.001"] is None  # 200 draws do not tell it
    text = export(table, "latex", statistics=["stable_rank"], columns=["quantile_0.5", "quantile_0.001"]).decode()
    printed = re.search(r"\$([\d.]+) \\pm ([\d.]+)\$ & \$([\d.]+)\$", text).groups()
    assert float(printed[0]) == pytest.approx(value, abs=error / 10)
    assert float(printed[1]) == pytest.approx(error, rel=0.06)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_every_latex_table_compiles_in_one_document(stored, hostile, tmp_path):
    tables = [export(stored["baseline"], "latex"), export(stored["effective_depth"], "latex")]
    tables += [export(hostile, "latex", group="matrices"), export(hostile, "latex", statistics=["trace"])]
    assert any(b"longtable}{" in one for one in tables)
    body = "\n\n".join(one.decode() for one in tables)
    rules = r"\let\toprule\hline\let\midrule\hline\let\bottomrule\hline"  # where LaTeX is installed without it
    rules = rf"\IfFileExists{{booktabs.sty}}{{\usepackage{{booktabs}}}}{{{rules}}}"
    head = rf"\documentclass{{article}}\usepackage[T1]{{fontenc}}\usepackage{{longtable}}{rules}\begin{{document}}\tiny"
    (tmp_path / "all.tex").write_text(f"{head}\n{body}\n\\end{{document}}", encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "all.tex"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert ran.returncode == 0, ran.stdout[-2000:]


def test_the_command_writes_what_the_call_gives(stored, run, tmp_path):
    file = write_table(stored["scores"], tmp_path / "scores.nc")
    tree = open_table(file)
    for name, kind in (("m.csv", "csv"), ("m.tex", "latex")):
        ended = run("export", file, "--group", "matrices", "-o", tmp_path / name)
        assert (ended.status, ended.err) == (0, f"rmtbase: wrote {tmp_path / name}\n")
        assert (tmp_path / name).read_bytes() == export(tree, kind, group="matrices")
    ended = run("export", file, "--statistic", "stable_rank", "--columns", "head,z_score")
    assert ended.out.encode() == export(tree, statistics=["stable_rank"], columns=["head", "z_score"])
    ended = run("export", file, "-o", tmp_path / "a.csv", "--format", "latex")
    assert ended.status == 2 and "csv, as" in ended.err
