"""Do two models, or two recipes, differ? Are two models of common origin? Levels and power of the tests."""

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from matrices_group import compare_groups
from scipy import stats

from exhaustive import mostly_exhaustive
from rmtbase.results.comparison import _two_models
from rmtbase.statistics import SPECTRAL_STATISTICS

NAMES = ["trace", "largest_eigenvalue", "spectral_entropy", "participation_ratio"]
TRACE, *_ = PLACES = [list(SPECTRAL_STATISTICS).index(name) for name in NAMES]
D_HEAD, LAYERS, HEADS = 6, 2, 4


def compare_two(*models, **options):
    return SimpleNamespace(**_two_models.compare_two(*models, **options))


def common_origin(*models, **options):
    return SimpleNamespace(**_two_models.common_origin(*models, **options))


def drawn(rng, n_key_heads=HEADS, n_heads=HEADS, shift=0.0, layers=LAYERS, eigenvalue=None, sigma=None):
    """Scores of a model whose statistics are correlated normal numbers, as untrained heads' are."""
    shape = (layers, n_heads)
    common = rng.standard_normal((*shape, 1))
    z = shift + (common + rng.standard_normal((*shape, len(NAMES)))) / np.sqrt(2)
    value = rng.chisquare(30, (*shape, D_HEAD)) if eigenvalue is None else eigenvalue
    scale = np.exp(0.1 * rng.standard_normal((2, *shape))) if sigma is None else sigma
    dims = ("layer", "head")
    observed = np.exp(z)  # so that the distance of a statistic on the log scale is that of z as well
    heads = xr.Dataset(
        {
            **{name: ((*dims, "statistic"), values) for name, values in (("observed", observed), ("z_score", z))},
            **{name: ((*dims, "statistic"), np.full(z.shape, np.nan)) for name in ("null_mean", "null_std")},
            "omnibus_q_value": (dims, np.ones(shape)),
            "key_head": (dims, np.tile(np.arange(n_heads) // (n_heads // n_key_heads), (layers, 1))),
            **{name: (dims, one) for name, one in zip(("sigma_q", "sigma_k"), scale, strict=True)},
            "eigenvalue": ((*dims, "index"), -np.sort(-value, axis=-1)),
        },
        {"layer": np.arange(layers), "head": np.arange(n_heads), "statistic": NAMES},
    )
    tree = xr.DataTree.from_dict({"/heads": heads, "/null": xr.Dataset({"edge_quantile_lower": 0.0})})
    facts = {"d_model": 8, "d_head": D_HEAD, "n_heads": n_heads, "n_key_heads": n_key_heads}
    tree.attrs = {"model": "drawn", "null": "gaussian", "provenance": "{}", "family": "", "attention": "MHA", **facts}
    return tree


def levels(p_values):
    """The shares at most 5 % and 20 %, and three of their standard errors above."""
    p = np.array(p_values)
    return [(np.mean(p <= level), level + 3 * np.sqrt(level * (1 - level) / p.size)) for level in (0.05, 0.2)]


@pytest.mark.parametrize(
    "keys",
    mostly_exhaustive(zip([(HEADS, HEADS), (2, 2), (HEADS, 2)], strict=True), always=1),
    ids=["paired", "shared keys", "pooled"],
)
def test_two_untrained_models_differ_no_more_often_than_the_level(keys):
    rng = np.random.default_rng(sum(keys))
    found = [compare_two(*(drawn(rng, n) for n in keys), permutations=99) for _ in range(50)]
    assert found[0].paired == (keys[0] == keys[1])
    assert found[0].n_units == (LAYERS * keys[0] if found[0].paired else LAYERS * sum(keys))
    for p in ([one.omnibus_p_value for one in found], [one.p_value[TRACE] for one in found]):
        for share, most in levels(p):
            assert share <= most


def test_models_that_differ_are_told_apart_in_every_statistic_whichever_is_called_the_first():
    rng = np.random.default_rng(1)
    first, second = drawn(rng, layers=6), drawn(rng, layers=6, shift=2.0)
    found = compare_two(first, second)
    assert sorted(np.flatnonzero(np.isfinite(found.p_value))) == sorted(PLACES)
    assert found.omnibus_p_value < 1e-3 and (found.adjusted_p_value[PLACES] < 0.01).all()
    assert found.difference[PLACES] == pytest.approx(np.full(4, 2.0), abs=0.8)
    assert (found.p_value[PLACES] <= found.adjusted_p_value[PLACES]).all()
    rng = np.random.default_rng(13)
    for pair in ([drawn(rng, layers=3), drawn(rng, shift=0.3)], [drawn(rng), drawn(rng, shift=0.3)]):
        found, swapped = (compare_two(*one, permutations=99) for one in (pair, pair[::-1]))
        np.testing.assert_array_equal(found.p_value, swapped.p_value)
        np.testing.assert_array_equal(found.adjusted_p_value, swapped.adjusted_p_value)
        np.testing.assert_allclose(found.difference, -swapped.difference)
        origins = [common_origin(*one, permutations=99) for one in (pair, pair[::-1])]
        np.testing.assert_array_equal(*([one.alignment, one.alignment_p_value] for one in origins))


@pytest.mark.parametrize(("layers", "shift", "seed"), [((5, 5), 0.4, 2), ((3, 2), 0.8, 3)], ids=["paired", "pooled"])
def test_the_paired_test_is_wilcoxons_and_the_pooled_one_mann_whitneys(layers, shift, seed):
    rng = np.random.default_rng(seed)
    first, second = drawn(rng, layers=layers[0]), drawn(rng, layers=layers[1], shift=shift)
    found = compare_two(first, second, permutations=9_999)
    assert found.paired == (layers[0] == layers[1])
    x, y = (one["heads"]["z_score"].sel(statistic="trace").values.ravel() for one in (first, second))
    exact = (stats.wilcoxon if found.paired else stats.mannwhitneyu)(y, x, method="exact").pvalue
    assert found.p_value[TRACE] == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 9_999) + 2e-4)
    if found.paired:
        assert found.difference[TRACE] == pytest.approx(np.median(y - x))
    itself = compare_two(first, first, permutations=99)
    assert itself.omnibus_p_value == 1.0 and not itself.difference[PLACES].any()


