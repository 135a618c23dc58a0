"""Spectra of any ensemble, and elements of random matrices: what is drawn is what the table holds, on shared axes."""

import numpy as np
import pytest
from compact_atlas import compact_baseline

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase.ensembles import gaussian_matrix
from rmtbase.errors import ParameterError
from rmtbase.montecarlo import element_baseline, make_plan, run_in_memory
from rmtbase.results.baseline.figures import element_density, ensemble_spectrum
from rmtbase.results.figures import figures
from rmtbase.tables import write_table


@pytest.fixture(scope="module")
def chains():
    cases = [{"dims": [16, 16, 16]}, {"dims": [400, 6, 400]}, {"dims": [5, 5, 5, 5]}]
    return run_in_memory(make_plan("gaussian_chain", cases, 300, 1))


@pytest.fixture(scope="module")
def broad(chains):
    return chains.isel(case=[0, 2])


def steps(ax):
    """Heights and edges of the histogram that is drawn."""
    return ax.patches[0].get_data()


@pytest.mark.parametrize("case", mostly_exhaustive(range(3), always=1))
def test_the_area_is_one_and_the_mean_eigenvalue_is_at_one(chains, case):
    heights, edges, _ = steps(ensemble_spectrum(chains, case))
    in_log = np.diff(np.log(edges))
    assert heights @ in_log == pytest.approx(1.0, abs=1e-9)
    assert heights @ (in_log * np.sqrt(edges[1:] * edges[:-1])) == pytest.approx(1.0, rel=0.02)  # by bins' middles


def test_what_lies_outside_is_one_eigenvalue_in_a_thousand(chains):
    ax = ensemble_spectrum(chains, 0)
    heights, edges, _ = steps(ax)
    left, right = ax.get_xlim()
    share = heights * np.diff(np.log(edges))
    assert share[edges[1:] < left].sum() < 1e-3
    assert share[edges[:-1] > right].sum() < 1e-9
    assert 0 < left < 0.1
    assert ax.get_ylim() == (0.0, pytest.approx(1.05 * max(heights.max(), ax.lines[0].get_ydata().max())))


def test_panels_of_spectra_share_axes_logarithmic_where_heights_are_far_apart(broad, chains):
    panels = figures(broad)["spectra"].axes
    alone = [ensemble_spectrum(broad, case) for case in range(2)]
    assert {ax.get_xlim() for ax in panels} == {
        (min(ax.get_xlim()[0] for ax in alone), max(ax.get_xlim()[1] for ax in alone))
    }
    assert {ax.get_ylim() for ax in panels} == {(0.0, max(ax.get_ylim()[1] for ax in alone))}
    assert {ax.get_yscale() for ax in panels} == {"linear"}
    panels = figures(chains)["spectra"].axes
    assert {ax.get_yscale() for ax in panels} == {"log"}
    assert len({ax.get_ylim() for ax in panels}) == 1
    low, high = panels[0].get_ylim()
    for ax in panels:
        assert low < steps(ax)[0].max() < high


def test_long_names_are_broken_into_lines():
    case = {"n_rows": 12, "n_columns": 8, "initializer": "truncated_normal", "std": 0.02}
    table = run_in_memory(make_plan("initialized_matrix", [case], 20, 1))
    lines = ensemble_spectrum(table).get_title().split("\n")
    assert len(lines) > 1
    assert max(map(len, lines)) <= 44


@pytest.fixture(scope="module")
def elements():
    return element_baseline([(24, 4), gaussian_matrix(12, 8, method="dense")], 20, bins=30)


@pytest.mark.parametrize("case", range(2))
def test_the_density_is_that_of_the_table_in_units_of_its_spread(elements, case):
    row = elements.isel(case=case)
    heights, edges, _ = element_density(elements, case).patches[0].get_data()
    held = row["density"].values > 0
    unit = float(row["mean"].sel(statistic="std"))
    np.testing.assert_allclose(edges, row["bin_edge"].values / unit)
    np.testing.assert_allclose(heights[held], row["density"].values[held] * unit)
    assert heights[held] @ np.diff(edges)[held] == pytest.approx(1.0 - float(row["share_outside"]))


def test_the_law_is_drawn_and_panels_share_an_axis_that_begins_below_all_of_them(elements):
    (law,) = element_density(elements, 0).lines[-1:]
    unit = float(elements["mean"].sel(statistic="std")[0])
    np.testing.assert_allclose(law.get_ydata(), elements["density_law"].values[0] * unit)
    panels = figures(elements)["elements"].axes
    assert len(panels) == 2
    assert len({ax.get_ylim() for ax in panels}) == 1
    densities = [row["density"].values * row["mean"].sel(statistic="std").item() for _, row in elements.groupby("case")]
    lowest = min(of_one[of_one > 0].min() for of_one in densities)
    assert panels[0].get_ylim()[0] == pytest.approx(0.5 * lowest)
    for ax in panels:  # which are filled down to the axis
        assert ax.patches[0].get_data().baseline < 0.5 * lowest


def test_the_command_draws_names_of_any_kind_and_other_tables_are_refused(elements, run, tmp_path):
    hostile = elements.assign(name=("case", [r"$\frac{" + "x" * 1000, r"a $ \b"]))
    first, second = (element_density(hostile, case) for case in range(2))
    for ax in (first, second):
        ax.figure.canvas.draw()
    assert len(first.get_title().splitlines()) <= 6
    assert second.get_title() == r"a \$ \b"
    table = compact_baseline(rmtbase.baseline(32, 8, draws=20, normalization="none"))
    with pytest.raises(ParameterError, match="atlas"):
        figures(table)
    ended = run("plot", write_table(elements, tmp_path / "elements.nc"), "-o", tmp_path / "pictures")
    assert ended.status == 0, ended.err
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["elements-elements.png"]
