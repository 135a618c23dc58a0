"""What each command prints and writes."""

import csv
import importlib.metadata
import io
import json
import platform
import re
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from importlib.resources import files
from pathlib import Path

import h5py
import jsonschema
import numpy as np
import pytest
from strict import strict_json
from threadpoolctl import threadpool_info

import rmtbase
from rmtbase.cli import main
from rmtbase.ensembles import low_rank_product
from rmtbase.montecarlo import choose_solver
from rmtbase.nulls import Table
from rmtbase.results import open_table
from rmtbase.results.scores import summarize_scores
from rmtbase.statistics import SPECTRAL_STATISTICS


def test_baseline_writes_the_table_of_the_python_call(run, tmp_path):
    path = tmp_path / "table.nc"
    options = ["--d-model", 32, "--d-head", 8, "--sigma", 0.5, "--sigma", "2,1", "--draws", 40, "--seed", 9]
    ran = run("baseline", *options, "--normalization", "none", "-o", path)
    assert ran.status == 0
    assert ran.err == f"rmtbase: wrote {path}\n"
    assert "normalized_participation_ratio" in ran.out
    expected = rmtbase.baseline(32, 8, [0.5, (2.0, 1.0)], 40, 9, "none")
    assert open_table(path, "baseline").identical(expected)


def test_baseline_takes_several_shapes_or_that_of_a_model_and_names_the_file_by_it(run, tmp_path):
    path = tmp_path / "table.nc"
    options = ["--d-model", 32, "--d-model", 16, "--d-head", 8, "--d-head", 4, "--sigma", 1, "--sigma", 2]
    assert run("baseline", *options, "--draws", 10, "--json", "--json", "-o", path).status == 0
    assert open_table(path, "baseline")["d_head"].values.tolist() == [8, 8, 4, 4]
    ran = run("baseline", "gpt2", "--draws", "2")
    assert ran.status == 0 and "openai-community/gpt2, known: d_model = 768, d_head = 64" in ran.err
    assert [path.name for path in Path.cwd().iterdir()] == ["baseline-768x64.nc"]


def test_baseline_as_json(run, tmp_path, shape):
    path = tmp_path / "table.nc"
    ran = run("baseline", *shape, "--draws", 40, "--json", "-o", path)
    printed = strict_json(ran.out)
    table = open_table(path, "baseline")
    (case,) = printed["cases"]
    assert (case["d_model"], case["d_head"], case["sigma_q"]) == (32, 8, 1.0)
    assert set(case["statistics"]) == set(table["statistic"].values.tolist())
    trace = case["statistics"]["trace"]
    held = table.isel(case=0).sel(statistic="trace")
    assert trace["mean"] == held["mean"].item()
    assert trace["quantile_standard_error_0.5"] == held["quantile_standard_error"].sel(probability=0.5).item()
    assert trace["quantile_standard_error_0.975"] is None  # of 40 draws one lies beyond
    assert trace["std_standard_error"] == held["std_standard_error"].item()
    assert (trace["analytic_mean_tolerance"], trace["analytic_std_tolerance"]) == (0.0, 0.0)  # exact
    assert trace["analytic_method"].startswith("exact moments: ")
    assert printed["file"] == str(path)


def test_score_writes_scores_and_page_and_prints_the_summary(run, model_folder, null_file, tmp_path):
    nc, page = tmp_path / "scores.nc", tmp_path / "scores.html"
    ran = run("score", model_folder, "--null", null_file, "-o", nc, "-o", page, "--json")
    assert ran.status == 0
    tree = open_table(nc, "scores")
    assert tree.identical(rmtbase.score(model_folder, Table(null_file)))
    assert page.read_text().startswith("<!DOCTYPE html>")
    rows = list(csv.DictReader(io.StringIO(run("export", nc, "--statistic", "trace").out)))
    assert len(rows) == 8
    p_value = [float(row["p_value"]) for row in rows]
    np.testing.assert_array_equal(p_value, tree["heads"]["p_value"].sel(statistic="trace").values.ravel())
    printed = strict_json(ran.out)
    summary = summarize_scores(tree)
    assert printed["n_heads"] == 8
    assert printed["sentences"] == summary.sentences()
    assert printed["flagged"] == summary.flagged
    assert ran.err.splitlines()[-1] == f"rmtbase: wrote {nc} and {page}"


