"""Element statistics drawn by rows, against the matrix itself; what is refused; and that no matrix is ever held."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exhaustive import mostly_exhaustive
from rmtbase import statistics
from rmtbase.ensembles import gaussian_chain, initialized_matrix, low_rank_product
from rmtbase.errors import ParameterError
from rmtbase.linalg import reproducible_jax
from rmtbase.montecarlo import (
    case_key,
    draw_elements,
    draw_keys,
    element_baseline,
    element_edges,
    make_plan,
    run_in_memory,
)
from rmtbase.results import open_table
from rmtbase.tables import ELEMENT_FORMULAS, ELEMENTS_SCHEMA, write_table

PRODUCT = low_rank_product(48, 6, method="dense")
NORMAL = gaussian_chain((30, 40), method="dense")
UNIFORM = initialized_matrix(47, 60, "kaiming_uniform")
ENSEMBLES = [
    PRODUCT, NORMAL, UNIFORM, gaussian_chain((50, 7, 20, 61), method="dense"),
    initialized_matrix(24, 80, "normal", mean=0.05, std=0.02),
]  # fmt: skip


@cache
def matrices(ensemble, seed):
    with reproducible_jax():
        keys = draw_keys(case_key(seed, ensemble.name), np.arange(40, dtype=np.uint32))
        return np.asarray(jax.jit(jax.vmap(lambda key: ensemble.sample(key).matrix))(keys))


def statistics_of(w, edges):
    moments, fit = statistics.element_moments(w), statistics.weibull_fit(w)
    interval = (edges[0], edges[-1])
    return [
        *(moments.mean, moments.std, moments.skewness, moments.excess_kurtosis, moments.largest_magnitude),
        statistics.histogram_entropy(w, edges.size - 1, interval),
        statistics.histogram_kl(w, edges.size - 1, interval),
        *(fit.shape, fit.scale, fit.r_squared),
    ]


@pytest.mark.exhaustive
@pytest.mark.parametrize("ensemble", mostly_exhaustive(ENSEMBLES, always=[PRODUCT, UNIFORM]), ids=lambda one: one.name)
def test_statistics_by_rows_are_those_of_the_whole_matrix(ensemble):
    interval = (-5 * ensemble.element_std, 0.1 + 5 * ensemble.element_std)
    for chunk in draw_elements(ensemble, 2, 7, element_edges(ensemble, range=interval)):
        w, edges = matrices(ensemble, 7)[chunk.start], element_edges(ensemble, range=interval)
        np.testing.assert_array_equal(chunk.histogram[0], np.histogram(w, edges.size - 1, interval)[0])
        exact = statistics_of(w, edges)
        np.testing.assert_allclose(chunk.statistics[0, :7], exact[:7], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(chunk.statistics[0, 7:], exact[7:], rtol=1e-6)


def test_rows_of_several_blocks_and_a_shorter_last_one_are_those_of_the_whole_matrix():
    chunk = next(draw_elements(UNIFORM, 1, 7, block=470))
    exact = statistics_of(matrices(UNIFORM, 7)[0], element_edges(UNIFORM))
    np.testing.assert_allclose(chunk.statistics[0], exact, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("ensemble", ENSEMBLES, ids=lambda one: one.name)
def test_the_standard_deviation_of_an_element_is_the_one_it_is_said_to_have(ensemble):
    # Five standard errors of 40 draws' mean square, from their spread: one case in 10^6 fails.
    squares = np.mean((matrices(ensemble, 7) - 0.05 * ("mean=" in ensemble.name)) ** 2, axis=(1, 2))
    error = squares.std(ddof=1) / np.sqrt(40)
    assert abs(squares.mean() - ensemble.element_std**2) < 5 * error + 1e-9 * squares.mean()


class Spy:
    name = "spy"
    element_std = 1.0

    def __init__(self, rows, columns, bad=None):
        self.element_shape, self.asked, self.bad = (rows, columns), [], bad

    def row_context(self, key):
        return jnp.zeros(())

    def rows(self, context, start, count):
        self.asked.append(count)
        columns = self.element_shape[1]
        place = (start + jnp.arange(count))[:, None] * columns + jnp.arange(columns)
        w = jnp.sin(place + 1.0) + context
        return w if self.bad is None else jnp.where(place == 5, self.bad, w)

    def element_values(self):
        return np.sin(np.arange(self.element_shape[0] * self.element_shape[1]) + 1.0)


jax.tree_util.register_pytree_node(Spy, lambda spy: ((), spy), lambda spy, _: spy)


@pytest.mark.parametrize(
    ("rows", "columns"), mostly_exhaustive([(700, 1000), (3, 300_000), (257, 1023), (1, 10)], always=2)
)
def test_no_more_rows_are_asked_for_than_a_block_holds(rows, columns):
    spy = Spy(rows, columns)
    chunk = next(draw_elements(spy, 1, 0))
    assert max(spy.asked) * columns <= max(2**18, columns)
    assert chunk.histogram.sum() == rows * columns
    w = spy.element_values()
    np.testing.assert_allclose(chunk.statistics[0], statistics_of(w, element_edges(spy)), rtol=1e-6, atol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.optimized
def test_counts_do_not_depend_on_the_block():
    spy = Spy(100, 70)
    found = [next(draw_elements(spy, 1, 0, block=block)) for block in (71, 999, 1400, 1 << 18)]
    for one in found[1:]:
        np.testing.assert_array_equal(one.histogram, found[0].histogram)
        np.testing.assert_array_equal(one.statistics[:, [5, 7, 8, 9]], found[0].statistics[:, [5, 7, 8, 9]])
        np.testing.assert_allclose(one.statistics, found[0].statistics, rtol=1e-12, atol=1e-14)


@pytest.mark.exhaustive
@pytest.mark.optimized
def test_a_draw_depends_on_seed_case_and_index_alone():
    ensemble = PRODUCT
    whole = list(draw_elements(ensemble, 7, 3))
    assert [chunk.start for chunk in whole] == list(range(7))
    for start, draws, cores in ((0, 2, 1), (2, 4, 1), (2, 5, 2), (6, 1, 1)):
        part = draw_elements(ensemble, draws, 3, start=start, cores=cores)
        for found, expected in zip(part, whole[start : start + draws], strict=True):
            assert found.start == expected.start
            np.testing.assert_array_equal(found.statistics, expected.statistics)
            np.testing.assert_array_equal(found.histogram, expected.histogram)
    assert not np.any(next(draw_elements(ensemble, 1, 4)).statistics == whole[0].statistics)


@pytest.mark.parametrize(("name", "value"), [
    *(("draws", value) for value in (0, -1, 2.0, True, None, 2**32)),
    *(("start", value) for value in (-1, 1.0, True, None, "0")), *(("cores", value) for value in (0, -1, True)),
    *(("seed", value) for value in (-1, 2**63, 0.0, True)),
    *(("ensemble", value) for value in (None, low_rank_product(8, 2), (8, 2))),
])  # fmt: skip
def test_bad_parameters_are_refused_by_name(name, value):
    good = {"ensemble": low_rank_product(8, 2, method="dense"), "draws": 1, "seed": 0}
    with pytest.raises(ParameterError, match=name):
        draw_elements(**(good | {name: value}))


def test_elements_are_finite_and_need_bins_and_a_range_that_holds_some_of_them():
    bad_ranges = ((1, 1), (2, -2), (0, np.inf), (np.nan, 1), "ab", 3)
    for name, values in (("bins", (0, 2.5, True, None)), ("range", bad_ranges)):
        for value in values:
            with pytest.raises(ParameterError, match=name):
                element_edges(PRODUCT, **{name: value})
    for bad in (np.nan, np.inf, -np.inf, 1e200):
        with pytest.raises(ParameterError, match="ensemble = 'spy': expected elements that are finite"):
            next(draw_elements(Spy(4, 5, bad), 1, 0))
    with pytest.raises(ParameterError, match="range"):
        next(draw_elements(Spy(4, 5), 1, 0, np.linspace(5.0, 6.0, 121)))
    spy = Spy(20, 30)
    spy.element_std = np.inf
    with pytest.raises(ParameterError, match="range = None"):
        draw_elements(spy, 1, 0)
    assert next(draw_elements(spy, 1, 0, element_edges(spy, range=(-1, 1)))).histogram.sum() == 600


@pytest.fixture(scope="module")
def table():
    return element_baseline([PRODUCT, NORMAL, UNIFORM], 40)


def test_a_table_is_described_opens_again_and_has_the_columns_of_a_baseline(table, tmp_path):
    assert list(table["statistic"].values) == list(ELEMENT_FORMULAS)
    for name in ELEMENTS_SCHEMA:
        assert table[name].attrs["long_name"]
    opened = open_table(write_table(table, tmp_path / "elements.nc"))
    assert opened.equals(table)
    assert opened.attrs["kind"] == "elements"
    bare = element_baseline((48, 6), 3, keep_sample=False)
    assert "sample" not in bare and "draw" not in bare.dims
    assert open_table(write_table(bare, tmp_path / "bare.nc")).equals(bare)
    of_product, *others = range(table.sizes["case"])
    d_model, d_head = (int(table[name][of_product]) for name in ("d_model", "d_head"))
    assert (d_model, d_head) == (PRODUCT.dims[0], PRODUCT.dims[1])
    assert table["sigma_q"][of_product] == table["sigma_k"][of_product] == 1.0
    for name in ("d_model", "d_head", "sigma_q", "sigma_k"):
        assert table[name].dims == ("case",)
        assert np.isnan(table[name].values[others]).all()
    alone = element_baseline((12, 3), 3)
    assert alone["d_head"].values.tolist() == [3]
    assert alone["d_head"].dtype.kind == "i"


@pytest.mark.parametrize("histogram", [{}, {"bins": 30, "range": (-3.0, 4.0)}], ids=["usual", "other"])
def test_a_table_from_chunks_is_the_table_made_at_once_of_each_case_once(histogram):
    whole = element_baseline(PRODUCT, 40, **histogram)
    assert element_baseline([(48, 6), PRODUCT], 40, **histogram).equals(whole)
    case = {"d_model": 48, "d_head": 6}
    plan = make_plan("low_rank_product", [case], 40, measure="elements", chunk=11, **histogram)
    assert len(plan.chunks) == 4
    assert ("bins" in plan.record()) == bool(histogram)
    assert run_in_memory(plan).drop_attrs(deep=False).identical(whole.drop_attrs(deep=False))


def test_the_density_of_the_table_is_that_of_the_elements(table):
    # Five standard errors of each bin that 100 elements fall in, from the spread between draws, in two cases of about
    # 50 such bins: one seed in 800 fails (Student's t of 39 degrees of freedom).
    width = np.diff(table["bin_edge"].values, axis=1)
    np.testing.assert_allclose((table["density"] * width).sum("bin") + table["share_outside"], 1.0, rtol=1e-12)
    for case in (0, 1):
        one = table.isel(case=case)
        elements = int(one["n_rows"] * one["n_columns"]) * 40
        often = one["density_law"].values * width[case] * elements > 100
        off = np.abs(one["density"] - one["density_law"]).values
        assert often.sum() > 40
        assert np.all(off[often] < 5 * one["density_standard_error"].values[often])
    assert np.isnan(table["density_law"].values[2]).all()


@pytest.mark.parametrize(("cases", "options", "name"), [
    ([], {}, "cases"), ((8, 9), {}, "d_head"), ((8, 2.0), {}, "cases"), ([low_rank_product(8, 2)], {}, "ensemble"),
    ("gpt2", {}, "cases"), ((8, 2), {"draws": 1}, "draws"), ((8, 2), {"seed": -1}, "seed"),
    ((8, 2), {"bins": 0}, "bins"), ((8, 2), {"range": (1, 0)}, "range"),
])  # fmt: skip
def test_a_table_of_bad_parameters_is_refused(cases, options, name):
    with pytest.raises(ParameterError, match=name):
        element_baseline(cases, **{"draws": 2, **options})
