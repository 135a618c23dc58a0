"""Every shape of a head finds its own null, from a table in any units or once simulated; never a neighbour's."""

import time

import numpy as np
import pytest

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase import nulls
from rmtbase.ensembles import sign_flipped_head, sign_flipped_matrix
from rmtbase.errors import MissingFileError, ParameterError, TableError
from rmtbase.montecarlo import cached_table, draw_spectra
from rmtbase.nulls import Gaussian, Table, find_null
from rmtbase.progress import SILENT
from rmtbase.statistics import SPECTRAL_STATISTICS, LatentShape
from rmtbase.tables import write_table
from telling import Told

LATENT = LatentShape(24, 10, 6, 4, 16)
NAMES = list(SPECTRAL_STATISTICS)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RMTBASE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def null_of(null, dims, progress=SILENT, **options):
    """The null of 4 heads of a shape, of 20 draws."""
    return find_null(null, **{"draws": 20} | options).for_heads(nulls.HeadShape(dims, 4), progress)


@pytest.mark.exhaustive
def test_square_products_have_the_null_of_their_table_to_the_bit():
    found = null_of("gaussian", (16, 4, 16))
    table = rmtbase.baseline(16, 4, draws=20, normalization="none")
    expected = nulls.GaussianNull.from_baseline(table, 16, 4, "a table")
    np.testing.assert_array_equal(found.sample, expected.sample)
    assert (found.described("W_Q"), found.dims, found.rank) == (expected.described("W_Q"), (16, 4, 16), 4)


def test_square_products_are_served_by_the_atlas_and_a_chain_has_a_spectrum_like_theirs():
    found = null_of("gaussian", (128, 16, 128), draws=None)
    assert isinstance(found, nulls.AtlasNull) and found.dims == (128, 16, 128)
    of_chain, of_product = (null_of("gaussian", dims).spectrum() for dims in ((16, 4, 10), (16, 4, 16)))
    assert {name: one.dims for name, one in of_chain.items()} == {name: one.dims for name, one in of_product.items()}
    assert float((of_chain["density"] * np.diff(of_chain["bin_edge"])).sum()) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    "dims", mostly_exhaustive(zip([(16, 4, 10), (10, 6), (8, 12, 8), (12, 9, 5, 6, 12)], strict=True), always=2)
)
def test_a_chain_is_simulated_kept_and_found_again(dims, cache):
    first, second = Told(), Told()
    drawn = null_of("gaussian", dims, progress=first)
    (kept,) = cache.iterdir()
    again = null_of("gaussian", dims, progress=second)
    np.testing.assert_array_equal(again.sample, drawn.sample)
    assert f"simulated now and kept in the cache, {kept}" in first[0]
    assert f"from the cache, {kept}" in second[0] and drawn.rank == min(dims)
    assert drawn.sample.shape == (20, len(NAMES))


def test_a_matrix_and_its_transpose_share_a_null_also_with_random_signs(cache):
    nulls = [null_of("gaussian", dims) for dims in ((6, 10), (10, 6))]
    np.testing.assert_array_equal(nulls[0].sample, nulls[1].sample)
    assert len(list(cache.iterdir())) == 1
    w = np.random.default_rng(1).standard_normal((4, 11))
    drawn = [next(iter(draw_spectra(sign_flipped_matrix(one), 50, 0))) for one in (w, w.T)]
    np.testing.assert_array_equal(*(one.singular_values for one in drawn))
    np.testing.assert_allclose((drawn[0].singular_values ** 2).sum(axis=1), np.sum(w**2))
    assert sign_flipped_matrix(w).name != sign_flipped_head(w, w).name


def test_the_estimate_of_one_factor_fixes_its_trace():
    null, trace = null_of("gaussian", (6, 10)), NAMES.index("trace")
    assert (null.mean[trace], null.std[trace]) == (pytest.approx(60), 0)
    matrix = 0.3 * np.random.default_rng(0).standard_normal((6, 10))
    scores = null.score(np.linalg.svd(matrix, compute_uv=False), np.mean(matrix**2))
    assert (scores.z_score[trace], scores.p_value[trace]) == (0, 1) and np.isfinite(scores.omnibus_p_value)


