"""Which residual path a matrix is most like, whether it is like enough, and what the answer must not depend on."""

import json

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

from exhaustive import mostly_exhaustive
from rmtbase.errors import ParameterError
from rmtbase.laws import ResidualPath, ResidualUpdate
from rmtbase.models import open_model
from rmtbase.progress import SILENT
from rmtbase.results import open_table
from rmtbase.results.depth import depth, effective_depth
from rmtbase.results.depth._effective_depth import FitSettings
from rmtbase.results.depth.schema import EFFECTIVE_DEPTH_SCHEMA
from rmtbase.tables import write_table
from telling import Told

SETTINGS = {"depths": [1, 2, 3, 5], "draws": 39, "seed": 3}


def path(depth, width, seed, sigma=1.0, part="path"):
    """A residual path drawn without rmtbase."""
    rng = np.random.default_rng(seed)
    product = np.eye(width)
    for _ in range(depth):
        product = product + sigma / np.sqrt(width) * product @ rng.standard_normal((width, width))
    return product - np.eye(width) if part == "update" else product


@pytest.fixture(scope="module")
def matrix():
    return path(3, 48, seed=2)


@pytest.mark.parametrize(
    ("bad", "fragment"),
    [
        (np.zeros((4, 4)), "zeros"),
        (np.zeros(4), "zeros"),
        ([[1.0, np.nan], [1.0, 1.0]], "NaN or infinity"),
        ([1.0, -1.0], "a negative number"),
        (np.ones((4, 1)), "(4, 1)"),
        (np.ones((2, 3, 4)), "(2, 3, 4)"),
        (1.0, "()"),
    ],
)
def test_what_is_no_matrix_is_named(bad, fragment):
    with pytest.raises(ParameterError) as caught:
        effective_depth(bad)
    assert caught.value.name == "matrix_or_singular_values"
    assert fragment in str(caught.value)


@pytest.mark.exhaustive
def test_the_update_has_candidates_as_far_as_its_law_goes(matrix):
    assert FitSettings(1.0, None, "update", "wasserstein", 19, 0.05, None, 0).fitter().depths == tuple(range(1, 18))
    with pytest.raises(ParameterError, match="at depth 18"):
        effective_depth(matrix, part="update", depths=[4, 18])


def nearest(values, depth, part, distance):
    """(distance, scale) of the law of one depth."""
    fit = FitSettings(1.0, [depth], part, distance, 19, 0.05, None, 0).fitter().fit(values[None])
    return fit.nearest.distance.item(), fit.nearest.scale.item()


@pytest.mark.parametrize(
    ("depth", "part"),
    mostly_exhaustive(
        [(1, "path"), (6, "path"), (32, "path"), (1, "update"), (4, "update")], always={(6, "path"), (4, "update")}
    ),
)
def test_distances_are_scipys_at_the_best_of_all_scales(depth, part, matrix):
    values = np.linalg.svd(matrix, compute_uv=False)
    law = (ResidualPath if part == "path" else ResidualUpdate)(depth, 1.0)
    quantiles = np.sqrt(law.ppf((np.arange(values.size) + 0.5) / values.size))
    distance, scale = nearest(values, depth, part, "wasserstein")

    def wasserstein(log_scale):
        return stats.wasserstein_distance(values, np.exp(log_scale) * quantiles) / values.mean()

    assert wasserstein(np.log(scale)) == pytest.approx(distance, rel=1e-12)
    for start in (-2.0, 0.0, 2.0):
        best = minimize_scalar(wasserstein, bracket=(start - 0.5, start + 0.5)).fun
        assert best >= distance * (1.0 - 1e-9)
    distance, scale = nearest(values, depth, part, "kolmogorov_smirnov")

    def at(scale):
        return stats.kstest(values, lambda x: law.cdf((x / scale) ** 2)).statistic

    assert at(scale) == pytest.approx(distance, abs=1e-5)
    around = scale * np.geomspace(0.2, 5.0, 121)
    assert min(at(one) for one in around) >= distance - 1e-5


@pytest.mark.exhaustive
def test_a_spectrum_of_the_laws_own_quantiles_is_at_no_distance():
    quantiles = np.sqrt(ResidualPath(5, 1.0).ppf((np.arange(200) + 0.5) / 200))
    depths = [3, 4, 5, 6, 8]
    found = effective_depth(3.0 * quantiles, depths=depths, draws=19, width=48)
    assert (found.depth, found.fits) == (5, True)
    assert found.distance < 1e-12
    assert found.scale == pytest.approx(3.0)
    fit = (
        FitSettings(1.0, depths, "path", "kolmogorov_smirnov", 19, 0.05, None, 0)
        .fitter()
        .fit(3.0 * quantiles[None, ::-1])
    )
    assert fit.depth == 5
    assert fit.distance == pytest.approx(0.5 / 200, abs=1e-5)  # of any n quantiles from a continuous law


