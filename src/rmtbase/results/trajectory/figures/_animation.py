"""Animations of a training run, with one frame for each step on fixed axes."""

import io
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from rmtbase.drawing.axes import legend_height, new_axes, new_figure
from rmtbase.drawing.figure import FEWEST_DPI, ThemedFigure
from rmtbase.drawing.groups import heads_of, matrices_of
from rmtbase.drawing.layout import FigureStyle, figure_style, fit_figure
from rmtbase.drawing.scales import reach_all
from rmtbase.drawing.texts import literal
from rmtbase.drawing.theme import Theme
from rmtbase.errors import OutputError, ParameterError
from rmtbase.results.scores.figures._eigenvalues import farthest_middle_nearest, ordered_eigenvalues
from rmtbase.results.scores.figures._element_histograms import weibull_plane
from rmtbase.results.scores.figures._statistic_by_layer import matrix_statistic_by_layer, statistic_by_layer
from rmtbase.results.trajectory.schema import scores_at
from rmtbase.shown import in_one_line, one_line
from rmtbase.tables import require_replaceable, require_writable, write_bytes

ANIMATION_FORMATS = ("gif", "mp4")
_MOST_FRAMES = 240
_MOST_PIXELS = 4_000_000  # most pixels of a frame
_LAST = 2.0  # seconds that the last frame of a GIF stays
_ENCODED = (
    "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p",  # required by many players
    "-fflags", "+bitexact", "-flags:v", "+bitexact", "-map_metadata", "-1",  # for reproducible bytes
    "-metadata", "comment=rmtbase",
)  # fmt: skip


@in_one_line
@dataclass(frozen=True)
class Animation:
    """Frames of a training run."""

    steps: tuple[int, ...]  # step of each frame
    # function that draws each frame, with the arguments ``ax`` and ``theme`` of rmtbase's plotting functions
    draws: tuple[Callable[..., Axes], ...]
    title: str  # title of the model
    style: FigureStyle  # theme and width

    def __len__(self) -> int:
        return len(self.steps)

    def frame(self, place: int) -> ThemedFigure:
        """Draw the figure of one step, with the axes of all frames."""
        figure, ax = self._draw(place)
        reach_all(ax, *self._reach)
        figure.set_size_inches(*self._layout[0])
        figure.set_layout_engine("none")
        ax.set_position(self._layout[1])
        return figure

    def _draw(self, place: int) -> tuple[ThemedFigure, Axes]:
        theme, width = self.style.theme, self.style.width or 7.0
        figure = new_figure(theme, width, 0.9 + 0.48 * width, f"{self.title}, step {self.steps[place]}".lstrip(", "))
        ax = self.draws[place](ax=new_axes(figure, theme), theme=theme)
        ax.set_title("")
        return figure, ax

    @cached_property
    def _reach(self) -> tuple[list[tuple[float, ...]], list[tuple[str, str]]]:
        limits, scales = [], []
        for place in range(len(self)):
            _, ax = self._draw(place)
            limits.append((*ax.get_xlim(), *ax.get_ylim()))
            scales.append((ax.get_xscale(), ax.get_yscale()))
        return limits, scales

    @cached_property
    def _layout(self) -> tuple[tuple[float, float], tuple[float, float, float, float]]:
        """Size of the figure and position of its axes, as the last frame needs them."""
        figure, ax = self._draw(len(self) - 1)
        reach_all(ax, *self._reach)
        figure.set_figheight(figure.get_figheight() + legend_height(ax))
        fit_figure(figure)
        figure.draw_without_rendering()
        width, height = figure.get_size_inches()
        return (float(width), float(height)), ax.get_position().bounds


def animation(
    trajectory: xr.DataTree, what: str = "spectra", *, theme: Theme | str = "light", width: float | None = None
) -> Animation:
    """Animate a training run, with the null in every frame."""
    if not isinstance(trajectory, xr.DataTree) or trajectory.attrs.get("kind") != "trajectory":
        raise ParameterError("trajectory", type(trajectory).__name__, "a trajectory; open a file of that kind")
    steps = heads_of(trajectory)["step"].values.tolist()
    places = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), _MOST_FRAMES)).round().astype(int)).tolist()
    draws = [_drawing(trajectory, what, place) for place in places]
    title = trajectory.attrs.get("model", "")
    return animation_of([steps[place] for place in places], draws, title, theme=theme, width=width)