def test_kept_spectra_of_another_chain_are_made_again(cache):
    good = cached_table("gaussian_chain", {"dims": (16, 4, 10)}, 20).get()
    (kept,) = cache.iterdir()
    other = cached_table("gaussian_chain", {"dims": (16, 4, 12)}, 20).get()
    (of_other,) = set(cache.iterdir()) - {kept}
    kept.write_bytes(of_other.read_bytes())
    with pytest.warns(UserWarning, match="made again"):
        again = cached_table("gaussian_chain", {"dims": (16, 4, 10)}, 20).get()
    assert again.equals(good) and not again.equals(other)


def test_laws_know_every_chain_and_latent_attention_has_a_null_of_its_own():
    told = Told()
    found = null_of("analytic", (10, 24), told)
    assert isinstance(found, nulls.AnalyticNull) and found.unknown == ["trace"]
    assert told[1] == "without a law at this shape, and not scored: trace"
    assert nulls.AnalyticNull(768, 64).mean == pytest.approx(nulls.AnalyticNull(dims=(768, 64, 768)).mean, rel=0)
    found = null_of("gaussian", LATENT)
    assert isinstance(found, nulls.LatentNull)
    assert (found.draws, found.method, found.p_value_floor) == (20, "simulated", 2 / 21)
    told.clear()
    found = null_of(cached_table("low_rank_product", {"d_model": 16, "d_head": 4}, 20).get(), (16, 4, 10), told)
    assert "holds (16, 4), but not (16, 4, 10): the null of that shape is taken separately" in told[0]
    assert found.dims == (16, 4, 10)


def test_what_no_null_is_known_of_is_refused():
    for null, dims, name, expected in (
        ("analytic", LATENT, "null", "has no law"),
        ("signs", LATENT, "null", "products of matrices"),
        ("signs", (12, 9, 5, 6, 12), "null", "products of matrices"),
        ("axes", (6, 10), "null", "no permutation of its rows changes the singular values of one factor"),
        ("gaussian", (1, 10), "rank", "has only its scale"),
        ("gaussian", (16, 1, 16), "d_head", "has only its scale"),
        ("analytic", (16, 7, 12), "null", "at rank = 7"),
    ):
        with pytest.raises(ParameterError, match=expected) as caught:
            null_of(null, dims)
        assert caught.value.name == name


def test_heads_of_any_widths_are_scored_against_their_own_matrices():
    for null, dims in (("signs", (11, 4, 7)), ("axes", (11, 4, 7)), ("signs", (4, 11))):
        rng = np.random.default_rng(0)
        factors = tuple(rng.standard_normal((3, 4, width)) for width in dims if width != 4)
        product = factors[0] if len(factors) == 1 else np.swapaxes(factors[0], 1, 2) @ factors[1]
        values = np.linalg.svd(product, compute_uv=False)[None, :, :4]
        sigmas = tuple(np.sqrt(np.mean(one**2, axis=(1, 2)))[None] for one in factors)
        heads = nulls.Heads(values, sigmas, lambda layer, factors=factors: factors)
        scores = null_of(null, dims, draws=99).score_heads(heads, SILENT).scores
        assert scores.p_value.shape == (1, 3, len(NAMES)) and (scores.omnibus_p_value > 0).all()
        if len(factors) == 1:  # the elements keep their sizes
            assert (scores.p_value[..., NAMES.index("trace")] == 1).all()


def test_a_null_that_is_not_found_ends_the_reading():
    layers = []

    def slow(label, total):
        return lambda count: (layers.append(count), time.sleep(0.02))

    weights = np.random.default_rng(0).standard_normal((200, 2, 2, 4))
    with pytest.raises(MissingFileError, match="missing"):
        rmtbase.score_heads(weights, weights, Table("missing.nc"), progress=Told(slow))
    assert len(layers) < len(weights)