@pytest.mark.exhaustive
@pytest.mark.parametrize("distance", ["wasserstein", "kolmogorov_smirnov"])
@pytest.mark.parametrize("factor", [2.0**-30, 1e-3, 7.0, 1e12])
def test_rescaling_changes_nothing_but_the_scale(distance, factor, matrix):
    one, other = (effective_depth(c * matrix, distance=distance, draws=19) for c in (1.0, factor))
    assert (one.depth, one.interval, one.p_value) == (other.depth, other.interval, other.p_value)
    np.testing.assert_allclose(one.distances, other.distances, rtol=1e-9)
    np.testing.assert_allclose(factor * one.scales, other.scales, rtol=1e-9)
    if factor == 2.0**-30:  # no rounding
        np.testing.assert_array_equal(one.distances, other.distances)
        np.testing.assert_array_equal(factor * one.scales, other.scales)


def test_transposition_changes_nothing_and_singular_values_in_any_order_stand_for_their_matrix(matrix):
    for one in (matrix, matrix[:24]):
        found, other = effective_depth(one, draws=19), effective_depth(one.T, draws=19)
        assert (found.depth, found.interval, found.p_value) == (other.depth, other.interval, other.p_value)
        np.testing.assert_allclose(found.distances, other.distances, rtol=1e-10)
    values = np.random.default_rng(0).permutation(np.linalg.svd(matrix, compute_uv=False))
    found, other = effective_depth(matrix, draws=19), effective_depth(values, draws=19)
    assert (found.depth, found.interval, found.p_value) == (other.depth, other.interval, other.p_value)
    np.testing.assert_array_equal(found.distances, other.distances)


def test_draws_are_made_once_change_with_the_seed_and_must_be_enough_for_the_level(matrix):
    told = Told()
    for seed in range(3):
        effective_depth(path(2, 48, seed), draws=20, seed=5, progress=told)
    assert told.steps == {"drawing residual paths": 20}
    one, same, other = (effective_depth(matrix, draws=39, seed=seed) for seed in (0, 0, 1))
    assert one.p_value == same.p_value
    assert one.p_value != other.p_value
    np.testing.assert_array_equal(one.distances, other.distances)
    with pytest.raises(ParameterError, match="at least 99"):
        effective_depth(matrix, draws=98, level=0.01)


@pytest.mark.parametrize(("depth", "width"), mostly_exhaustive([(2, 48), (5, 48), (10, 96)], always={(5, 48)}))
@pytest.mark.parametrize("distance", mostly_exhaustive(["wasserstein", "kolmogorov_smirnov"], always=1))
def test_the_depth_of_a_residual_path_is_found(depth, width, distance):
    # p is uniform on the multiples of 1/100: each of the six is below 0.02 with probability 0.01.
    found = effective_depth(0.02 * path(depth, width, seed=depth), distance=distance)
    assert found.interval[0] <= depth <= found.interval[1]
    assert abs(found.depth - depth) <= (depth == 10)
    assert found.p_value > 0.01
    assert found.scale == pytest.approx(0.02, rel=0.2)


@pytest.mark.exhaustive
def test_the_update_is_told_from_the_path():
    update = path(4, 48, seed=2, part="update")
    found = effective_depth(update, depths=range(1, 9), part="update")
    assert (found.depth, found.fits) == (4, True)
    assert not effective_depth(update).fits


@pytest.mark.exhaustive
def test_intervals_cover_the_depth_as_often_as_they_say():
    # 60 matrices of depth 5 at d = 24, 90 % intervals: 45 or fewer would cover with probability 4e-4 at 90 %.
    settings = {"depths": range(1, 13), "draws": 199, "level": 0.1}
    intervals = [effective_depth(path(5, 24, seed), **settings).interval for seed in range(60)]
    assert sum(low <= 5 <= high for low, high in intervals) > 45
    assert any(low < high for low, high in intervals)


@pytest.mark.exhaustive
@pytest.mark.parametrize("distance", mostly_exhaustive(["wasserstein", "kolmogorov_smirnov"], always={"wasserstein"}))
def test_p_values_of_residual_paths_are_uniform(distance):
    # Kolmogorov-Smirnov at 1e-3. The matrices share the draws of each fitted depth: two samples, of 150 and 499.
    settings = {"depths": range(1, 8), "distance": distance, "draws": 499}
    p = [effective_depth(path(3, 24, 1000 + seed), **settings).p_value for seed in range(150)]
    effective = len(p) * 499 / (len(p) + 499)
    assert stats.kstwobign.sf(np.sqrt(effective) * stats.kstest(p, "uniform").statistic) > 1e-3


def test_a_gaussian_matrix_is_an_update_of_depth_one_and_one_of_rank_one_is_nearest_to_nothing():
    gaussian = np.random.default_rng(4).standard_normal((48, 48))
    update = effective_depth(gaussian, depths=range(1, 9), part="update")
    assert (update.depth, update.interval, update.fits) == (1, (1, 1), True)
    assert not effective_depth(gaussian).fits
    values = np.zeros(48)
    values[0] = 2.0
    found = effective_depth(values)
    assert (found.scale, found.distance, found.fits) == (0.0, 1.0, False)


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", mostly_exhaustive(["path", "update"], always=1))
def test_no_depth_fits_a_matrix_of_another_kind(part):
    rng = np.random.default_rng(5)
    others = {
        "heavy tails": rng.standard_t(1.2, size=(48, 48)),
        "low rank": rng.standard_normal((48, 4)) @ rng.standard_normal((4, 48)),
        "rank one": np.outer(rng.standard_normal(48), rng.standard_normal(48)),
        "orthogonal": np.linalg.qr(rng.standard_normal((48, 48)))[0],
        "rectangular": rng.standard_normal((144, 48)),
    }
    for name, one in others.items():
        found = effective_depth(one, depths=range(1, 9), part=part)
        assert found.p_value == 0.01, name
        assert not found.fits
        assert 0.0 < found.distance <= 1.0


