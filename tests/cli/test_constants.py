"""``rmtbase constants`` lists, prints to any digits, and exports."""

import json
import re

import numpy as np
import pytest

import rmtbase
from rmtbase import constants, laws

ENTRIES = [*constants.constants(), *constants.functions()]


def keys(bibtex):
    return re.findall(r"^@\w+\{([^,\s]+),", bibtex, re.MULTILINE)


def test_without_a_name_everything_is_listed(run):
    ran = run("constants")
    assert (ran.status, ran.err) == (0, "")
    for entry in ENTRIES:
        assert entry.name in ran.out
        assert entry.description in " ".join(ran.out.split())
    for heading in constants.groups():
        assert heading in ran.out
    assert "-1.20653357458202 " in ran.out
    assert "of d_model, d_head" in ran.out


@pytest.mark.parametrize("columns", [80, 120])
def test_the_list_fits_the_terminal_and_loses_nothing(columns, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("rich.console.Console.is_terminal", property(lambda console: True))
    ran = run("constants", "--d-model", 64, "--d-head", 64)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", ran.out)
    assert max(map(len, shown.splitlines())) <= columns
    words = set(shown.split())
    for entry in ENTRIES:
        assert entry.name in words
    assert "432.000000000000" in words  # 27/4 d
    assert "none at this shape" in shown


FORMATS = {"text": (), "json": ("--json",), "latex": ("--format", "latex"), "latex-rows": ("--format", "latex-rows")}


def options(entry, shape):
    """What a constant needs beside its name: nothing, or those of d_model and d_head that it is a function of."""
    given = dict(zip(("d_model", "d_head"), shape, strict=True))
    return [word for name in getattr(entry, "parameters", ()) for word in (f"--{name.replace('_', '-')}", given[name])]


@pytest.mark.parametrize("output", FORMATS)
def test_every_pure_constant_prints_by_default(output, run):
    names = [constant.name for constant in constants.constants()]
    ran = run("constants", *names, *FORMATS[output])
    assert (ran.status, ran.err) == (0, "")
    if output == "json":
        values = [entry["value"] for entry in json.loads(ran.out)["constants"]]
        assert values == [constant.digits() for constant in constants.constants()]


def test_more_digits_than_there_are_are_refused_with_their_number(run):
    held = {entry.most_digits: entry for entry in ENTRIES}
    assert {12, 15, 100, 1000} <= set(held)
    for most, entry in held.items():
        ran = run("constants", entry.name, *options(entry, (768, 64)), "--digits", most + 1)
        assert (ran.status, ran.out) == (2, "")
        (line,) = ran.err.splitlines()
        assert line.startswith(f"rmtbase: error: digits = {most + 1}: expected at most {most}: {entry.name}")


def test_json_is_machine_readable(run):
    ran = run("constants", "--json", "--d-model", 768, "--d-head", 64, "--digits", 25)
    page = json.loads(ran.out)
    assert [entry["name"] for entry in page["constants"]] == [entry.name for entry in ENTRIES]
    assert (page["d_model"], page["d_head"]) == (768, 64)
    values = {entry["name"]: entry["value"] for entry in page["constants"]}
    assert values["square_product_upper_edge"] == "6.750000000000000000000000"
    assert values["trace_mean"].startswith("49152.0")
    assert set(page["references"]) == {key for entry in page["constants"] for key in entry["references"]}
    assert [(one["id"], one["date"]) for one in page["constants"]] == [(entry.id, "2026-11-23") for entry in ENTRIES]


def test_latex_rows(run):
    ran = run("constants", "square_product_upper_edge", "body_tail_gap", "--format", "latex-rows", "--digits", 10)
    comment, *rows = ran.out.splitlines()
    assert comment.startswith("%")
    assert rows[0].startswith(r"\texttt{square\_product\_upper\_edge} & $\lambda_+^{P}$ & $6.750000000$ & ")
    assert rows[1].endswith(r"\cite{weibull_1951,ding_2026} \\")


EDGE = ["product_upper_edge", "--d-model", 2048, "--d-head", 128]
CONDITIONS = ("divided by √d_model", "σ_Q = σ_K = 0.02", "d_model = 2048, d_head = 128", "λ: eigenvalues", "limit of")


@pytest.mark.parametrize("output", FORMATS)
def test_every_format_states_the_conditions_identifier_and_date_beside_the_value(output, run):
    said = run("constants", "body_tail_gap", *FORMATS[output]).out.replace("v1/NAME", "v1/body_tail_gap")
    assert "rmtbase:constants.v1/body_tail_gap" in said and "2026-11-23" in said
    if output == "json":
        (entry,) = json.loads(said)["constants"]
        assert json.loads(said)["set"] == {"name": "v1", "date": "2026-11-23", "sha256": constants.v1.sha256}
        assert (entry["id"], entry["set"], entry["date"]) == (constants.body_tail_gap.id, "v1", "2026-11-23")
        assert tuple(entry["enclosure"]) == constants.body_tail_gap.enclosure
        assert (entry["error_kind"], entry["relative_error"]) == ("numerical", 1e-100)
    elif output != "latex-rows":
        assert "[0.0543677282991962301597328936841, 0.0543677282991962301597328936842]" in said
    ran = run("constants", *EDGE, "--sigma", 0.02, *FORMATS[output])
    assert (ran.status, ran.err) == (0, "")
    said = " ".join((str(json.loads(ran.out)) if output == "json" else ran.out).split())
    if output == "latex-rows":
        assert r"divided by $\sqrt{d_{\mathrm{model}}}$; $\sigma_Q = \sigma_K = 0.02$; " in said
    else:
        assert all(condition in said for condition in CONDITIONS)
    assert re.search(r"6\.13145\d*(×10⁻⁴|\\times 10\^\{-4\})|0\.000613145", said)


def test_a_sentence_is_ready_for_a_paper_and_its_keys_are_those_of_the_bibtex(run):
    sentence = run("constants", *EDGE, "--sigma", 0.02, "--format", "latex").out
    bibtex = run("cite", "product_upper_edge").out
    assert r"is $\lambda_+ = 6.13145\times 10^{-4}$ for" in sentence
    cited = re.findall(r"\\cite\{([^}]*)\}", sentence)
    assert cited == [",".join(constants.product_upper_edge.references), "rmtbase"]
    assert keys(bibtex) == ",".join(cited).split(",")
    text = " ".join(run("constants", *EDGE, "--sigma", 0.02, "--digits", 3).out.split())
    assert "is λ₊ = 6.13×10⁻⁴ for W_QK = W_QᵀW_K of independent normal entries, divided by √d_model" in text
    assert "one draw: the largest squared singular value of W_QK is λ_max = (6.029 ± 0.097)×10⁻⁴ (mean" in text


def test_words_of_a_description_or_of_the_computing_function_find_entries(run):
    found = run("constants", "Edge").out
    for name in ("product_upper_edge", "product_lower_edge", "square_product_upper_edge", "residual_path_upper_edge"):
        assert f"  {name} " in found
    assert "trace_mean" not in found and "of d_model, d_head" in found
    found = run("constants", "largest_eigenvalue", "--d-model", 768, "--d-head", 64).out  # rmtbase.laws'
    assert "1516.0 ± 0.7" in found and "largest_eigenvalue_std" in found
    (ratio,) = json.loads(run("constants", "aspect", "--json").out)["constants"]
    assert ratio["name"] == "aspect_ratio"
    assert run("constants", "ASPECT").out == run("constants", "aspect_ratio").out  # one match is shown in full
    both = json.loads(run("constants", "edge", "body_tail_gap", "upper", "--json").out)["constants"]
    names = [one["name"] for one in both]
    assert "body_tail_gap" in names and len(names) == len(set(names)) > 12


def test_a_constant_is_found_by_its_identifier_and_shows_it(run):
    one = constants.half_normal_moment_shape
    ran = run("constants", one.id)
    assert ran.out == run("constants", one.name).out
    assert f"{one.id}, released 2026-11-23" in ran.out
    assert "0: a closed form gives any digits" in ran.out
    low, high = re.search(r"enclosed: \[(\S+), (\S+)\]", ran.out).groups()
    assert low[:-1] == high[:-1] == constants.as_json(one, 31)[0]["value"][: len(low) - 1]
    shown = run("constants", "zeta_prime_minus_one").out
    assert re.search(r"OEIS: A084448", shown)
    mean, shown = constants.tracy_widom_1_mean, run("constants", "tracy_widom_1_mean").out
    assert "relative 1.0e-100: a bound" in shown
    assert all(text in shown for text in (mean.digits(30), mean.definition, mean.symbol, "10.1007/BF02099545"))
    assert keys(run("cite", one.id).out) == ["weibull_1951", "rmtbase"]


def test_no_digit_is_shown_beyond_the_error(run):
    shape = ("--d-model", 768, "--d-head", 64)
    rows = (*shape, "--format", "latex-rows")
    assert r" & $1516.0 \pm 0.7$ & " in run("constants", "largest_eigenvalue_mean", *rows).out
    small = run("constants", "largest_eigenvalue_std", *rows, "--sigma", 0.02).out
    assert r" & $(7.1 \pm 0.1)\times 10^{-6}$ & " in small
    ran = run("constants", "largest_eigenvalue_mean", *shape)
    assert re.search(r"value: 1516\.0 ± 0\.7$", ran.out, re.MULTILINE)
    assert "E λ_max = 1516.0 ± 0.7" in ran.out
    assert "1516.0 ± 0.7" in run("constants", *shape).out


def test_sigmas_and_normalization_rescale(run):
    def values(*more):
        names = ("product_upper_edge", "spectral_radius", "log_determinant_mean", "normalized_participation_ratio_mean")
        ran = run("constants", *names, "--d-model", 64, "--d-head", 16, *more, "--json")
        return [float(entry["value"]) for entry in json.loads(ran.out)["constants"]]

    edge, radius, log_determinant, ratio = values()
    g = 0.5 * 3 * 8
    scaled = values("--sigma", "0.5,3", "--normalization", "none")
    assert scaled == pytest.approx([g**2 * edge, g * radius, log_determinant + 32 * np.log(g), ratio], rel=1e-14)


@pytest.mark.parametrize("names", [(), ("product_upper_edge",), tuple(entry.name for entry in ENTRIES)], ids=len)
def test_cite_prints_rmtbase_and_the_literature_of_what_is_named(names, run):
    cited = {key for name in names for key in constants.find(name).references}
    ran = run("cite", *names)
    assert (ran.status, ran.err) == (0, "")
    assert set(keys(ran.out)) == {*cited, "rmtbase"}
    assert f"note      = {{Version {rmtbase.__version__}}}" in ran.out
    lines = [one["apa"] for one in json.loads(run("cite", *names, "--json").out)]
    assert len(lines) == len(cited) + 1
    assert lines[-1].startswith("The rmtbase developers. (2026). rmtbase: exact random-matrix baselines")


def test_dimensions_of_a_chain_give_the_constants_of_its_edges(run):
    ran = run("--json", "constants", "chain_upper_edge", "--dims", "512,64,512,64", "--sigma", 0.02)
    page = json.loads(ran.out)
    (edge,) = page["constants"]
    support = laws.GaussianChain(dims=(512, 64, 512, 64), sigma=0.02).support
    assert float(edge["value"]) == pytest.approx(support[1], rel=1e-12)
    assert edge["conditions"]["shape"] == "dimensions 512 × 64 × 512 × 64"
    assert set(edge["references"]) <= set(page["references"])
    assert "chain_lower_singular_edge" in run("constants", "--dims", "3072,768").out


def test_baseline_of_a_chain_has_the_largest_eigenvalue_of_its_law(run, tmp_path):
    file = tmp_path / "chain.nc"
    ran = run("--json", "baseline", "--dims", "64,8,32,64", "--draws", 400, "-o", file)
    (case,) = json.loads(ran.out)["cases"]
    of_law = json.loads(run("--json", "law", "--dims", "64,8,32,64").out)["extreme_eigenvalues"]["largest_eigenvalue"]
    largest = case["statistics"]["largest_eigenvalue"]
    assert largest["analytic_mean"] == pytest.approx(of_law["mean"], rel=1e-9)
    assert abs(largest["mean"] - of_law["mean"]) < 5 * largest["standard_error"] + 0.05 * of_law["std"]
    refused = run("baseline", "demo", "--dims", "8,4")
    assert refused.status == 2 and "no MODEL, --d-model or --d-head" in refused.err