SCORES = ("z_score", "p_value", "q_value", "omnibus_p_value", "null_mean", "null_std", "null_quantile")


@pytest.mark.parametrize(
    ("normalization", "sigma"), [("sqrt_d", 1.0), ("none", 0.02), ("sqrt_d", (0.02, 3.0)), ("sqrt_d", [0.5, 1.0])]
)
def test_units_of_the_baseline_do_not_matter_and_the_null_of_a_tree_is_in_raw_units(
    normalization, sigma, arrays, null_table
):
    other = rmtbase.baseline(32, 8, draws=null_table.sizes["draw"], normalization=normalization, sigma=sigma)
    here, there = (rmtbase.score_heads(*arrays, Table(table)) for table in (null_table, other))
    for group, names in (("heads", SCORES), ("null", here["null"].data_vars)):
        for name in names:
            np.testing.assert_allclose(here[group][name], there[group][name], rtol=1e-6, atol=1e-9, err_msg=name)
    for name in ("outliers_above", "outliers_below"):
        np.testing.assert_array_equal(here["heads"][name], there["heads"][name])


def test_file_path_and_dataset_are_the_same_baseline_and_so_is_one_among_others(
    arrays, score_arrays, null_table, tmp_path, watch
):
    path, expected = write_table(null_table, tmp_path / "null.nc"), score_arrays(*arrays)
    for given in (path, str(path)):
        assert score_arrays(*arrays, baseline=given).identical(expected)
    several = rmtbase.baseline([64, 32, 16], [8, 8, 8], draws=null_table.sizes["draw"], normalization="none")
    np.testing.assert_array_equal(score_arrays(*arrays, baseline=several)["p_value"], expected["p_value"])
    (tmp_path / "files").mkdir()
    path = write_table(rmtbase.baseline(32, 7, draws=20), tmp_path / "files" / "other.nc")
    before = watch(path.parent)
    rmtbase.score_heads(*arrays, Table(path, draws=300))  # which lacks the case
    before.assert_untouched()


@pytest.mark.parametrize(("d_model", "d_head"), mostly_exhaustive([(32, 7), (33, 8), (31, 8), (64, 8)], always=1))
def test_a_neighbours_null_is_never_used_the_lacking_case_is_simulated_kept_and_then_found(
    d_model, d_head, arrays, cache
):
    neighbour, notes, again = rmtbase.baseline(d_model, d_head, draws=20), Told(), Told()
    scores = rmtbase.score_heads(*arrays, Table(neighbour, draws=300), progress=notes)
    (kept,) = cache.iterdir()
    expected = rmtbase.score_heads(*arrays, Gaussian(draws=300), progress=again)
    for name in ("p_value", "null_mean"):
        np.testing.assert_array_equal(scores["heads"][name], expected["heads"][name])
    assert notes[0] == (
        f"the baseline dataset holds ({d_model}, {d_head}), but not (32, 8): the null of that shape is taken separately"
    )
    assert notes[1].startswith("null of (d_model, d_head) = (32, 8), 300 draws, seed 0: ")
    assert f"simulated now and kept in the cache, {kept}" in notes[1] and f"from the cache, {kept}" in again[0]


def test_a_coarse_baseline_is_said_to_be_coarse_and_one_that_lacks_a_statistic_is_refused(arrays, null_table):
    notes = Told()
    rmtbase.score_heads(*arrays, Table(rmtbase.baseline(32, 8, draws=50)), progress=notes)
    # The smallest q of a lone head among 4 is 2 * 4 / 51.
    assert "with 50 null draws and 4 heads a lone head cannot reach q below 0.16" in notes[1]
    assert "10000 draws" in notes[1]
    with pytest.raises(TableError, match="effective_rank"):
        rmtbase.score_heads(*arrays, Table(null_table.drop_sel(statistic="effective_rank")))


def test_default_draws_let_a_lone_head_reach_five_per_cent():
    for n_heads in (1, 200, 201, 1024):
        assert nulls.draws_for(n_heads) >= 10_000 and 2 * n_heads / (nulls.draws_for(n_heads) + 1) < 0.05
