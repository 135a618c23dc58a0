"""Directions by random sign flips: noise of rounded checkpoints has none, what was planted is found."""

from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from made_models import layers, model_of
from scipy.stats import binom

from rmtbase import laws
from rmtbase.errors import ParameterError
from rmtbase.models import difference, open_model
from rmtbase.nulls import Signs
from rmtbase.reasons import Reason
from rmtbase.results import open_table
from rmtbase.results.diff import diff
from rmtbase.results.signal import signal, signal_rows
from rmtbase.results.signal._learned_part import learned_part_of
from rmtbase.results.signal._sign_flips import NO_FLOOR, TIED, SignFlips, _lanczos, flippable
from rmtbase.results.signal.rows import discoveries, signal_groups, signal_headline
from rmtbase.results.signal.schema import NEED_A_LAW
from rmtbase.tables import export, write_table

LEVEL, SIGMA = 0.05, 0.02
FLIPS = SignFlips(LEVEL, 199)


def bf16(weights):
    return weights.astype(np.float32).astype(ml_dtypes.bfloat16)


def difference_of_rounded(rng, shape, change):
    """The difference of stored weights and what noise makes of them, rounded again."""
    before = bf16(SIGMA * rng.standard_normal(shape)).astype(float)
    return bf16(before + change(shape)).astype(float) - before


def planted(rng, shape, rank, strength):
    """Directions of one strength."""
    left, right = (np.linalg.qr(rng.standard_normal((n, rank)))[0] for n in shape)
    return strength * left @ right.T


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [1e-5, 1e-4])
def test_a_change_of_noise_of_rounded_weights_has_directions_as_often_as_the_level_says(size):
    # Of 120 more than 15 with probability 5e-4 at a level of 5 %; by the law of normal entries nearly all have at 1e-5.
    rng, shape, n = np.random.default_rng(1), (24, 40), 120
    drawn = [difference_of_rounded(rng, shape, lambda own: size * rng.standard_normal(own)) for _ in range(n)]
    counts = [FLIPS.count(one) for one in drawn]
    assert not any(one.reason for one in counts)
    assert sum(one.number > 0 for one in counts) <= binom.isf(1e-3, n, LEVEL)
    if size == 1e-5:
        values = np.linalg.svd(drawn, compute_uv=False) ** 2
        normal = laws.null("stable_rank", dims=shape).cdf(values.sum(axis=1) / values[:, 0])
        assert (normal <= LEVEL).mean() > 0.5


def test_the_p_value_of_no_direction_is_uniform_for_entries_of_any_symmetric_law():
    # p is at most u with probability u: 4 standard errors at three levels, one seed in 10 000.
    rng, n = np.random.default_rng(2), 150
    gains = np.exp(0.5 * rng.standard_normal((16, 1)))
    p = np.array([FLIPS.count(gains * rng.standard_t(3, (16, 24))).p_value[0] for _ in range(n)])
    for level in (0.05, 0.2, 0.5):
        assert (p <= level).mean() < level + 4.0 * np.sqrt(level * (1 - level) / n)
    assert (p <= 0.5).mean() > 0.5 - 4.0 * np.sqrt(0.25 / n) - 0.05


@pytest.mark.parametrize("product", [False, True])
def test_planted_directions_are_counted(product):
    rng, shape, found = np.random.default_rng(3), (24, 48), []
    for _ in range(10):
        query, key = rng.standard_normal(shape) + planted(rng, shape, 2, 25.0), rng.standard_normal(shape)
        found.append(FLIPS.count(*((query, key) if product else (query,))).number)
    assert np.mean(np.array(found) == 2) > 0.6
    assert (np.array(found) > 2).sum() <= 3  # with probability 0.999, at a level of 5 %


def test_four_directions_of_a_rounded_update_are_found():
    rng, shape = np.random.default_rng(4), (48, 96)
    strength = 3.0 * 1e-4 * np.prod(shape) ** 0.25

    def change(own):
        return 1e-4 * rng.standard_normal(own) + planted(rng, own, 4, strength)

    found = [FLIPS.count(difference_of_rounded(rng, shape, change)).number for _ in range(6)]
    assert found.count(4.0) >= 5


