"""A training run in pictures: along its steps, and moving on axes that stay as they are."""

import os
import stat

import numpy as np
import pytest
from drawn_parts import bands, line
from PIL import Image
from scored_model import D_HEAD, LAYERS

from exhaustive import mostly_exhaustive
from rmtbase.errors import OutputError, ParameterError
from rmtbase.results.figures import figure_names, figures
from rmtbase.results.scores.figures._element_histograms import magnitudes_along_steps, weibull_plane
from rmtbase.results.trajectory.figures import _along_steps
from rmtbase.results.trajectory.figures._along_steps import departures, spectra_along_steps, statistic_along_steps
from rmtbase.results.trajectory.figures._animation import animation, animation_of, save_animation
from rmtbase.tables import write_table

STEPS = [0, 10, 200]


def test_each_head_is_a_line_over_its_null_on_an_axis_from_where_the_run_begins(training, monkeypatch):
    heads = training["heads"].to_dataset().sel(statistic="stable_rank")
    ax = statistic_along_steps(training, "stable_rank")
    own = heads["observed"].values.reshape(len(STEPS), -1)
    np.testing.assert_array_equal([one.get_ydata() for one in ax.lines], own.T)
    (band,) = bands(ax).values()
    ends = heads["null_quantile"].sel(probability=[0.025, 0.975])
    assert band.get_paths()[0].vertices[:, 1].min() == pytest.approx(float(ends.min()))
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(float(ends.max()))
    monkeypatch.setattr(_along_steps, "_MOST_LINES", 1)
    many = statistic_along_steps(training, "stable_rank")
    np.testing.assert_allclose(line(many, "median head").get_ydata(), np.nanmedian(own, axis=1))
    ax = statistic_along_steps(training, "stable_rank")
    assert ax.get_xlim()[0] < 0 < 200 < ax.get_xlim()[1]
    ax.get_figure().draw_without_rendering()
    assert {"0", "1", "10", "100"} <= {label.get_text() for label in ax.get_xticklabels()}
    later = training.isel(step=[1, 2])
    later.attrs = training.attrs
    assert statistic_along_steps(later, "stable_rank").get_xscale() == "log"


def test_matrices_have_their_own_statistics_ways_in_the_plane_and_magnitudes(training):
    ax = statistic_along_steps(training, "weibull_shape", "matrices")
    table = training["matrices"].to_dataset()["observed"].sel(statistic="weibull_shape", component="mlp_in")
    np.testing.assert_allclose(line(ax, "mlp in").get_ydata(), table.median("layer"))
    assert statistic_along_steps(training, "sigma", "matrices").get_ylabel()
    plane = weibull_plane(training)
    ways = [one for one in plane.lines if len(one.get_xdata()) == len(STEPS) and one.get_linestyle() != "None"]
    assert len(ways) == training["matrices"].sizes["component"]
    ax = magnitudes_along_steps(training, "mlp_in")
    low, _, high = (10.0 ** float(one.get_ydata()[0]) for one in ax.lines)
    one = training["matrices"].to_dataset().sel(layer=LAYERS // 2, component="mlp_in").isel(step=0)
    share = one["log_magnitude_histogram"].values * 0.1
    ends = 10.0 ** (one["magnitude_bin"].values[:, None] + [-0.05, 0.05])
    assert share[ends[:, 1] < low].sum() < 0.01
    assert share[ends[:, 0] > high].sum() < 0.01
    assert share[(ends[:, 1] > low) & (ends[:, 0] < high)].sum() > 0.99
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "10", "200"]


def test_frames_of_one_s_own_keep_the_axes_of_all(tmp_path):
    def frame(top, *, ax, theme):
        ax.plot([0, top], [0, top], color=theme.observed)
        return ax

    moving = animation_of([0, 5], [lambda **axes: frame(1.0, **axes), lambda **axes: frame(9.0, **axes)], "own")
    limits = {moving.frame(place).axes[0].get_xlim() for place in range(2)}
    assert len(limits) == 1
    assert limits.pop()[1] >= 9.0
    path = save_animation(moving, tmp_path / "own.gif", dpi=40)
    with Image.open(path) as image:
        assert image.n_frames == len(moving) == 2
    with pytest.raises(ParameterError, match="2 steps"):
        animation_of([0, 5], moving.draws[:1])


