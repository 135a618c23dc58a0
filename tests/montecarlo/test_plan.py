"""A plan says what is drawn: read from TOML or made in Python, checked, and known by a hash of just that."""

import json
import pickle
import re

import numpy as np
import pytest

import rmtbase
from rmtbase.errors import ParameterError, PlanError
from rmtbase.montecarlo import make_plan, read_plan, run_in_memory

TWO_CASES = [{"d_model": 32, "d_head": 4}, {"d_model": 32, "d_head": 8}]
WHOLE = """
name = "small"
title = "A small table"
description = "For a test."
ensemble = "low_rank_product"
draws = 500
seed = 7
measure = "spectrum"
normalization = "none"
sigma = [1.0, 0.02]
precision = "float32"
keep_sample = false
chunk = 200
[[case]]
d_model = 32
d_head = [4, 8]
[[case]]
d_model = 64
d_head = 8
draws = 300
"""


@pytest.fixture
def write(tmp_path):
    def write_plan(text):
        path = tmp_path / "plan.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_plan


def refused(path, *words):
    with pytest.raises(PlanError) as caught:
        read_plan(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    for word in words:
        assert word in message


def test_every_key_of_a_file_is_read(write):
    plan = read_plan(write(WHOLE))
    assert (plan.name, plan.title, plan.description) == ("small", "A small table", "For a test.")
    assert (plan.ensemble, plan.seed, plan.measure) == ("low_rank_product", 7, "spectrum")
    assert (plan.normalization, plan.precision, plan.keep_sample) == ("none", "float32", False)
    assert plan.sigmas == ((1.0, 1.0), (0.02, 0.02))
    assert plan.draws == (500, 500, 300)
    assert [case.chunk for case in plan.cases] == [200, 200, 200]
    assert [case.parameters for case in plan.cases] == [*TWO_CASES, {"d_model": 64, "d_head": 8}]


def test_files_leave_out_defaults_and_lists_stand_for_all_combinations(write):
    plan = read_plan(write('ensemble = "low_rank_product"\n[[case]]\nd_model = 32\nd_head = 4\n'))
    assert plan == make_plan("low_rank_product", TWO_CASES[:1], name="plan")
    assert (plan.draws, plan.seed, plan.normalization) == ((10_000,), 0, "sqrt_d")
    plan = read_plan(write('ensemble = "low_rank_product"\n[[case]]\nd_model = [32, 64]\nd_head = [4, 8]\n'))
    assert [case.ensemble.dims[:2] for case in plan.cases] == [(32, 4), (32, 8), (64, 4), (64, 8)]
    one = read_plan(write('ensemble = "gaussian_chain"\n[[case]]\ndims = [8, 4, 6]\n'))
    assert [case.parameters["dims"] for case in one.cases] == [[8, 4, 6]]
    two = read_plan(write('ensemble = "gaussian_chain"\n[[case]]\ndims = [[8, 4, 6], [6, 6]]\n'))
    assert [case.parameters["dims"] for case in two.cases] == [[8, 4, 6], [6, 6]]
    plan = read_plan(write('ensemble = "residual_path"\n[[case]]\nd_model = 8\ndepth = 2\nsigma = [0.5, 1.0]\n'))
    assert [case.ensemble.sigma for case in plan.cases] == [0.5, 1.0]


def test_a_case_that_comes_twice_counts_once_and_a_sample_needs_equal_draws():
    assert len(make_plan("low_rank_product", [*TWO_CASES, *TWO_CASES]).cases) == 2
    with pytest.raises(ParameterError, match="low_rank_product 32x4, which comes twice"):
        make_plan("low_rank_product", [TWO_CASES[0], TWO_CASES[0]], [10, 20], keep_sample=False)
    with pytest.raises(ParameterError, match="the same for every case"):
        make_plan("low_rank_product", TWO_CASES, [10, 20])
    assert make_plan("low_rank_product", TWO_CASES, [10, 20], keep_sample=False).draws == (10, 20)


HEAD = 'ensemble = "low_rank_product"\n'
BAD = [
    ("ensemble = ", "is no TOML"), ("[[case]]\nd_model = 8\n", "ensemble = None", "the name of an ensemble"),
    (HEAD, "case = None", "[[case]]"), (HEAD + "case = []\n", "case = []", "[[case]]"),
    (HEAD + "case = [3]\n", "case = 3", "[[case]]"), (HEAD + "[case]\nd_model = 8\n", "[[case]]"),
    ("ensemble = 3\n[[case]]\nd_model = 8\n", "ensemble = 3", "the name of an ensemble"),
    ('ensemble = "gaussian"\n[[case]]\nd_model = 8\n', "ensemble", "'gaussian'", "low_rank_product"),
]  # fmt: skip
BAD_OPTIONS = [
    ("drwas = 10", "unknown key drwas", "draws"), ("draws = 1", "draws = 1", "at least 2"),
    ("draws = 2.5", "draws = 2.5", "a positive integer"), ("draws = true", "draws = True", "a positive integer"),
    ('draws = "many"', "draws = 'many'", "a positive integer"), ("draws = [10, 20]", "draws"),
    ("draws = 4294967295", "draws = 4294967295", "at most"), ("seed = -1", "seed = -1", "an integer from 0"),
    ("seed = 1.5", "seed = 1.5", "an integer from 0"), ("measure = 1", "measure = 1", "'spectrum' or 'elements'"),
    ('measure = "norm"', "measure = 'norm'", "'spectrum' or 'elements'"),
    ('normalization = "sqrt"', "normalization = 'sqrt'"), ("normalization = []", "normalization = []"),
    ("sigma = 0", "sigma = 0", "a finite positive number"), ("sigma = nan", "sigma = nan", "a finite positive number"),
    ('sigma = "1"', "sigma = '1'", "a finite positive number"), ("sigma = []", "at least one value"),
    ('precision = "float16"', "precision = 'float16'", "'float64' or 'float32'"),
    ('keep_sample = "no"', "keep_sample = 'no'", "true or false"),
    ("keep_sample = 1", "keep_sample = 1", "true or false"), ("chunk = 0", "chunk = 0", "a positive integer"),
    ("chunk = 1.5", "chunk = 1.5", "a positive integer"),
    ('measure = "elements"\nbins = 0', "bins = 0", "a positive integer"),
    ('measure = "elements"\nrange = [1, 0]', "range = [1, 0]", "low < high"), ("name = 3", "name = 3", "text"),
    ("name = 'a/b'", "name = 'a/b'", "file"), ("name = ''", "name = ''", "file"), ("title = 3", "title = 3", "text"),
    ("description = [1]", "description = [1]", "text"),
]  # fmt: skip
BAD_CASES = [
    ("", "d_head"), ("d_head = 4\nwidth = 3", "width"), ("d_head = 64", "d_head = 64", "at most d_model = 32"),
    ("d_head = [4, 64]", "d_head = 64", "at most d_model = 32"),
    ("d_head = 4.0", "d_head = 4.0", "a positive integer"), ("d_head = true", "d_head = True", "a positive integer"),
    ("d_head = []", "d_head = []"), ("d_head = 4\ndraws = 0", "draws = 0", "a positive integer"),
    ("d_head = 4\ndraws = [10]", "draws = [10]", "a positive integer"),
]  # fmt: skip
BAD += [(f"{HEAD}{lines}\n[[case]]\nd_model = 32\nd_head = 4\n", *words) for lines, *words in BAD_OPTIONS]
BAD += [(f"{HEAD}[[case]]\nd_model = 32\n{lines}\n", *words) for lines, *words in BAD_CASES]


@pytest.mark.parametrize("bad", BAD)
def test_file_that_is_no_plan_and_bad_values_are_named_with_the_file(bad, write):
    text, *words = bad
    refused(write(text), *words)


def test_file_that_cannot_be_read_is_named(tmp_path):
    refused(tmp_path / "missing.toml", "cannot be read", "No such file")
    refused(tmp_path, "cannot be read: it is a folder; expected a regular file")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    refused(tmp_path / "bytes.toml", "is no TOML")


@pytest.mark.parametrize("sigma", [0, -1.0, "1", [], (1, 2, 3), float("nan"), 1e-40])
def test_options_and_sigmas_of_cases_that_do_not_fit_are_refused(sigma):
    matrix = ("gaussian_matrix", [{"n_rows": 4, "n_columns": 3}])
    own_sigma = ("low_rank_product", [TWO_CASES[0] | {"sigma": 0.5}])
    for arguments, options, words in (
        (("low_rank_product", [TWO_CASES[0] | {"sigma": sigma}]), {}, "sigma"),
        (matrix, {"normalization": "sqrt_d"}, "normalization"),
        (matrix, {"sigma": 0.02}, "sigma"),
        (("low_rank_product", TWO_CASES), {"bins": 60}, r"bins = 60: expected 120 .* unless elements are measured"),
        (own_sigma, {"measure": "elements"}, r"sigma = .*1, except for spectra of low_rank_product"),
    ):
        with pytest.raises(ParameterError, match=words):
            make_plan(*arguments, **options)


OWN_SIGMAS = """
ensemble = "low_rank_product"
draws = 100
sigma = 3.0
[[case]]
d_model = 32
d_head = [4, 8]
sigma = [1.0, [0.5, 2.0]]
[[case]]
d_model = 32
d_head = 8
sigma = 0.02
[[case]]
d_model = 64
d_head = 4
"""


def test_a_case_may_have_sigmas_of_its_own_and_each_shape_is_drawn_once(write):
    plan = read_plan(write(OWN_SIGMAS))
    assert [case.ensemble.dims[:2] for case in plan.cases] == [(32, 4), (32, 8), (64, 4)]
    assert [case.sigmas for case in plan.cases] == [
        ((1.0, 1.0), (0.5, 2.0)),
        ((1.0, 1.0), (0.5, 2.0), (0.02, 0.02)),
        ((3.0, 3.0),),
    ]
    assert plan.draws == (100, 100, 100)
    table = run_in_memory(plan)
    rows = zip(*(table[name].values.tolist() for name in ("d_model", "d_head", "sigma_q", "sigma_k")), strict=True)
    assert list(rows) == [
        (32, 4, 1.0, 1.0), (32, 4, 0.5, 2.0),
        (32, 8, 1.0, 1.0), (32, 8, 0.5, 2.0), (32, 8, 0.02, 0.02),
        (64, 4, 3.0, 3.0),
    ]  # fmt: skip
    alone = rmtbase.baseline(32, 8, 0.02, draws=100)
    row = table.isel(case=[4], index=slice(8)).drop_vars("bin")  # numbers there, λ in a table of one shape
    assert row.drop_attrs().identical(alone.drop_vars("bin").drop_attrs())


def test_sigma_of_every_case_is_the_plans():
    one = make_plan("low_rank_product", [case | {"sigma": 0.02} for case in TWO_CASES])
    assert one.hash == make_plan("low_rank_product", TWO_CASES, sigma=0.02).hash
    two = make_plan("low_rank_product", [TWO_CASES[0] | {"sigma": 0.02}, TWO_CASES[1]])
    assert two.sigmas == ((0.02, 0.02), (1.0, 1.0))
    assert len({one.hash, two.hash, make_plan("low_rank_product", TWO_CASES, sigma=[0.02, 1.0]).hash}) == 3
    assert json.loads(json.dumps(two.record())) == two.record()


def usual(**changes):
    parts = {"ensemble": "low_rank_product", "cases": TWO_CASES, "draws": 500, "seed": 7, "chunk": 200} | changes
    return make_plan(parts.pop("ensemble"), parts.pop("cases"), parts.pop("draws"), parts.pop("seed"), **parts)


@pytest.mark.parametrize("same", [
    {"name": "other"}, {"title": "Other words"}, {"description": "Other words"}, {"draws": np.int64(500)},
    {"draws": [500, 500]}, {"seed": np.uint8(7)}, {"sigma": np.float64(1.0)}, {"sigma": (1, 1)},
    {"normalization": "sqrt_d"}, {"chunk": np.int32(200)},
    {"cases": [{"d_head": np.int64(4), "d_model": np.int32(32)}, {"d_head": 8, "d_model": 32}]},
    {"cases": [*TWO_CASES, TWO_CASES[0]]}, {"keep_sample": np.True_},
], ids=str)  # fmt: skip
def test_hash_does_not_depend_on_words_key_order_or_kinds_of_number(same):
    assert usual(**same).hash == usual().hash


@pytest.mark.parametrize("other", [
    {"ensemble": "low_rank_product", "cases": TWO_CASES[:1]}, {"cases": TWO_CASES[::-1]},
    {"cases": [{**case, "method": "dense"} for case in TWO_CASES]}, {"draws": 501}, {"seed": 8}, {"sigma": 0.5},
    {"sigma": (1.0, 0.5)}, {"normalization": "none"}, {"precision": "float32"}, {"keep_sample": False},
    {"chunk": 100}, {"measure": "elements", "cases": [{**case, "method": "dense"} for case in TWO_CASES]},
    {"measure": "elements", "bins": 60}, {"measure": "elements", "range": (-1.0, 1.0)},
], ids=str)  # fmt: skip
def test_hash_depends_on_all_that_determines_the_numbers(other):
    assert usual(**other).hash != usual().hash


def test_records_pickles_chunks_and_hashes_make_the_same_plan_again():
    # A store is known by it: where this changes, no unfinished run can go on.
    assert re.fullmatch("[0-9a-f]{64}", usual().hash)
    assert usual().hash == "78ba1379d2bdbc54eeda2ea3d838f937c603d9babfc206aca5f736a0dd80303f"
    plan = usual(sigma=[1.0, (0.5, 2.0)], keep_sample=False)
    record = json.loads(json.dumps(plan.record()))
    assert record == plan.record()
    same = ("ensemble", "cases", "draws", "seed", "measure", "normalization", "precision", "keep_sample")
    sigma = [tuple(pair) for pair in record["sigmas"]]
    again = make_plan(**{name: record[name] for name in same}, sigma=sigma, chunk=record["chunk"][0])
    assert again.hash == plan.hash
    assert again == plan
    plan = usual(draws=10**7, keep_sample=False)
    fresh = len(pickle.dumps(plan))
    assert len(plan.chunks) == 100_000
    assert plan.hash
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    assert again.hash == plan.hash
    assert len(pickle.dumps(plan)) == fresh < 1000
    plan = usual(draws=[500, 130], keep_sample=False)
    assert [tuple(chunk) for chunk in plan.chunks] == [(0, 0, 200), (0, 200, 200), (0, 400, 100), (1, 0, 130)]
    assert plan.total_draws == 630


@pytest.mark.parametrize(("d_head", "least", "most"), [(1, 2**10, 2**16), (64, 2**10, 2**16), (4096, 1, 8)])
def test_chunks_take_a_second_or_two_whatever_the_matrix(d_head, least, most):
    plan = make_plan("low_rank_product", [{"d_model": 8192, "d_head": d_head}], 10**6, keep_sample=False)
    assert least <= plan.cases[0].chunk <= most