def animation_of(
    steps: Sequence[int],
    draws: Sequence[Callable[..., Axes]],
    title: str = "",
    *,
    theme: Theme | str = "light",
    width: float | None = None,
) -> Animation:
    """Animate custom frames."""
    if not steps or len(steps) != len(draws):
        raise ParameterError("draws", len(draws), f"one for each of the {len(steps)} steps, and one at least")
    return Animation(tuple(map(int, steps)), tuple(draws), literal(title), figure_style(theme, width))


def save_animation(
    moving: Animation,
    path: Path | str,
    *,
    format: str | None = None,
    dpi: float = 100,
    frames_per_second: float = 6.0,
    overwrite: bool = False,
    inputs: Iterable[Path] = (),
) -> Path:
    """Write an animation: a GIF, or an MP4 if ffmpeg is installed. The same frames give the same bytes."""
    path = Path(path)
    kind = format or path.suffix.lower().removeprefix(".")
    if kind not in ANIMATION_FORMATS:
        raise ParameterError("format", kind or str(path), f"{' or '.join(ANIMATION_FORMATS)}, or a name that ends so")
    if not 0 < frames_per_second <= 60:
        raise ParameterError("frames_per_second", frames_per_second, "a positive number up to 60")
    if kind == "mp4" and shutil.which("ffmpeg") is None:
        raise ParameterError("format", "mp4", "gif: the program ffmpeg, which makes an MP4, is not on the PATH")
    require_writable(path)
    require_replaceable(path, kind, overwrite, inputs)
    width, height = moving.frame(0).get_size_inches()
    most = (_MOST_PIXELS / float(width * height)) ** 0.5
    if not FEWEST_DPI <= dpi <= most:
        raise ParameterError("dpi", dpi, f"a number from {FEWEST_DPI} to {most:.0f} for frames of this size")
    images = (_image(moving.frame(place), dpi) for place in range(len(moving)))
    if kind == "gif":
        # The palette of the last frame is that of all, so that static parts are not stored again.
        last = _image(moving.frame(len(moving) - 1), dpi)
        palette = last.quantize(255, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        frames = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
        durations = [round(1000 / frames_per_second)] * (len(frames) - 1) + [round(1000 * _LAST)]
        options = {"append_images": frames[1:], "duration": durations, "loop": 0, "optimize": False}
        stream = io.BytesIO()
        frames[0].save(stream, format="GIF", save_all=True, comment=b"rmtbase", **options)
        return write_bytes(stream.getvalue(), path)
    with tempfile.TemporaryDirectory(prefix="rmtbase-") as folder:
        for place, image in enumerate(images):
            image.save(Path(folder) / f"{place:04d}.png")
        read = ("-framerate", f"{frames_per_second:g}", "-i", "%04d.png")
        command = ("ffmpeg", "-nostdin", "-loglevel", "error", *read, *_ENCODED, "frames.mp4")
        ran = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", errors="replace", check=False)
        if ran.returncode:
            raise OutputError(path, f"ffmpeg failed ({one_line(ran.stderr) or ran.returncode}); write a GIF")
        return write_bytes((Path(folder) / "frames.mp4").read_bytes(), path)


def _image(figure: ThemedFigure, dpi: float) -> Image.Image:
    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def _drawing(trajectory: xr.DataTree, what: str, place: int) -> Callable[..., Axes]:
    matrices = matrices_of(trajectory) if "matrices" in trajectory.children else None
    of_matrices = [] if matrices is None else matrices["statistic"].values.tolist()
    if what == "weibull-plane" and matrices is not None and "weibull_shape" in of_matrices:
        return partial(weibull_plane, matrices.isel(step=slice(0, place + 1)).assign_attrs(trajectory.attrs))
    heads = heads_of(trajectory)
    scores = scores_at(trajectory, int(heads["step"].values[place]))
    if what == "spectra":
        last = heads.isel(step=-1)
        shown = [(int(last["layer"][i]), int(last["head"][j])) for i, j in farthest_middle_nearest(last)]
        return partial(ordered_eigenvalues, scores, heads=shown)
    of_heads = heads["statistic"].values.tolist()
    if what in of_heads:
        return partial(statistic_by_layer, scores, statistic=what)
    if what in of_matrices:
        return partial(matrix_statistic_by_layer, scores, statistic=what)
    names = ["spectra", *(["weibull-plane"] if "weibull_shape" in of_matrices else []), *of_heads, *of_matrices]
    raise ParameterError("animate", what, f"one of {', '.join(dict.fromkeys(names))}")
