"""Why heads leave the null: each test at its level on random heads, and each kind of head told for what it is."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import rmtbase
from rmtbase.errors import ParameterError
from rmtbase.scoring import TESTS, summarize_why, verdict

sys.path.insert(0, str(Path(__file__).parents[1] / "statistical"))
from harness import uniform

D_MODEL, D_HEAD = 64, 16
DRAWS = 2000


def heads(seed, *shape):
    return np.random.default_rng(seed).standard_normal((2, *shape, D_HEAD, D_MODEL))


def why(w_q, w_k, tests, **options):
    return rmtbase.score_heads(w_q, w_k, why=tests, draws=DRAWS, **options)["why"].to_dataset()


@pytest.fixture(scope="module")
def random_heads():
    """60 layers of two groups: two query heads read each key head."""
    rng = np.random.default_rng(41)
    return why(
        rng.standard_normal((60, 4, D_HEAD, D_MODEL)),
        rng.standard_normal((60, 2, D_HEAD, D_MODEL)),
        ("query", "key", "angles", "joint", "group"),
    )


@pytest.mark.parametrize(("test", "step"), [("query", 1), ("key", 2), ("angles", 2), ("joint", 2), ("group", 2)])
def test_p_values_of_random_heads_are_uniform(random_heads, test, step):
    """Of one head for each key head. A correct null fails once in 10⁶ runs."""
    p_value = random_heads["p_value"].sel(test=test).values[:, ::step]
    assert uniform(p_value, DRAWS) > 1e-6


def test_one_factor_is_found_in_its_own_spectrum():
    w_q, w_k = heads(42, 6)
    u, v = np.linalg.qr(np.random.default_rng(1).standard_normal((D_HEAD, 1)))[0][:, 0], np.eye(D_MODEL)[3]
    group = why(w_q + 12.0 * np.outer(u, v), w_k, ("gaussian", "query", "key", "haar", "joint"))
    left = (group["q_value"] < 0.05).sum(["layer", "head"])
    assert left.sel(test="query") == 6
    assert left.sel(test="key") == 0
    assert left.sel(test="joint") == 6
    assert left.sel(test="haar") <= 1


def test_subspaces_in_common_are_found_by_angles_alone():
    """W_K in half of the directions that W_Q reads, both Gaussian in these: spectra of product and factors are null."""
    rng = np.random.default_rng(43)
    frame = np.linalg.qr(rng.standard_normal((4, D_MODEL, D_MODEL)))[0]
    shared = np.linalg.qr(rng.standard_normal((4, D_MODEL, D_HEAD)))[0]
    shared[..., : D_HEAD // 2] = frame[..., : D_HEAD // 2]
    shared = np.linalg.qr(shared)[0]

    def factor(basis):
        lengths = np.linalg.qr(rng.standard_normal((4, D_MODEL, D_HEAD)))[1]
        return np.swapaxes(basis @ lengths, -1, -2)

    group = why(factor(frame[..., :D_HEAD]), factor(shared), ("query", "key", "angles"))
    left = (group["q_value"] < 0.05).sum(["layer", "head"])
    assert left.sel(test="angles") == 4
    assert left.sel(test=["query", "key"]).sum() == 0


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ({"gaussian": 0, "kurtosis": 0, "query": 0, "haar": 0}, "like a head that has learned nothing"),
        ({"gaussian": 1, "kurtosis": 0, "query": 1, "haar": 0}, "its entries are not normal, no more"),
        ({"gaussian": 1, "kurtosis": 1, "permutation": 0, "haar": 0}, "its entries are not normal, no more"),
        ({"gaussian": 1, "kurtosis": 1, "gains": 0, "haar": 0}, "its rows and columns have gains, no more"),
        (
            {"gaussian": 1, "kurtosis": 1, "query": 1, "key": 0, "haar": 0},
            "W_Q has learned directions; queries and keys are not aligned",
        ),
        (
            {"permutation": 1, "query": 1, "key": 1, "angles": 1, "haar": 1},
            "W_Q and W_K have learned directions; queries and keys are aligned; what they read is related",
        ),
        ({"gaussian": 1, "kurtosis": 1, "query": 0, "key": 0}, "it leaves the null, by none of its parts alone"),
        ({"gaussian": 1, "query": 1, "haar": np.nan}, "W_Q has learned directions"),
        ({"gaussian": np.nan}, ""),
    ],
)
def test_verdicts(left, words):
    assert verdict({name: float(each) for name, each in left.items()}) == words


def test_demo_model_is_told_at_its_start_and_at_its_end(tmp_path):
    """Haar is what tells alignment: few heads at the end, and none at the start."""
    tests = ("gaussian", "query", "key", "angles", "joint", "haar")
    options = {"matrices": "none", "proof": False, "baseline": "analytic", "draws": 1000}
    start = summarize_why(rmtbase.score("demo", revision="step-0", why=("gaussian", "query", "joint"), **options))
    assert list(start.verdicts) == ["like a head that has learned nothing"]
    tree = rmtbase.score("demo", why=tests, **options)
    rmtbase.tables.write_table(tree, tmp_path / "scores.nc")
    end = summarize_why(rmtbase.open_scores(tmp_path / "scores.nc"))
    assert end.left["query"] == end.left["key"] == end.n_heads == 32
    assert 5 <= end.left["haar"] <= 20
    assert sum(map(len, end.verdicts.values())) == 32
    page = rmtbase.report.render(tree, pictures=False)
    assert page.index("queries and keys are aligned") < page.index("was compared with")
    frame = rmtbase.tables.to_pandas(tree, "why")
    assert len(frame) == 32 * len(tests)
    assert {"p_value", "q_value", "yekutieli_q_value", "holm_p_value", "verdict"} <= set(frame)


def test_adjusted_p_values_are_in_their_order(random_heads):
    p, q, by, holm = (random_heads[name].values for name in ("p_value", "q_value", "yekutieli_q_value", "holm_p_value"))
    assert (p <= q).all()
    assert (q <= by).all()
    assert (p <= holm).all()


def test_what_so_few_draws_cannot_tell_is_not_denied():
    w_q, w_k = heads(44, 30)
    w_k[0] = w_q[0]
    summary = summarize_why(rmtbase.score_heads(w_q, w_k, why=("haar",), draws=100))
    assert "layer 0 head 0" in summary.verdicts["not told by so few draws"]
    (_, (left,), words), *_ = summary.rows
    assert np.isnan(left)
    assert words == ""


def test_tests_that_a_model_does_not_allow_are_noted():
    tree = rmtbase.score_heads(*heads(45, 3), why=("group", "query"), draws=100)
    assert tree["why"]["test"].values.tolist() == ["query"]
    assert any("every head has a key head of its own" in note for note in json.loads(tree.attrs["notes"]))


class Told(list):
    """A progress that has no hash."""

    def bar(self, label, total):
        return lambda count: None

    def note(self, line):
        self.append(line)


def test_whom_the_draws_are_told_does_not_matter():
    first, second = (why(*heads(47, 2), ("query",), progress=Told()) for _ in range(2))
    assert (first["p_value"] == second["p_value"]).all()


def test_unknown_tests_are_refused_by_name():
    with pytest.raises(ParameterError, match="why = 'alignment'"):
        rmtbase.score_heads(*heads(46, 2), why=("alignment",))
    assert set(TESTS) >= {"gaussian", "kurtosis", "gains", "permutation", "query", "key", "angles", "haar", "joint"}
