"""Spectra of any ensemble: what is drawn is what the table holds, on axes that can be compared."""

import numpy as np
import pytest

from exhaustive import mostly_exhaustive
from rmtbase.montecarlo import make_plan, run_in_memory
from rmtbase.results.baseline.figures import ensemble_spectrum
from rmtbase.results.figures import figures


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


def test_panels_share_axes_that_hold_all_of_them(broad):
    panels = figures(broad)["spectra"].axes
    alone = [ensemble_spectrum(broad, case) for case in range(2)]
    assert {ax.get_xlim() for ax in panels} == {
        (min(ax.get_xlim()[0] for ax in alone), max(ax.get_xlim()[1] for ax in alone))
    }
    assert {ax.get_ylim() for ax in panels} == {(0.0, max(ax.get_ylim()[1] for ax in alone))}
    assert {ax.get_yscale() for ax in panels} == {"linear"}


def test_panels_of_very_different_heights_share_a_logarithmic_axis(chains):
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