def test_too_few_elements_or_one_too_large_or_a_short_spectrum_cannot_be_counted():
    rng = np.random.default_rng(5)
    few = np.zeros((32, 48))
    few.flat[rng.choice(few.size, 30, replace=False)] = rng.standard_normal(30)
    one = rng.standard_normal((32, 48))
    one[3, 5] = 1e5
    for matrix in (few, one, one.astype(ml_dtypes.bfloat16), 1e-200 * few, few[:, :1] + 1.0):
        assert np.isnan(FLIPS.count(matrix).number)
    assert FLIPS.count(few).reason == FLIPS.count(one).reason == TIED
    assert FLIPS.count(np.ones((1, 9))).reason == Reason("single_value")
    assert FLIPS.count(np.zeros((9, 9))).reason == Reason("all_zeros")
    rng = np.random.default_rng(6)
    noise = FLIPS.count(rng.standard_normal((4, 60)))
    assert noise.number == 0 and noise.p_value[0] > LEVEL
    learned = FLIPS.count(rng.standard_normal((4, 60)) + planted(rng, (4, 60), 1, 40.0))
    assert learned.p_value[0] == 1 / 200 and learned.reason == NO_FLOOR and np.isnan(learned.number)


def test_flips_are_those_of_their_own_spectrum_whatever_the_threads_and_the_order_of_draws():
    rng = np.random.default_rng(7)
    for shape in ((20, 30), (300, 320)):  # all eigenvalues, and Lanczos' iteration
        matrix = rng.standard_normal(shape)
        for k in (0, 3):
            share = flippable(matrix).flipped(k, 1)
            assert 0.0 < share(0) < 0.2
            assert share(0) == flippable(matrix.T).flipped(k, 1)(0)
            assert share(0) != share(1) != flippable(matrix).flipped(k, 2)(1)
    gram = rng.standard_normal((300, 500))
    gram = (gram @ gram.T).astype(np.float32)
    assert _lanczos(gram.dot, 300) == pytest.approx(np.linalg.eigvalsh(gram)[-1], rel=1e-5)
    matrix = np.random.default_rng(12).standard_normal((64, 2100))
    with ThreadPoolExecutor(3) as pool:
        spread = FLIPS.count(matrix, map_draws=pool.map)
    np.testing.assert_array_equal(spread.p_value, FLIPS.count(matrix).p_value)


def test_few_flips_are_refused_and_seeds_are_all_that_changes_a_count():
    with pytest.raises(ParameterError, match="at least 19"):
        signal(open_model("demo", "step-0", proof=False), Signs(draws=18))
    with pytest.raises(ParameterError, match="none with the null of sign flips"):
        signal(open_model("demo", "step-0", proof=False), Signs(initialization="uniform"))
    matrix = np.random.default_rng(8).standard_normal((16, 16))
    p = {seed: SignFlips(LEVEL, 199, seed).count(matrix).p_value[0] for seed in (0, 0, 1)}
    assert p[0] == FLIPS.count(matrix.copy(order="F")).p_value[0] != p[1]


@pytest.fixture(scope="module")
def rounded():
    """A model in bfloat16, and what noise of 1e-5 makes of it."""
    rng = np.random.default_rng(9)
    sizes = {"heads": 4, "key_heads": 2, "d_head": 12, "d_model": 48}

    def stored(seed, change):
        draw = np.random.default_rng(seed)
        return model_of(
            rng, layers(2), **sizes, draw=lambda _, shape: bf16(
                bf16(SIGMA * draw.standard_normal(shape)).astype(float) + change * rng.standard_normal(shape)
            )
        )  # fmt: skip

    return stored(10, 0.0), stored(10, 1e-5)