def test_what_is_not_scored_is_left_out():
    rng = np.random.default_rng(5)
    first, second = drawn(rng), drawn(rng)
    heads = first["heads"].to_dataset()
    heads["z_score"][0, 0, :] = np.nan
    heads["z_score"][..., NAMES.index("trace")] = np.nan
    first["heads"] = xr.DataTree(heads)
    found = compare_two(first, second, permutations=99)
    assert found.n_units == LAYERS * HEADS - 1
    assert np.isnan(found.p_value[TRACE]) and np.isfinite(found.p_value[PLACES[1:]]).all()
    heads["z_score"][:] = np.nan
    first["heads"] = xr.DataTree(heads)
    assert compare_two(first, second).reason.words.startswith("0 key heads of both models that were tested")


@pytest.mark.exhaustive
@pytest.mark.parametrize("n_key_heads", [HEADS, 2])
def test_independent_models_are_of_common_origin_no_more_often_than_the_level(n_key_heads):
    rng, layers_share = np.random.default_rng(6), np.exp(np.random.default_rng(7).standard_normal((LAYERS, 1, D_HEAD)))

    def independent():  # with a profile over the layers that all models have
        groups = np.repeat(rng.chisquare(5, (LAYERS, n_key_heads, 1)), HEADS // n_key_heads, axis=1)
        return drawn(rng, n_key_heads, eigenvalue=rng.chisquare(9, (LAYERS, HEADS, D_HEAD)) * layers_share * groups)

    p = [common_origin(independent(), independent(), permutations=99).alignment_p_value for _ in range(60)]
    for share, most in levels(p):
        assert share <= most
    assert np.mean(p) == pytest.approx(0.5, abs=0.12)


def test_a_model_that_was_moved_a_little_is_of_common_origin_and_other_sizes_have_no_heads_to_match(scored):
    first, near, other = scored(1, matrices=False), scored(1, noise=0.1, matrices=False), scored(2, matrices=False)
    found = common_origin(first, near)
    assert not found.duplicate and found.alignment > 0.8 and found.alignment_p_value < 0.01
    copied = common_origin(first, first)
    assert copied.duplicate and copied.alignment == pytest.approx(1.0)
    assert common_origin(first, other).alignment_p_value > 0.05
    found = common_origin(scored(1, matrices=False), scored(1, n_layers=3, matrices=False))
    assert np.isnan(found.alignment) and np.isnan(found.alignment_p_value)
    assert found.alignment_reason.words == "the models differ in layers, heads or their sizes"
    assert np.isnan(common_origin(*(drawn(np.random.default_rng(k), 1, 1) for k in (1, 2))).alignment)


def test_heads_that_share_a_key_head_stay_together_and_a_copy_in_another_order_is_told():
    # One key head of each layer stands out, with all its heads: two such groups have two places, not six.
    rng, p = np.random.default_rng(8), []
    for _ in range(8):
        strong = np.where(np.arange(HEADS) < 2, 9.0, 1.0)[None, :, None]
        pair = [drawn(rng, 2, layers=1, eigenvalue=strong * rng.chisquare(500, (1, HEADS, D_HEAD))) for _ in range(2)]
        p.append(common_origin(*pair, permutations=999).alignment_p_value)
    assert min(p) > 0.1
    rng = np.random.default_rng(14)
    value, order = (
        rng.chisquare(9, (LAYERS, HEADS, D_HEAD)),
        rng.permuted(np.tile(np.arange(HEADS), (LAYERS, 1)), axis=1),
    )
    moved = np.take_along_axis(value, order[..., None], axis=1) * (1 + 1e-4 * rng.standard_normal(value.shape))
    first, second, other = (drawn(rng, eigenvalue=one) for one in (value, moved, rng.chisquare(9, value.shape)))
    found = common_origin(first, second, permutations=9)
    assert found.reordered
    assert not common_origin(first, other, permutations=9).reordered
    assert not common_origin(first, drawn(rng, eigenvalue=value), permutations=9).reordered


@pytest.mark.exhaustive
def test_groups_of_untrained_models_differ_no_more_often_than_the_level():
    rng = np.random.default_rng(9)
    found = [compare_groups(*([drawn(rng) for _ in range(4)] for _ in range(2))) for _ in range(16)]
    assert found[0].smallest_p_value == 2 / 70
    share, most = levels([one.adjusted_p_value[:4].min() for one in found])[1]
    assert share <= most


def test_groups_are_compared_by_every_way_to_divide_them_and_by_welchs_t_with_an_error_bar():
    rng = np.random.default_rng(10)
    groups = [[drawn(rng, shift=shift) for _ in range(n)] for shift, n in ((0.0, 4), (0.6, 3))]
    found = compare_groups(*groups)
    place = found.measures.index("trace")
    means = np.array([scores["heads"]["z_score"].sel(statistic="trace").mean() for group in groups for scores in group])

    def welch(first):
        second = [k for k in range(7) if k not in first]
        return stats.ttest_ind(means[second], means[list(first)], equal_var=False)

    t, every = welch(range(4)), [abs(welch(first).statistic) for first in combinations(range(7), 4)]
    assert found.p_value[place] == pytest.approx(np.mean(np.array(every) >= abs(t.statistic) - 1e-9))
    assert found.smallest_p_value == 1 / 35
    assert found.difference[place] == pytest.approx(means[4:].mean() - means[:4].mean())
    error = np.sqrt(means[:4].var(ddof=1) / 4 + means[4:].var(ddof=1) / 3)
    assert found.standard_error[place] == pytest.approx(error)
    assert found.t_p_value[place] == pytest.approx(t.pvalue)
    assert (found.interval_low[place], found.interval_high[place]) == pytest.approx(tuple(t.confidence_interval()))
    rng = np.random.default_rng(11)
    groups = [[drawn(rng, shift=shift) for _ in range(5)] for shift in (0.0, 2.0)]
    found = compare_groups(*groups)
    place = found.measures.index("trace")
    assert found.p_value[place] == 2 / 252
    assert found.difference[place] / found.standard_error[place] > 4
    # Heads are independent here: seeds are apart as their heads make them.
    of_heads = (scores["heads"]["z_score"].sel(statistic="trace").values for group in groups for scores in group)
    assert found.seed_std[place] == pytest.approx(np.mean([stats.sem(z.ravel()) for z in of_heads]), rel=0.6)