@pytest.mark.exhaustive
def test_several_sigmas_give_the_best_of_them():
    one = path(4, 48, seed=4, sigma=0.5)
    depths = [2, 4, 8]
    fixed = [effective_depth(one, sigma, depths, draws=19).distances for sigma in (0.3, 0.5, 1.0)]
    found = effective_depth(one, [1.0, 0.3, 0.5], depths, draws=19)
    np.testing.assert_array_equal(found.distances, np.min(fixed, axis=0))
    assert found.sigmas[1] == 0.5
    assert found.fits
    searched = effective_depth(one, None, [2, 4], draws=19)
    assert searched.fits
    assert 0.5 < searched.depth * searched.sigma**2 < 2.0  # L σ² = 1: what a small σ lets through


@pytest.mark.exhaustive
def test_a_larger_matrix_is_compared_with_narrower_draws_which_tell_the_distances_of_the_whole(matrix):
    found = effective_depth(path(3, 96, seed=3), width=48)
    assert (found.width, effective_depth(matrix, width=60, draws=19).width) == (48, 48)
    assert (found.depth, found.fits) == (3, True)
    fitter = FitSettings(1.0, range(1, 8), "path", "wasserstein", 199, 0.05, 24, 0).fitter()
    advance = SILENT.bar("", 0)
    own, brought = (fitter.refit_distance(48, width, ResidualPath(3, 1.0), advance) for width in (48, 24))
    # Each mean is known to 1.3 %, the growth to 1.8 %; at these small widths it slows down by some per cent more.
    assert brought.mean() == pytest.approx(own.mean(), rel=0.1)


@pytest.fixture
def of_arrays(model_folder):
    return open_model(str(model_folder))


def test_each_matrix_is_fitted_as_if_it_were_alone_and_the_file_is_the_table(of_arrays, tmp_path):
    told = Told()
    table = depth(of_arrays, **SETTINGS, progress=told)
    assert dict(table.sizes) == {"layer": 2, "component": 2, "depth": 4, "index": 32}
    assert table["component"].values.tolist() == ["attention_query", "attention_key"]
    assert told.steps == told.totals == {"fitting": 4, "drawing residual paths": 4 * SETTINGS["draws"]}
    for layer in range(2):
        for component, shape in (("attention_query", (32, 32)), ("attention_key", (16, 32))):
            alone = effective_depth(of_arrays.matrix(layer, component), **SETTINGS)
            row = table.sel(layer=layer, component=component)
            assert (int(row["n_rows"]), int(row["n_columns"])) == shape
            assert row["effective_depth"] == alone.depth
            assert (row["effective_depth_low"], row["effective_depth_high"]) == alone.interval
            assert row["p_value"] == alone.p_value
            assert bool(row["fits"]) is alone.fits
            assert row["distance"] == alone.distance
            np.testing.assert_array_equal(row["distance_profile"], alone.distances)
            np.testing.assert_array_equal(row["scale_profile"], alone.scales)
            values = row["singular_value"].values
            np.testing.assert_array_equal(values[np.isfinite(values)], alone.singular_values)
    path = write_table(table, tmp_path / "depth.nc")
    assert open_table(path).identical(table)
    for name, variable in EFFECTIVE_DEPTH_SCHEMA.items():
        assert table[name].dims == variable.dims
        assert table[name].attrs["long_name"]
        assert table[name].attrs.get("units", "") == variable.units
    call = json.loads(table.attrs["provenance"])["call"]
    assert (call["part"], call["draws"], call["seed"]) == ("path", 39, 3)


def test_an_untrained_model_is_an_update_of_depth_one(of_arrays):
    table = depth(of_arrays, part="update", depths=range(1, 6), components=["attention_query"])
    # Gaussian 32 x 32 matrices: each p is 0.01 with probability 0.01, on the same draws.
    assert (table["effective_depth"] == 1).all()
    assert (table["p_value"] > 0.01).all()


def test_a_matrix_of_zeros_is_left_out_and_named(weights, tmp_path):
    weights.queries[1] = 0.0
    told = Told()
    table = depth(str(weights.save(tmp_path / "zeros")), **SETTINGS, progress=told)
    row = table.sel(layer=1, component="attention_query")
    for name in ("effective_depth", "p_value", "fits", "scale"):
        assert np.isnan(row[name])
    assert int(row["n_rows"]) == 32
    assert np.isfinite(table["p_value"]).sum() == 3
    (warning,) = json.loads(table.attrs["warnings"])
    assert "layer 1 attention_query" in warning
    assert warning in told
