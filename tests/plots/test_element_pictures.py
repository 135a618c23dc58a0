"""Elements of random matrices: what is drawn is what the table holds, on axes that can be compared."""

import numpy as np
import pytest
from compact_atlas import compact_baseline

import rmtbase
from rmtbase.ensembles import gaussian_matrix
from rmtbase.errors import ParameterError
from rmtbase.montecarlo import element_baseline
from rmtbase.results.baseline.figures import element_density
from rmtbase.results.figures import figures
from rmtbase.tables import write_table


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


def test_the_law_is_drawn_where_there_is_one(elements):
    (law,) = element_density(elements, 0).lines[-1:]
    unit = float(elements["mean"].sel(statistic="std")[0])
    np.testing.assert_allclose(law.get_ydata(), elements["density_law"].values[0] * unit)


def test_panels_share_an_axis_that_begins_below_all_of_them(elements):
    panels = figures(elements)["elements"].axes
    assert len(panels) == 2
    assert len({ax.get_ylim() for ax in panels}) == 1
    densities = [row["density"].values * row["mean"].sel(statistic="std").item() for _, row in elements.groupby("case")]
    lowest = min(of_one[of_one > 0].min() for of_one in densities)
    assert panels[0].get_ylim()[0] == pytest.approx(0.5 * lowest)
    for ax in panels:  # which are filled down to the axis
        assert ax.patches[0].get_data().baseline < 0.5 * lowest


def test_a_name_is_no_mathematics_whatever_it_holds(elements):
    hostile = elements.assign(name=("case", [r"$\frac{" + "x" * 1000, r"a $ \b"]))
    first, second = (element_density(hostile, case) for case in range(2))
    for ax in (first, second):
        ax.figure.canvas.draw()
    assert len(first.get_title().splitlines()) <= 6
    assert second.get_title() == r"a \$ \b"


def test_other_tables_are_refused():
    table = compact_baseline(rmtbase.baseline(32, 8, draws=20, normalization="none"))
    with pytest.raises(ParameterError, match="atlas"):
        figures(table)


def test_command_draws_them(elements, run, tmp_path):
    ended = run("plot", write_table(elements, tmp_path / "elements.nc"), "-o", tmp_path / "pictures")
    assert ended.status == 0, ended.err
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["elements-elements.png"]
