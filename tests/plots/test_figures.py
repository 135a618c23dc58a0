import inspect
import subprocess
import sys
from itertools import combinations

import matplotlib
import numpy as np
import pytest
import xarray as xr
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase.drawing.axes import new_axes, new_figure
from rmtbase.drawing.color_scales import Z_LEVELS
from rmtbase.drawing.layout import fit_figure
from rmtbase.drawing.null_curves import Histogram, add_density, null_spectrum
from rmtbase.drawing.theme import DARK, LIGHT, PRINT
from rmtbase.errors import ParameterError
from rmtbase.results.figures import figure_names, figures, plot


def test_a_baseline_has_two_figures_for_each_shape_whatever_the_sigmas_and_one_of_all(baseline):
    assert list(figures(baseline)) == [
        "null-spectrum-32x8",
        "ordered-eigenvalues-32x8",
        "null-spectrum-24x6",
        "ordered-eigenvalues-24x6",
        "baseline",
    ]
    with pytest.raises(ParameterError, match="null-spectrum-"):
        plot(baseline, "no-such-figure")
    with pytest.raises(ParameterError, match="baseline table"):
        figures(xr.Dataset({"x": ("day", [1.0])}))


STANDARD = [
    "moved-share-map",
    "omnibus-map",
    "heads-by-statistic",
    "z-heat-map",
    "ordered-eigenvalues",
    "statistics-by-layer",
    "p-value-qq",
    "null-spectrum",
    "matrix-z-heat-map",
    "weibull-by-layer",
]


def test_scores_have_their_standard_figures(learned):
    assert [name for name, standard in figure_names(learned).items() if standard] == STANDARD
    tree = learned.copy()
    del tree["matrices"]
    assert "matrix-z-heat-map" not in figure_names(tree)


@pytest.mark.exhaustive
def test_nulls_of_the_heads_own_have_figures_of_what_they_do_not_hold_fixed(resampled):
    drawn = figures(resampled)
    assert list(drawn) == [name for name in STANDARD if name not in ("heads-by-statistic", "null-spectrum")]
    for figure in drawn.values():
        figure.draw_without_rendering()
    titles = " ".join(ax.get_title() for ax in drawn["z-heat-map"].axes)
    assert "trace" in titles and "log-determinant" not in titles


@pytest.mark.parametrize("wide", mostly_exhaustive([3.4, 7.0], always={3.4}))
@pytest.mark.parametrize("which", mostly_exhaustive(["learned", "baseline"], always=1))
def test_at_the_width_of_a_column_or_a_page_nothing_is_cut_and_no_text_meets_another(which, wide, request):
    table = request.getfixturevalue(which)
    drawn_figures = figures(table, theme="print", width=wide)
    assert list(drawn_figures) == [name for name, standard in figure_names(table).items() if standard]
    for name, figure in drawn_figures.items():
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        width, height = figure.get_size_inches()
        drawn = figure.get_tightbbox(renderer)
        assert width == wide
        assert -0.02 < drawn.x0 < drawn.x1 < width + 0.02, name
        assert -0.02 < drawn.y0 < drawn.y1 < height + 0.02, name
        named = [(ax.title, ax.xaxis.label, ax.yaxis.label) for ax in figure.axes]
        ticks = [(*ax.get_yticklabels(),) for ax in figure.axes]
        for texts in (sum(named, ()), *ticks):
            for one, other in combinations([text for text in texts if text.get_text()], 2):
                boxes = [text.get_window_extent(renderer) for text in (one, other)]
                assert not Bbox.intersection(*boxes), (name, one, other)


@pytest.fixture(scope="module")
def small():
    """A baseline at a scale of trained weights, whose numbers are far from one."""
    return rmtbase.baseline([32, 24], [8, 6], [0.02, 0.03], draws=500)


def shown_ticks(axis, renderer):
    low, high = sorted(axis.get_view_interval())
    ticks = [tick for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()) if low <= tick.get_loc() <= high]
    labels = [tick.label1 for tick in ticks if tick.label1.get_visible() and tick.label1.get_text()]
    return labels, [label.get_window_extent(renderer) for label in labels]


def test_tick_labels_of_small_numbers_are_few_and_do_not_touch_and_the_label_names_their_power_of_ten(small):
    said = []
    for name, figure in figures(small, theme="print", width=3.4, names=["*"]).items():
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        for axis in (one for ax in figure.axes for one in (ax.xaxis, ax.yaxis)):
            labels, boxes = shown_ticks(axis, renderer)
            assert not any(Bbox.intersection(*pair) for pair in combinations(boxes, 2)), (name, labels)
            assert len(labels) <= 5 or axis.get_scale() == "log", (name, labels)
            assert axis.get_offset_text().get_text() == "", name
            said.append(axis.get_label_text().replace("\N{NO-BREAK SPACE}", " "))
    assert any("(in units of $10^{-" in one for one in said)
    assert any(one.startswith(r"density of $\lambda$") for one in said)


def test_names_along_an_axis_that_would_touch_are_turned():
    figure = new_figure(PRINT, 3.4, 3.0)
    ax = new_axes(figure, PRINT)
    ax.set_xlim(-0.5, 5.5)
    ax.set_xticks(range(6), [f"attention\nquery {k}" for k in range(6)])
    fit_figure(figure)
    assert [label.get_rotation() for label in ax.get_xticklabels()] == [45.0] * 6
    assert ax.get_xticklabels()[2].get_text() == "attention query 2"