@pytest.mark.exhaustive
def test_the_rounding_of_a_difference_is_not_reported_as_learning(rounded, tmp_path):
    before, after = rounded
    tree = signal(difference(after, before))
    assert tree.attrs["null"] == "signs" and "null = signs" in tree.attrs["notes"]
    rows = signal_rows(tree)
    assert all(row.testable for row in rows)
    assert discoveries(rows, LEVEL) == 0
    assert signal_headline(rows, LEVEL).startswith(f"0 of {len(rows)} spectra have a learned direction")
    # Of 64 heads' and matrices' spectra, which share factors, more than 10 with probability 1e-3.
    assert sum(bool(row.directions) for row in rows) <= 10
    assert len(signal_groups(tree)) == 2 * 2 * 2
    for name in NEED_A_LAW:
        assert tree["matrices"][name].isnull().all()
    assert tree["matrices"]["noise_scale"].notnull().all()
    assert open_table(write_table(tree, tmp_path / "signal.nc"), "signal").identical(tree)
    assert "noise scale" in export(tree, "latex", group="matrices").decode()
    changed = diff(before, after)
    assert "sign flips" in changed.attrs["notes"]
    assert (changed["matrices"]["n_directions"] > 0).mean() < 0.5
    assert changed["matrices"]["n_directions"].notnull().all()


def test_heads_and_matrices_are_counted_as_they_are_by_themselves():
    rng = np.random.default_rng(11)
    query = rng.standard_normal((2 * 12, 48)) + planted(rng, (24, 48), 2, 40.0)
    model = model_of(rng, layers(1), heads=2, key_heads=1, d_head=12, d_model=48, t0_query=query)
    tree, head = signal(model, "signs", circuits=("qk",)), 1
    factors = model.queries(0)[head], model.keys(0)[0]
    alone = FLIPS.count(*factors)
    of = tree["circuits/qk/heads"].to_dataset().isel(layer=0, head=head)
    assert of["n_directions"] == alone.number > 0
    assert of["next_p_value"] == alone.p_value[-1] > LEVEL
    part = learned_part_of(model, 0, "qk", head, null="signs")
    assert part.values.size == alone.number
    np.testing.assert_allclose(of["shrunken"][: part.values.size], part.values, rtol=1e-6)
    matrix = tree["matrices"].to_dataset().isel(layer=0).sel(component="attention_value")
    assert matrix["first_p_value"] == FLIPS.count(model.matrix(0, "attention_value")).p_value[0]
    group = tree["circuits/qk/groups"].to_dataset().isel(layer=0, key_head=0)
    assert group["n_directions"] > 0


@pytest.mark.parametrize("way", ["nearest", "towards zero", "down"])
def test_rounding_to_one_side_has_directions_that_cannot_be_told(way):
    rng, sizes = np.random.default_rng(13), {"heads": 2, "d_head": 16, "d_model": 48}

    def stored(weights):
        if way == "nearest":
            return bf16(weights).astype(np.float64)
        bits = weights.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        chopped = bits.view(np.float32).astype(np.float64)
        unit = np.ldexp(1.0, np.frexp(chopped)[1] - 8)
        return np.where(chopped > weights, chopped - unit, chopped) if way == "down" else chopped

    before = {f"t0_{part}": stored(SIGMA * rng.standard_normal(shape)) for part, shape in (
        ("query", (32, 48)), ("key", (32, 48)), ("value", (32, 48)), ("output", (48, 32)))}  # fmt: skip
    after = {name: stored(one + 1e-6 * rng.standard_normal(one.shape)) for name, one in before.items()}
    models = [
        model_of(rng, layers(1), **sizes, **{name: bf16(one) for name, one in each.items()}) for each in (before, after)
    ]
    rows = signal_rows(signal(difference(models[1], models[0])))
    told = [row.reason == Reason("one_way_rounding") for row in rows]
    assert all(told) if way != "nearest" else not any(told)
    reasons = diff(*models)["matrices"]["reason"].values
    assert (reasons == "one_way_rounding").all() == (way != "nearest")
