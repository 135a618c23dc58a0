"""The null from the atlas: the full sample's scores, with p-values that are valid and within 3 % of its own."""

import numpy as np
import pytest
from compact_atlas import compact_baseline, merge_atlases

import rmtbase
from rmtbase.errors import TableError
from rmtbase.montecarlo import CacheWarning
from rmtbase.nulls import AtlasNull, Gaussian, GaussianNull, Table, atlas_case
from rmtbase.results.scores import render
from rmtbase.tables import write_table
from telling import Told

D_MODEL, D_HEAD, DRAWS = 32, 8, 20_000
RATIO = 1.03

EQUAL = (
    "observed", "null_mean", "null_std", "null_quantile", "z_score", "farthest_statistic", "outliers_above",
    "outliers_below", "eigenvalue",
)  # fmt: skip


@pytest.fixture(scope="module")
def table():
    return rmtbase.baseline(D_MODEL, D_HEAD, draws=DRAWS, normalization="none")


@pytest.fixture(scope="module")
def demo_table():
    return rmtbase.baseline(128, 16, draws=10_000, normalization="none")


@pytest.fixture(scope="module")
def atlas(table, demo_table):
    return merge_atlases([compact_baseline(one) for one in (table, demo_table)])


def ship(monkeypatch, path):
    """Put an atlas in the place of the shipped one."""
    monkeypatch.setattr("rmtbase.nulls._gaussian.atlas_case", lambda d_model, d_head: atlas_case(d_model, d_head, path))


@pytest.fixture
def as_shipped(atlas, tmp_path, monkeypatch):
    path = write_table(atlas, tmp_path / "atlas.nc")
    ship(monkeypatch, path)
    return path


@pytest.fixture
def nothing_is_simulated(monkeypatch):
    monkeypatch.setattr("rmtbase.nulls._gaussian.cached_null", lambda *_, **__: pytest.fail("a null was simulated"))


@pytest.fixture(scope="module")
def full(table):
    return GaussianNull.from_baseline(table, D_MODEL, D_HEAD, "the table")


@pytest.fixture(scope="module")
def null(atlas):
    return AtlasNull(D_MODEL, D_HEAD, atlas.isel(case=0))


@pytest.fixture(scope="module")
def random_heads():
    """Statistics of heads that are random, drawn with another seed than the null's."""
    other = rmtbase.baseline(D_MODEL, D_HEAD, draws=5000, seed=1, normalization="none")
    return GaussianNull.from_baseline(other, D_MODEL, D_HEAD, "heads").sample


@pytest.mark.exhaustive
def test_moments_edges_and_distances_are_the_full_samples_and_p_values_of_its_draws_are_never_smaller(
    null, full, random_heads
):
    for name in ("draws", "mean", "std", "quantile", "edge_quantiles", "p_value_floor"):
        np.testing.assert_allclose(getattr(null, name), getattr(full, name), rtol=1e-13, err_msg=name)
    np.testing.assert_allclose(null.distance(random_heads), full.distance(random_heads), rtol=1e-9, atol=1e-9)
    assert (null.p_value(full.sample) >= full.p_value(full.sample)).all()
    assert (null.omnibus_p_value(full.sample) >= full.omnibus_p_value(full.sample)).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("test", ["p_value", "omnibus_p_value"])
def test_p_values_are_never_smaller_and_at_most_three_per_cent_larger(test, null, full, random_heads):
    spread = 3.0 * np.random.default_rng(2).standard_normal((2000, full.mean.size))
    far = np.concatenate([np.abs(full.mean + full.std * spread), np.full((1, full.mean.size), np.inf)])
    for heads in (random_heads, far):
        kept, exact = getattr(null, test)(heads), getattr(full, test)(heads)
        one_rank = 2 / (DRAWS + 1)  # which rounding may add
        assert ((kept >= exact) & (kept <= RATIO * (exact + one_rank))).all()
        assert (kept <= RATIO * exact + 1e-12).mean() > 0.99
    assert np.median(kept / exact) < 1.01  # far out every rank is kept


def test_null_p_values_have_the_right_size(null, random_heads):
    """False-failure rate: 4.5 standard errors, of heads and of null draws, for 17 tests at a level: below 2e-4."""
    p = np.column_stack([null.p_value(random_heads), null.omnibus_p_value(random_heads)])
    for level in (0.01, 0.05, 0.2):
        rate, error = (p <= level).mean(axis=0), 4.5 * np.sqrt(level * (1 - level) * (1 / len(p) + 1 / DRAWS))
        assert ((rate <= level + error) & (rate >= level / RATIO - error)).all()