def test_heads_depart_where_the_file_says_and_untested_ones_do_not_stand_at_never(training):
    ax = departures(training)
    (marks,) = [one for one in ax.lines if "random heads (" in one.get_label()]
    lasting = training["departures"]["lasting_step"].values[0].ravel()
    found = np.sort(marks.get_xdata()[marks.get_xdata() <= 200])
    np.testing.assert_array_equal(found, np.sort(lasting[np.isfinite(lasting)]))
    out = int(np.isfinite(lasting).sum())
    assert f"({out} of {marks.get_xdata().size} testable differ)" in marks.get_label()
    assert "never" in [label.get_text() for label in ax.get_xticklabels()]
    (lines,) = ax.collections  # from the checkpoint before
    ends = np.array([segment[:, 0] for segment in lines.get_segments()])
    steps = training["heads"]["step"].values.tolist()
    assert len(ends) == (lasting > steps[0]).sum() > 0
    assert all(steps.index(low) == steps.index(high) - 1 for low, high in ends)
    changed = training.copy(deep=True)
    for name in ("omnibus_q_value", "omnibus_p_value"):
        changed["departures"][name].values[-1, 0, 0, 1] = np.nan
    changed["departures"]["lasting_step"].values[0, 0, 1] = np.nan
    ax = departures(changed)
    heads = int(training["departures"]["omnibus_q_value"].isel(step=-1).notnull().sum())
    (marks,) = [one for one in ax.lines if "random heads (" in one.get_label()]
    assert marks.get_xdata().size == heads - 1 and f"of {heads - 1} testable differ" in marks.get_label()
    cross = line(ax, "not testable")
    assert cross.get_xdata().size == 2 and cross.get_xdata()[0] > marks.get_xdata().max()
    assert [label.get_text() for label in ax.get_xticklabels()][-2:] == ["never", "not\ntestable"]


def test_spectra_are_over_the_null_s_median_and_a_training_run_has_its_figures(training):
    ax = spectra_along_steps(training)
    assert ax.get_title() == "layer 2 head 1"  # whose largest eigenvalue is the farthest
    heads, null = training["heads"].to_dataset(), training["null"].to_dataset()
    scale = (heads["sigma_q"] * heads["sigma_k"]).sel(layer=2, head=1).values ** 2
    own = heads["eigenvalue"].sel(layer=2, head=1).values / scale[:, None]
    expected = own / null["eigenvalue_quantile"].sel(probability=0.5).values
    np.testing.assert_allclose(np.array([one.get_ydata() for one in ax.lines]).T, expected)
    assert len(ax.lines) == D_HEAD
    names = figure_names(training)
    drawn = figures(training, width=3.4)
    assert list(drawn) == [name for name, standard in names.items() if standard]
    assert list(drawn) == [
        "moved-share-along-steps",
        "statistics-along-steps", "departures", "spectra-along-steps", "matrices-along-steps", "weibull-plane",
    ]  # fmt: skip
    assert {"along-steps-stable_rank", "matrices-along-steps-sigma"} <= set(names)


@pytest.mark.parametrize(
    "what", mostly_exhaustive(["spectra", "weibull-plane", "stable_rank", "weibull_shape"], always=2)
)
def test_every_frame_has_the_same_axes_and_the_null(what, training):
    moving = animation(training, what, width=3.4)
    assert moving.steps == tuple(STEPS)
    axes = [moving.frame(place).axes[0] for place in range(len(moving))]
    assert len({(*ax.get_xlim(), *ax.get_ylim(), ax.get_xscale(), ax.get_yscale()) for ax in axes}) == 1
    assert len({ax.get_position().bounds for ax in axes}) == 1
    assert len({tuple(ax.get_figure().get_size_inches()) for ax in axes}) == 1
    for ax, step in zip(axes, STEPS, strict=True):
        assert "null" in " ".join(ax.get_legend_handles_labels()[1])
        assert ax.get_figure().get_suptitle().endswith(f"step {step}")