def test_score_against_the_analytic_null_draws_nothing(run, model_folder, null_file, tmp_path, monkeypatch):
    monkeypatch.setenv("RMTBASE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    # An output may be called what the baseline is called: no file of that name is read.
    ran = run("--verbose", "score", model_folder, "--null", "analytic", "-o", "analytic", "--json")
    assert ran.status == 0
    assert "rmtbase: null of (32, 8): analytic, no draws" in ran.err
    assert open_table("analytic", "scores").identical(rmtbase.score(model_folder, "analytic"))
    assert not (tmp_path / "cache").exists()  # where a null that was drawn is kept
    assert strict_json(ran.out)["n_heads"] == 8
    (tmp_path / "analytic").write_bytes(null_file.read_bytes())  # given with its folder it is a baseline
    ran = run("-v", "score", model_folder, "--null", "./analytic")
    assert "rmtbase: null of (32, 8): 200 draws from analytic" in ran.err.replace("./", "")


def test_score_in_words(run, model_folder, null_file):
    ran = run("score", model_folder, "--null", null_file)
    assert ran.status == 0
    first, second, *others = ran.out.splitlines()
    assert first == "model: 8 heads (W_Q and W_K 8 × 32) against 200 random heads with normal entries"
    assert "of the 8 heads" in second or "of 8 heads differ" in second
    assert len(others) <= 3
    assert "rotary" not in ran.err
    ran = run("-v", "score", model_folder, "--null", null_file)
    assert f"rmtbase: null of (32, 8): 200 draws from {null_file}" in ran.err
    assert "rmtbase: rotary" in ran.err


def test_score_says_warnings_about_the_model(run, weights, null_file, tmp_path):
    weights.queries[0, 1] = 0
    ran = run("score", weights.save(tmp_path / "model"), "--null", null_file, "--json")
    assert "layer 0 head 1: W_Q is zeros, or rounding" in ran.err
    of_head, of_elements = strict_json(ran.out)["warnings"]
    assert of_head == "layer 0 head 1: W_Q is zeros, or rounding to them; not tested by W_QK"
    assert of_elements.startswith("layer 0 attention_query: 256 of 1024 numbers are zero: no entropy_residual, ")


@pytest.fixture(scope="module")
def doctor():
    said, notes = io.StringIO(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(notes), pytest.raises(SystemExit) as left:
        main(["doctor", "--json"])
    assert (left.value.code, notes.getvalue()) == (0, "")
    return strict_json(said.getvalue())


def test_doctor_says_versions_devices_and_precision(doctor, run):
    assert doctor["software"]["rmtbase"] == rmtbase.__version__
    assert doctor["software"]["python"] == platform.python_version()
    assert doctor["precision"]["verdict"] == "good"
    assert doctor["devices"]
    text = run("doctor")
    assert text.status == 0
    for section in doctor:
        assert section in text.out


def test_doctor_lists_every_package_library_and_solver(doctor):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(project["optional-dependencies"][one][0] for one in ("hf", "cuda", "dask"))]
    names = [re.match(r"[\w.-]+", line)[0] for line in [*wanted, *project["optional-dependencies"]["hf"]]]
    assert set(names) <= set(doctor["software"])
    for name in ("numpy", "h5py", "distributed"):
        assert doctor["software"][name] == importlib.metadata.version(name)
    blas = next(one for one in threadpool_info() if one["user_api"] == "blas")
    assert any(blas["version"] in said and blas["architecture"] in said for said in doctor["libraries"].values())
    assert h5py.version.hdf5_version in doctor["libraries"].values()
    for (d_model, d_head), name in (((768, 64), "gram"), ((64, 64), "svd")):
        assert choose_solver(low_rank_product(d_model, d_head)).name == name
        assert doctor["solvers"][f"draws, d_model {d_model}, d_head {d_head}"].startswith(f"{name} (")


def test_the_farthest_statistic_is_told_by_one_distance_and_a_floor_as_a_bound(run, make_weights, tmp_path):
    queries, keys = np.random.default_rng(2).standard_normal((2, 2, 3, 16, 64))
    queries[1, 2, 0] = queries[1, 2, 1] + 1e-4 * queries[1, 2, 0]  # one direction all but lost
    folder = make_weights(queries, keys).save(tmp_path / "model")
    (finding,) = summarize_scores(rmtbase.score(folder, "analytic")).findings
    assert SPECTRAL_STATISTICS[finding.statistic].on_log_scale
    printed = run("-v", "score", folder, "--null", "analytic").out.splitlines()
    (row,) = (line for line in printed if f" {finding.statistic} " in line)
    assert f" ln {finding.statistic} " in row
    assert f" -{finding.distance:.1f} " in row.replace("+", "-")
    assert f" ≤ {finding.omnibus_q_value:.2g} " in row


@pytest.mark.parametrize(
    ("condition", "status", "words"),
    [
        ("layer == 0 and head == 1 and not differs", 0, ""),
        ("layer in [1, 7] and head == 0 and differs", 0, ""),
        ("layer != 7 and layer == head - 9", 0, ""),
        ("layer == 0 and head == 1 and differs", 3, "1 of 8 meet --fail-if"),
        ("head == 1 and moved_share_equal_axes > 0.2 and towards == 'fewer'", 3, "layer 0 head 1"),
        ("layer == 1 and head == 2 and not differs", 4, "1 of 8 cannot be told to meet or not"),
        ("not testable", 3, "layer 1 head 2"),
        ("layer +", 2, "a condition on layer, head, p_value, q_value, differs, moved_share, moved_share_equal_axes,"),
        ("__import__('os').getcwd()", 2, "a condition on layer"),
    ],
)
def test_a_gate_ends_with_a_status_of_its_own(condition, status, words, run, weights, null_file, tmp_path):
    weights.queries[0, 1] += 3 * np.outer(np.ones(8), np.ones(32))
    weights.queries[1, 2] = 0
    ran = run("score", weights.save(tmp_path / "model"), "--null", null_file, "--json", "--fail-if", condition)
    assert ran.status == status
    assert words in ran.err
    if status == 2:
        return
    heads = strict_json(ran.out)["heads"]
    assert [(head["layer"], head["head"]) for head in heads] == [divmod(k, 4) for k in range(8)]
    assert [head["differs"] for head in heads if not head["testable"]] == [None]
    assert heads[1]["differs"]
    assert heads[6]["reason"] == "W_Q is zeros, or rounding to them"


SIGNAL = ("--heavy-tails", "--matrices", "none", "--circuits", "qk", "--minus", "demo@step-0")


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("score", ("--circuits", "ov,key", "--null", "analytic")),
        pytest.param("signal", SIGNAL, marks=pytest.mark.exhaustive),
        pytest.param(
            "trajectory",
            ("--revisions", "step-0,step-200", "--matrices", "none", "-o", "run.nc"),
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_json_of_the_demo_follows_its_schema(command, options, run):
    schema = json.loads(files("rmtbase.results").joinpath("schemas", f"{command}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    printed = strict_json(run(command, "demo", *options, "--json").out)
    jsonschema.validate(printed, schema)
    assert set(printed) <= set(schema["properties"])
    named = set(schema["properties"]["heads"]["items"]["properties"])
    assert all(set(head) <= named for head in printed["heads"]) and printed["heads"]


def test_json_of_heads_that_cannot_be_tested_follows_its_schema(run, weights, null_file, tmp_path):
    weights.queries[0, 1] = 0
    folder = weights.save(tmp_path / "model")
    for command, options in {"score": ("--null", null_file), "signal": ()}.items():
        schema = json.loads(files("rmtbase.results").joinpath("schemas", f"{command}.json").read_text(encoding="utf-8"))
        printed = strict_json(run(command, folder, *options, "--json").out)
        jsonschema.validate(printed, schema)
        assert {head["differs"] for head in printed["heads"] if not head["testable"]} == {None}


def test_baseline_prints_the_reason_the_median_and_quantiles(run, tmp_path):
    where = ("--draws", "50", "-o", tmp_path / "table.nc")
    printed = run("baseline", "--d-model", "8", "--d-head", "8", "--d-model", "9", "--d-head", "8", *where)
    assert printed.status == 0
    text = " ".join(printed.out.split())
    median = r"median \S+ ± \S+, 95 % from \S+ to "  # 50 draws do not tell how well these are known
    assert re.search(rf"condition_number has no mean here: E x\^p is infinite for p >= 1; {median}", text)
    assert "condition_number has no mean here: E x^p is infinite for p >= 0.5; median " in text
    assert "condition_number_singular has no standard deviation here: E x^p is infinite for p >= 2; median " in text
    (row, *_) = (line for line in printed.out.splitlines() if line.split()[:1] == ["condition_number"])
    assert row.split()[:2] == ["condition_number", "approximate"]  # and no number between them
    answer = run("baseline", "--d-model", "8", "--d-head", "8", "--draws", "50", "--json", "-o", tmp_path / "json.nc")
    one = json.loads(answer.out)["cases"][0]["statistics"]["condition_number"]
    assert (one["mean"], one["std"], one["standard_error"], one["moment_order"]) == (None, None, None, 0.5)
    assert 1.0 < one["quantile_0.025"] < one["quantile_0.5"] < one["quantile_0.975"]
    assert json.loads(answer.out)["cases"][0]["statistics"]["trace"]["mean"] > 0.0


def test_baseline_prints_simulated_and_analytic_values_to_the_same_digits(run, tmp_path):
    printed = run("baseline", "--d-model", "32", "--d-head", "8", "--draws", "50", "-o", tmp_path / "table.nc")
    rows = [line.split() for line in printed.out.splitlines() if line.split()[-1:] == ["exact"]]
    assert [row[0] for row in rows] == ["trace", "trace_of_square", "log_determinant"]
    for _, mean, error, std, std_error, analytic_mean, analytic_std, *_ in rows:
        for one, others in ((mean, (error, analytic_mean)), (std, (std_error, analytic_std))):
            assert {len(other.partition(".")[2]) for other in others} == {len(one.partition(".")[2])}
        assert len(error.replace(".", "").lstrip("0")) >= 2


STYLE = Path(__file__).parents[2] / "examples" / "paper" / "paper.mplstyle"
NAMES = ["null-spectrum-32x8", "ordered-eigenvalues-32x8", "baseline"]


def test_a_name_with_a_suffix_is_a_file_unless_a_folder_is_there(run, null_file, tmp_path):
    path = tmp_path / "fig.pdf"
    ran = run("plot", null_file, "-o", path)
    assert (ran.status, ran.err) == (0, f"rmtbase: wrote {path}\n")
    assert path.read_bytes().startswith(b"%PDF-")
    ran = run("plot", null_file, "--format", "svg", "-o", tmp_path / "folder")
    assert [one.name for one in sorted((tmp_path / "folder").iterdir())] == [
        f"null-{name}.svg" for name in sorted(NAMES)
    ]
    (tmp_path / "a.pdf").mkdir()
    (tmp_path / "v1.2").mkdir()
    ran = run("plot", null_file, "-o", tmp_path / "a.pdf")
    assert (ran.status, list((tmp_path / "a.pdf").iterdir())) == (2, [])
    assert "a folder of that name is there" in ran.err
    assert run("plot", null_file, "-o", tmp_path / "v1.2").status == 0


def test_one_figure_in_the_style_of_a_paper(run, null_file, tmp_path):
    path = tmp_path / "spectrum.pdf"
    chosen = ("--only", NAMES[0], "--style", STYLE, "--width", 3.4, "--theme", "print")
    assert run("plot", null_file, *chosen, "-o", path).status == 0
    content = path.read_bytes()
    assert b"STIX" in content
    assert b"DejaVu" not in content
    width = float(content.split(b"/MediaBox [ 0 0 ")[1].split()[0])
    assert width == pytest.approx(3.4 * 72)


@pytest.mark.exhaustive
def test_what_a_style_file_sets_in_vain_is_told(run, null_file, tmp_path):
    style = tmp_path / "old.mplstyle"
    style.write_text("font.size: 8\nno.such.key: 1\n")
    ran = run("plot", null_file, "--style", style, "-o", tmp_path / "figures")
    assert ran.status == 0
    assert ran.err.startswith("rmtbase: old.mplstyle: Bad key no.such.key")


def test_a_dash_is_stdout(null_file, capsysbinary):
    command = ["plot", str(null_file), "--only", NAMES[0], "-o", "-"]
    for options, start in (([], b"\x89PNG"), (["--format", "pdf"], b"%PDF-"), (["--format", "svg"], b"<?xml")):
        with pytest.raises(SystemExit) as left:
            main([*command, *options])
        said = capsysbinary.readouterr()
        assert (left.value.code, said.err) == (0, b"")
        assert said.out.startswith(start)