def test_a_head_without_a_shape_has_no_score_and_an_infinite_value_the_smallest_p(null):
    nothing, extreme = (np.full((2, null.mean.size), value) for value in (np.nan, np.inf))
    assert np.isnan(null.p_value(nothing)).all() and np.isnan(null.omnibus_p_value(nothing)).all()
    np.testing.assert_allclose(null.p_value(extreme), null.p_value_floor)
    np.testing.assert_allclose(null.omnibus_p_value(extreme), null.p_value_floor / 2)


def test_the_spectrum_for_pictures_is_the_full_samples(null, full):
    for name, values in full.spectrum().items():
        error = full.row["eigenvalue_std"].values[:, None] / 512 if name == "eigenvalue_quantile" else 0.0
        np.testing.assert_array_less(
            np.abs(null.spectrum()[name] - values), error + 1e-6 * np.abs(values) + 1e-12, err_msg=name
        )


def test_scores_of_the_bundled_model_are_those_with_the_full_table(
    demo_table, as_shipped, nothing_is_simulated, tmp_path
):
    notes = Told()
    here = rmtbase.score("demo", matrices="none", progress=notes)
    there = rmtbase.score("demo", Table(demo_table), matrices="none")
    assert "null of (128, 16): from the null draws shipped with rmtbase (10000 draws)" in notes
    for name in EQUAL:
        if here["heads"][name].dtype.kind == "f":
            np.testing.assert_allclose(here["heads"][name], there["heads"][name], rtol=1e-12, err_msg=name)
        else:
            np.testing.assert_array_equal(here["heads"][name], there["heads"][name], err_msg=name)
    for name in ("p_value", "q_value", "omnibus_p_value", "omnibus_q_value"):
        kept, exact = here["heads"][name].values, there["heads"][name].values
        assert ((kept >= exact - 1e-15) & (kept <= RATIO * exact + 1e-12)).all(), name
    for name in ("null_draws", "p_value_floor", "null_method", "null"):
        assert here.attrs[name] == there.attrs[name]
    page = render(here, pictures=False)
    assert "10000; source: the null draws shipped with rmtbase." in page and "simulations" in page  # of the provenance
    write_table(here, tmp_path / "scores.nc")


def test_an_atlas_or_a_table_may_be_given_and_what_it_lacks_is_taken_from_the_shipped_one(
    arrays, atlas, table, as_shipped, nothing_is_simulated, demo_table
):
    notes = Told()
    by_file = rmtbase.score_heads(*arrays, Table(as_shipped), progress=notes)
    for other in (rmtbase.score_heads(*arrays, Table(atlas)), rmtbase.score_heads(*arrays)):
        np.testing.assert_array_equal(by_file["heads"]["p_value"], other["heads"]["p_value"])
    rmtbase.score_heads(*arrays, Table(table), progress=notes)
    whose = as_shipped, "the baseline dataset"
    assert notes == [f"null of (32, 8): {DRAWS} draws from {source}" for source in whose]
    notes.clear()
    rmtbase.score_heads(*arrays, Table(compact_baseline(demo_table)), progress=notes)
    assert notes[0].startswith("the baseline dataset holds (128, 16), but not (32, 8)")
    assert notes[1] == f"null of (32, 8): from the null draws shipped with rmtbase ({DRAWS} draws)"
    rmtbase.score_heads(*arrays, Gaussian(draws=500))


def test_what_the_atlas_does_not_hold_is_simulated_and_every_shape_without_an_atlas(
    arrays, as_shipped, tmp_path, monkeypatch
):
    def simulated(heads, shape, draws=100, **options):
        notes = Told()
        rmtbase.score_heads(*heads, Gaussian(draws=draws, **options), progress=notes)
        assert notes[0].startswith(f"null of (d_model, d_head) = {shape}, {draws} draws")

    simulated(arrays, (32, 8), seed=1)
    simulated(arrays, (32, 8), draws=DRAWS + 1)
    simulated(np.random.default_rng(8).standard_normal((2, 1, 8, 33)), (33, 8))
    ship(monkeypatch, tmp_path / "none.nc")
    simulated(arrays, (32, 8))


def test_a_damaged_atlas_is_named_in_a_warning_and_not_used(arrays, as_shipped):
    as_shipped.write_bytes(as_shipped.read_bytes()[:5000])
    notes = Told()
    with pytest.warns(CacheWarning, match="damaged atlas"):
        rmtbase.score_heads(*arrays, Gaussian(draws=100), progress=notes)
    assert notes[0].startswith("null of (d_model, d_head) = (32, 8), 100 draws")


def test_an_atlas_of_other_statistics_is_refused(atlas):
    with pytest.raises(TableError, match="statistics"):
        AtlasNull(D_MODEL, D_HEAD, atlas.isel(case=0, statistic=slice(1, None)))