@pytest.mark.exhaustive
def test_a_gif_has_a_frame_for_each_step_and_the_same_bytes_each_time(training, tmp_path):
    moving, path = animation(training, "stable_rank", width=2.5), tmp_path / "run.gif"
    assert save_animation(moving, path, dpi=40) == path
    first = path.read_bytes()
    with Image.open(path) as image:
        assert image.n_frames == len(STEPS)
        assert image.size == tuple(int(side * 40) for side in moving.frame(0).get_size_inches())
    save_animation(animation(training, "stable_rank", width=2.5), path, dpi=40)
    assert path.read_bytes() == first


def test_what_cannot_be_a_moving_picture_is_refused_with_what_there_is(training, tmp_path, monkeypatch, with_elements):
    moving = animation(training, "stable_rank", width=2.5)
    for name, options, words in (
        ("run.avi", {}, "gif or mp4"),
        ("run", {}, "gif or mp4"),
        ("run.gif", {"dpi": 1e5}, "dpi"),
        ("run.gif", {"frames_per_second": 0}, "frames_per_second"),
    ):
        with pytest.raises(ParameterError, match=words):
            save_animation(moving, tmp_path / name, **options)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ParameterError, match="ffmpeg, which makes an MP4, is not on the PATH"):
        save_animation(moving, tmp_path / "run.mp4")
    (tmp_path / "run.gif").write_text("my notes")
    with pytest.raises(OutputError, match="no GIF"):
        save_animation(moving, tmp_path / "run.gif")
    assert [path.name for path in tmp_path.iterdir()] == ["run.gif"]
    for options, words in (
        ({"what": "alpha"}, "spectra, weibull-plane, largest_eigenvalue"),
        ({"width": 100.0}, "inches"),
    ):
        with pytest.raises(ParameterError, match=words):
            animation(training, **options)
    with pytest.raises(ParameterError, match="trajectory"):
        animation(with_elements["learned"])


@pytest.mark.skipif(os.name != "posix", reason="a shell script stands for ffmpeg")
def test_ffmpeg_is_given_every_frame_and_its_failure_is_told(training, tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "ffmpeg"
    program.write_text('#!/bin/sh\nls *.png | wc -l > frames.mp4\nfor one; do echo "$one"; done >> frames.mp4\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    moving = animation(training, "stable_rank", width=2.5)
    path = save_animation(moving, tmp_path / "run.mp4", dpi=30, frames_per_second=4)
    said = path.read_text().split()
    assert said[0] == str(len(STEPS))
    assert said[said.index("-framerate") + 1] == "4"
    assert "yuv420p" in said
    program.write_text("#!/bin/sh\necho no such codec >&2\nexit 1\n")
    with pytest.raises(OutputError, match=r"ffmpeg failed \(no such codec\); write a GIF"):
        save_animation(moving, path, dpi=30, overwrite=True)


def test_the_command_draws_a_run(training, run, tmp_path):
    whole = training.copy()
    del whole["heads"]["elements"]
    file = write_table(whole, tmp_path / "run.nc")
    small = ("--width", "2.5", "--dpi", "30")
    assert run("plot", file, "--animate", "stable_rank", *small, "-o", tmp_path).status == 0
    assert (tmp_path / "run-stable_rank.gif").read_bytes().startswith(b"GIF8")
    for options, words in (
        (("--animate", "spectra", "-o", "-"), "cannot be written to stdout"),
        (("--animate", "spectra", "--only", "departures"), "none with --animate"),
        (("--only", "along-steps-alpha"), "along-steps-stable_rank"),
    ):
        ended = run("plot", file, *options)
        assert (ended.status, ended.err.count("\n")) == (2, 1)
        assert words in ended.err
    ended = run("plot", file, "--only", "departures,along-steps-stable*", *small, "-o", tmp_path / "some")
    assert ended.status == 0
    names = sorted(path.stem for path in (tmp_path / "some").iterdir())
    assert names == ["run-along-steps-stable_rank", "run-along-steps-stable_rank_singular", "run-departures"]
