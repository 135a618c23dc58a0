"""Figures of the sources show what the words of the sources say, in colours that can be told apart."""

from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from scipy import stats

import rmtbase
from rmtbase.results.figures import figures
from studies.sources import corner, cross_drawing, null, post2_drawing
from studies.sources import course as course_module
from studies.sources import turning as turning_module
from studies.sources.__main__ import _command, folder_of
from studies.sources.course import PYTHIA_SHOWN, PYTHIA_STEPS, checkpoints_pooled, checkpoints_shown
from studies.sources.drawing import MANY, MARKERS, TINT, canvas, light_band, looks
from studies.sources.heads import Heads, Measured
from studies.sources.manifests import Planned, sets
from studies.sources.post2 import _averages
from studies.sources.recipe import Run
from studies.sources.sets import readings
from studies.sources.turning import turning_point

DICHROMATS = {
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
"""Of linear sRGB: Machado, Oliveira & Fernandes (2009), severity 1."""


def lab(colour, sight=None):
    """CIELAB of an sRGB colour (D65), as it is seen."""
    encoded = np.array(to_rgb(colour))
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    if sight is not None:
        linear = np.clip(np.array(DICHROMATS[sight]) @ linear, 0.0, 1.0)
    to_xyz = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
                       [0.0193339, 0.1191920, 0.9503041]])  # fmt: skip
    ratio = to_xyz @ linear / to_xyz.sum(axis=1)
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def ciede2000(first, second):
    """Colour difference of Sharma, Wu & Dalal (2005), in their notation."""
    (l1, a1, b1), (l2, a2, b2) = first, second
    mean_c = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    g = 0.5 * (1 - np.sqrt(mean_c**7 / (mean_c**7 + 25.0**7)))
    c1, c2 = np.hypot((1 + g) * a1, b1), np.hypot((1 + g) * a2, b2)
    h1, h2 = (np.degrees(np.arctan2(b, (1 + g) * a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    dh = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    if c1 * c2 == 0:
        mean_h = h1 + h2
    elif abs(h1 - h2) <= 180:
        mean_h = (h1 + h2) / 2
    else:
        mean_h = (h1 + h2 + (360 if h1 + h2 < 360 else -360)) / 2
    mean_l, mean_c = (l1 + l2) / 2, (c1 + c2) / 2
    t = (1 - 0.17 * np.cos(np.radians(mean_h - 30)) + 0.24 * np.cos(np.radians(2 * mean_h))
         + 0.32 * np.cos(np.radians(3 * mean_h + 6)) - 0.20 * np.cos(np.radians(4 * mean_h - 63)))  # fmt: skip
    sl = 1 + 0.015 * (mean_l - 50) ** 2 / np.sqrt(20 + (mean_l - 50) ** 2)
    sc, sh = 1 + 0.045 * mean_c, 1 + 0.015 * mean_c * t
    turn = 30 * np.exp(-(((mean_h - 275) / 25) ** 2))
    rt = -np.sin(np.radians(2 * turn)) * 2 * np.sqrt(mean_c**7 / (mean_c**7 + 25.0**7))
    lightness, chroma = (l2 - l1) / sl, (c2 - c1) / sc
    hue = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(dh / 2)) / sh
    return np.sqrt(lightness**2 + chroma**2 + hue**2 + rt * chroma * hue)


@pytest.mark.parametrize(
    ("first", "second", "published"),
    [((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425), ((50, 2.5, 0), (73, 25, -18), 27.1492),
     ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
     ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
     ((50, -0.001, 2.49), (50, 0.0011, -2.49), 4.7461)],
)  # fmt: skip
def test_differences_of_colours_are_those_of_sharma_and_others(first, second, published):
    assert ciede2000(first, second) == pytest.approx(published, abs=1e-4)


def test_fourteen_models_can_be_told_apart_with_any_sight():
    colours = [look["color"] for look in looks(14)]
    pairs = list(combinations(colours, 2))
    assert min(ciede2000(lab(one), lab(other)) for one, other in pairs) > 20
    for sight in DICHROMATS:
        assert min(ciede2000(lab(one, sight), lab(other, sight)) for one, other in pairs) > 12
        assert min(ciede2000(lab(one, sight), lab(TINT, sight)) for one in colours) > 22
    rainbow = mpl.colormaps["turbo"](np.linspace(0.03, 0.95, 14))[:, :3]  # of which some greens cannot be told apart
    assert min(ciede2000(lab(one), lab(other)) for one, other in combinations(rainbow, 2)) < 9
    marks = {(look["color"], look["marker"]) for look in looks(14)}
    assert len(marks) == 14 and len(MANY) % len(MARKERS) != 0  # beyond fourteen, a colour has another mark


def test_bands_that_overlap_are_no_darker_than_one_and_of_one_tint():
    shades = []
    for number in (1, 14):
        figure, ((ax,),) = canvas(1, 1, 2.0, 2.0)
        for _ in range(number):
            light_band(ax, [0.0, 1.0], [0.0, 0.0], [1.0, 1.0])
        ax.grid(False)
        pixels = _pixels(figure)
        middle = pixels[pixels.shape[0] // 2, pixels.shape[1] // 2]
        shades.append(middle[:3].tolist())
    assert shades[0] == shades[1] == pytest.approx((255 * np.array(to_rgb(TINT))).tolist(), abs=1)
    assert lab(TINT)[0] > 80

    def fake(number):
        value = np.full((3, 4), 0.8 + 0.001 * number)
        one = Measured(value, np.full((3, 4), 0.8), np.full((3, 4), 0.02))
        return SimpleNamespace(label=f"m{number}", eigenvalues=np.ones((3, 4, 8)), d_head=8, spectral=lambda name: one)

    figure = cross_drawing.statistic_by_layer([fake(k) for k in range(14)], "normalized_participation_ratio")
    for ax in figure.axes:
        assert len(ax.collections) == 14
        faces = np.concatenate([one.get_facecolor() for one in ax.collections])
        assert faces[:, 3] == pytest.approx(1.0) and np.ptp(faces, axis=0) == pytest.approx(0.0)


def _pixels(figure):
    drawn = FigureCanvasAgg(figure)
    drawn.draw()
    return np.asarray(drawn.buffer_rgba())


@pytest.fixture(scope="module")
def scores():
    """Kept scores of a small model: two layers of four heads, of shape (64, 16)."""
    return rmtbase.open_table(Path(__file__).resolve().parents[1] / "data" / "scores.nc")


def test_figure_2_has_the_zeros_the_kink_and_a_logarithmic_density(scores):
    heads, d_model, h = scores["heads"].to_dataset(), 64, 16
    figure = post2_drawing.two_heads(scores, [(1, 1), (0, 0)])
    left, right, *below = figure.axes[:4]
    assert left.get_title().startswith("as published") and below[0].get_title().startswith("corrected")
    for line, place, colour in zip(left.lines[:2], ((1, 1), (0, 0)), ("#0072b2", "#d55e00"), strict=True):
        own = heads["eigenvalue"].values[place]
        assert line.get_ydata() == pytest.approx(np.concatenate([own, np.zeros(d_model - h)]))
        assert line.get_color() == colour  # the MP-like head blue, the outlier red, as in the caption
    assert left.get_xlim()[1] > h and left.get_yscale() == "linear"
    assert (right.get_xscale(), right.get_yscale()) == ("linear", "log")
    steps, edges, _ = right.patches[0].get_data()
    near_zero = d_model - h + np.count_nonzero(heads["eigenvalue"].values[1, 1] < edges[1])
    assert steps[0] == pytest.approx(near_zero / d_model / edges[1])
    assert edges[0] == 0.0


def test_figures_3_and_4_show_zeros_that_are_off_the_colour_scale(scores):
    spectra = post2_drawing.spectra_of(scores)
    ranks = post2_drawing.ranks_of_all(scores).axes[0].collections[0]
    cells = ranks.get_array()
    assert cells.shape == (8, 24) and np.ma.getmaskarray(cells)[:, 16:].all()
    assert not np.ma.getmaskarray(cells)[:, :16].any()
    assert cells[:, :16].data == pytest.approx(spectra.value)
    densities = post2_drawing.densities_of_all(scores).axes[0].collections[0]
    cells = densities.get_array()
    assert (cells[:, 0] > densities.norm.vmax).all()  # the bin of the zeros
    assert cells[:, 1:].max() <= densities.norm.vmax
    width = post2_drawing._BINS // 2 / float(np.nanquantile(spectra.value, 0.99))
    assert cells.filled(0.0).sum(axis=1) / width == pytest.approx(1.0)


def test_figure_10_is_logarithmic_always_and_has_the_average(scores):
    name = "by-layer-condition-number"
    figure = figures(scores, names=[name])[name]
    assert figure.axes[0].get_yscale() == "linear"  # of random heads it would be
    _averages(scores, {name: figure})
    heads = scores["heads"].to_dataset().transpose("layer", "head", ...)
    for ax, statistic in zip(figure.axes, ("condition_number", "condition_number_singular"), strict=True):
        assert ax.get_yscale() == "log"
        mean = heads["observed"].sel(statistic=statistic).values.mean(axis=1)
        assert ax.lines[-1].get_ydata() == pytest.approx(mean) and ax.lines[-1].get_linestyle() == "--"


def test_figure_20_has_the_colours_of_the_post_and_limits_that_are_seen(scores):
    models = [Heads(corner.LLAMA, scores), Heads(corner.MISTRAL, scores)]
    figure = corner.moment_corner(models)
    assert len(figure.axes) == 16
    of_width, of_skewness, of_kurtosis = (figure.axes[place] for place in (4, 9, 14))
    colours = {line.get_label(): line.get_color() for line in of_width.lines}
    assert (colours[corner.LLAMA], colours[corner.MISTRAL]) == ("#d97000", "#0072b2")
    assert ciede2000(lab("#d97000"), lab("#ff7f0e")) < 10  # orange
    sigma = scores["heads/elements"].dataset.sel(component="W_QK")["sigma"].values
    assert of_width.lines[0].get_ydata() == pytest.approx(sigma.ravel())
    assert max(abs(of_width.lines[0].get_xdata())) < 1e-2  # μ itself, not over σ
    for ax in (of_width, of_skewness):
        for line in [one for one in ax.lines if str(one.get_label()).startswith("limit")]:
            x, y = line.get_data()
            (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
            assert ((x > left) & (x < right) & (y > low) & (y < high)).sum() > 20
    (bound,) = [line for line in of_kurtosis.lines if line.get_color() == "#008a64"]
    x, y = bound.get_data()
    assert y == pytest.approx(x**2 + 1.0)
    assert of_kurtosis.get_ylim()[0] < 1.0


@pytest.mark.parametrize("weight", corner.WEIGHTS)
def test_limits_of_mixtures_are_those_of_their_moments(weight):
    sigma = 0.02
    mean, std, skewness = corner.mixture_limit(weight, sigma)
    assert std**2 == pytest.approx((1 - weight) * (sigma**2 + mean**2 / weight))
    place = mean / weight
    third = weight * (place - mean) ** 3 + (1 - weight) * (-mean * (mean**2 + 3 * sigma**2))
    assert skewness == pytest.approx(third / std**3, abs=1e-9)


def test_as_published_lambda_is_the_singular_value_and_the_zeros_are_there():
    h, d = 50, null.D_MODEL
    law = SimpleNamespace(support=(4.0, 400.0))
    values = np.linspace(20.0, 2.0, h)[None].repeat(5, axis=0)
    elements = xr.Dataset({"bin_edge": ("edge", [-1.0, 0.0, 1.0]), "density": ("bin", [0.5, 0.5])})
    case = null.Case("h", values, elements, law, stats.norm(scale=0.3))
    _, (axes,) = canvas(1, 3)
    null._as_published(axes, [case], d, "W_{QK}")
    assert "singular value" in axes[1].get_ylabel() and "singular value" in axes[2].get_xlabel()
    every = axes[1].lines[0].get_ydata()
    assert every == pytest.approx(np.concatenate([values[0], np.zeros(d - h)]))
    density, edges, _ = axes[2].patches[0].get_data()
    assert (density * np.diff(edges)).sum() == pytest.approx(h / d)  # the rest is the bar at zero
    bar = axes[2].patches[1]
    assert bar.get_height() / axes[2].get_ylim()[1] == pytest.approx(1 - h / d)
    lines = sorted(line.get_xdata()[0] for line in axes[2].lines if line.get_linestyle() == ":")
    assert lines == pytest.approx(null.published_edges(d, h))  # of s, not squared


def test_a_run_of_a_set_is_named_by_that_set_and_reads_the_pooled_checkpoints(tmp_path):
    (cross,) = (one for one in sets()["post2"] if one.recipe == "cross")
    run = Run(cross.models[0], False, tmp_path, tmp_path, cross.models)
    for name in ("post1", "post2"):
        assert folder_of(cross.models, name) == name
        assert _command(["cross"], run, name) == f"python -m studies.sources cross --model set:{name}"
    assert folder_of(cross.models) == folder_of(cross.models, "weibull") == "post1"
    one = Run("gpt2", False, tmp_path, tmp_path, ("gpt2",))
    assert _command(["post2"], one, "post2").endswith("post2 --model gpt2")
    run = Run("EleutherAI/pythia-70m", False, tmp_path, tmp_path)
    assert len(PYTHIA_STEPS) == 14 and {4000, 32000, 1, 143000} <= {*PYTHIA_STEPS}
    assert [at.step for at in checkpoints_pooled(run)] == [*PYTHIA_STEPS]
    other = Run("EleutherAI/pythia-160m", False, tmp_path, tmp_path)
    assert checkpoints_pooled(other) == checkpoints_shown(other)
    read = readings(run, [Planned("weibull", ("EleutherAI/pythia-70m",))])
    pooled = {one.revision for one in read if one.what == "transmission"}
    assert pooled == {f"step{step}" for step in (*PYTHIA_STEPS, *PYTHIA_SHOWN)}


def test_a_turn_is_found_and_flat_courses_have_none():
    # 2 000 courses of 14 checkpoints. False failure of either count at its nominal 5 %: 4e-5.
    rng, steps = np.random.default_rng(14), np.array(PYTHIA_STEPS, dtype=float)
    shape = 1.183 - 0.02 * (np.log(steps / 4000) / np.log(1000)) ** 2
    missed = turns = named = 0
    for _ in range(2_000):
        error = np.full(14, 3e-4)
        course = turning_point(steps, shape + error * rng.standard_normal(14), error)
        missed += not course.low < 4000 < course.high
        named += course.is_turn
        turns += turning_point(steps, 1.2 + error * rng.standard_normal(14), error).is_turn
    most = 0.05 * 2_000 + 4 * np.sqrt(2_000 * 0.05 * 0.95)
    assert missed < most and turns < most
    assert named > 1_900
    rising = turning_point(steps, np.arange(14.0), np.full(14, 0.1))
    assert not rising.is_turn and rising.high == steps[-1]


def test_the_error_of_a_pooled_fit_is_that_of_simulated_weights():
    # 400 samples of two matrices of unequal σ. The error of k̂ is right to four of its own errors, that of λ̂ too large
    # by a fifth at most: that of a mixture counts that the number of weights of each σ would be drawn as well.
    rng, number, sigma = np.random.default_rng(15), (4_000, 5_000), (0.03, 0.01)
    state = SimpleNamespace(number=np.array([number]), whole=np.zeros(2))
    state.mixture = lambda: course_module.Transmission.mixture(
        SimpleNamespace(number=np.array([number], dtype=float), sigma=np.array([sigma]))
    )
    member = SimpleNamespace(pooled=[(SimpleNamespace(step=step), state) for step in (0, 1, 2)])
    fits = turning_module.pooled_fits(member)
    n = sum(number)
    p = (np.arange(n) + 0.5) / n
    kept = (p >= 0.1) & (p <= 0.9)
    y = np.log(-np.log1p(-p[kept]))
    found = []
    for _ in range(400):
        w = np.concatenate([s * rng.standard_normal(size) for s, size in zip(sigma, number, strict=True)])
        slope, intercept = np.polyfit(np.log(np.sort(np.abs(w)))[kept], y, 1)
        found.append([slope, np.exp(-intercept / slope)])
    off = 4 / np.sqrt(2 * 400)
    for one, values, least in zip(fits, np.transpose(found), (1.0, 0.8), strict=True):
        assert least - off < values.std() / one.error[0] < 1.0 + off
        assert values.mean() == pytest.approx(one.null[0], abs=4 * one.error[0] / np.sqrt(400))