def test_a_figure_of_the_caller_leaves_room_for_the_labels_of_its_panels(small):
    figure = Figure()
    names = [name for name, standard in figure_names(small).items() if standard and name[-1].isdigit()]
    for ax, name in zip(figure.subplots(2, 2).flat, names, strict=True):
        plot(small, name, ax=ax)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    boxes = [ax.get_tightbbox(renderer) for ax in figure.axes]
    assert not any(Bbox.intersection(*pair) for pair in combinations(boxes, 2))
    assert all(box.x0 > -1 and box.y0 > -1 and box.x1 < figure.bbox.x1 + 1 for box in boxes)
    assert all(ax.bbox.height > 0.15 * figure.bbox.height for ax in figure.axes)
    own = Figure(layout="tight")
    plot(small, next(iter(figure_names(small))), ax=own.subplots())
    assert type(own.get_layout_engine()).__name__ == "TightLayoutEngine"


def test_a_long_name_is_broken_without_a_space_and_a_condition_stays_whole(learned):
    named = learned.copy()
    named.attrs = learned.attrs | {"model": "a $model", "revision": "step 7"}
    assert null_spectrum(named).get_figure().get_suptitle() == r"a \$model, revision step 7"
    named.attrs = learned.attrs | {"model": "a-long-name-of-a-model/" * 2, "revision": "0123456789" * 5}
    drawn = figures(named, width=3.4)
    for figure in drawn.values():
        assert figure.get_suptitle().replace("\n", "").replace(" ", "") == (
            f"{named.attrs['model']},revision{named.attrs['revision']}"
        )
    for ax in drawn["z-heat-map"].axes[:4]:
        assert any("dot: q < 0.05" in " ".join(line.split()) for line in ax.get_title().split("\n"))


def test_a_theme_has_a_name_and_unknown_ones_are_refused_and_nothing_global_is_changed(baseline):
    before = dict(matplotlib.rcParams)
    named, given = (figures(baseline, theme=theme)["null-spectrum-32x8"] for theme in ("dark", DARK))
    assert named.get_facecolor() == given.get_facecolor() == (*to_rgb(DARK.surface), 1.0)
    for draw in (figures, null_spectrum):
        with pytest.raises(ParameterError, match="light, dark, print"):
            draw(baseline, theme="sepia")
        assert "#" not in str(inspect.signature(plot))
    with pytest.raises(ParameterError, match="inches"):
        figures(baseline, width=1e4)
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("which", mostly_exhaustive(["baseline", "learned"], always=1))
def test_plot_draws_each_figure_by_its_name_and_single_ones_on_given_axes(which, request):
    table, on_given = request.getfixturevalue(which), []
    for name, drawn in figures(table).items():
        assert [ax.get_xlabel() for ax in plot(table, name).figure.axes] == [ax.get_xlabel() for ax in drawn.axes]
        own = Figure().subplots()
        try:
            assert plot(table, name, own) is own
        except ParameterError as error:
            assert "lays out a figure of its own" in str(error)
        else:
            assert own.has_data()
            on_given.append(name)
    assert on_given


@pytest.mark.exhaustive
def test_matplotlib_is_loaded_by_plots_alone_and_pyplot_by_nothing():
    code = (
        "import sys, rmtbase; assert 'matplotlib' not in sys.modules; "
        "import rmtbase.results.figures, rmtbase.results.scores.page; assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def linear(rgb):
    c = np.asarray(rgb)
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    low, high = sorted(float(linear(to_rgb(colour)) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK, PRINT])
def test_text_is_readable_and_diverging_colours_grow_stronger_from_the_middle(theme):
    least = {"text": 7, "muted": 4.5, "null": 3, "free_law": 3, "observed": 3, "flagged": 3}
    for role, ratio in least.items():
        assert contrast(getattr(theme, role), theme.surface) >= ratio
    middle = len(Z_LEVELS)
    assert len(theme.diverging) == 2 * middle + 1
    from_middle = [contrast(colour, theme.diverging[middle]) for colour in theme.diverging]
    assert from_middle[: middle + 1] == sorted(from_middle[: middle + 1], reverse=True)
    assert from_middle[middle:] == sorted(from_middle[middle:])


# Machado, Oliveira & Fernandes (2009), severity 1.0, on linear RGB.
PROTAN = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
DEUTAN = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]


def lab(linear_rgb):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear_rgb
    f = np.cbrt(np.clip(xyz / [0.9505, 1.0, 1.089], 0, None))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("theme", [LIGHT, DARK, PRINT])
@pytest.mark.parametrize("deficiency", [np.eye(3), PROTAN, DEUTAN])
def test_colours_stay_apart_for_colour_blind_readers(theme, deficiency):
    def seen(colour):
        return lab(np.clip(np.asarray(deficiency) @ linear(to_rgb(colour)), 0, 1))

    for one, other in (
        (theme.observed, theme.flagged),
        (theme.free_law, theme.naive),
        (theme.diverging[4], theme.diverging[10]),
        (theme.diverging[1], theme.diverging[13]),
    ):
        assert np.linalg.norm(seen(one) - seen(other)) > 20
    page = lab(linear(to_rgb(theme.surface)))[0]  # which sequential colours leave step by step
    away = np.abs(np.array([seen(colour)[0] for colour in theme.sequential]) - page)
    assert (np.diff(away) > 4).all()


def test_errors_of_a_density_end_where_its_bars_do():
    ax = Figure().add_subplot()
    density, error = np.array([1.0, 1e-6, 0.5, 0.0]), np.full(4, 0.1)
    add_density(ax, LIGHT, Histogram(np.arange(5.0), density, error), np.arange(4) + 0.5, lowest=1e-3)
    (errors,) = ax.containers
    (bars,) = errors[2]
    assert [segment[0, 0] for segment in bars.get_segments()] == [0.5, 2.5]
    assert min(segment[:, 1].min() for segment in bars.get_segments()) >= 1e-3
