"""Figures that display in notebooks without pyplot, and their output to files."""

from __future__ import annotations

import base64
import io
from collections.abc import Collection, Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.text import Text

from rmtbase.drawing.theme import Theme
from rmtbase.errors import OutputError, ParameterError
from rmtbase.tables import require_replaceable, require_writable, write_bytes

__all__ = ["FORMATS", "content", "save"]

FORMATS = ("pdf", "svg", "png")

FEWEST_DPI = 10
_MOST_PIXELS = 30_000  # along one side; a limit of the renderer
_SHOWN_DPI = 144  # twice the points of a figure, for high-resolution screens too
_UNDATED: dict[str, dict[str, Any]] = {
    "pdf": {"Creator": "rmtbase", "CreationDate": None},
    "svg": {"Creator": "rmtbase", "Date": None},
    "png": {"Software": "rmtbase"},
}


class _Displayed:
    """Display of a figure, or of the figure that axes lie in, in a notebook."""

    def _repr_png_(self) -> bytes:
        return content({"": figure_of(self)}, "png", _SHOWN_DPI)

    def _repr_html_(self) -> str:
        return _image("figure", figure_of(self))

    def _mime_(self) -> tuple[str, str]:
        return "text/html", self._repr_html_()


class ThemedFigure(_Displayed, Figure):
    """Figure in a theme, whose settings are in effect while it is drawn and written; a notebook displays it."""

    def __init__(self, theme: Theme, width: float, height: float) -> None:
        self.settings: dict[Any, Any] = dict(theme.settings)
        super().__init__(figsize=(width, height), layout="constrained", facecolor=theme.surface)

    def draw(self, renderer: Any) -> None:
        with matplotlib.rc_context(self.settings):
            for text in self.findobj(Text) if self.settings else ():
                text.set_fontfamily(matplotlib.rcParams["font.family"])
                text.set_math_fontfamily(matplotlib.rcParams["mathtext.fontset"])
            super().draw(renderer)

    def savefig(self, fname: Any, **options: Any) -> None:
        with matplotlib.rc_context(self.settings):
            super().savefig(fname, **options)


class ThemedAxes(_Displayed, Axes):
    """Axes that a notebook displays with their whole figure."""


class FiguresByName(dict[str, Figure]):
    """Figures by name, which a notebook displays one below the other."""

    def _repr_html_(self) -> str:
        return "".join(
            f'<figure style="margin: 0 0 1em"><figcaption>{escape(name)}</figcaption>{_image(name, figure)}</figure>'
            for name, figure in self.items()
        )

    _mime_ = _Displayed._mime_


def content(figures: Mapping[str, Figure], format: str, dpi: float = 150) -> bytes:
    """Return figures as the bytes of one file: a PDF with a page for each, or an SVG or PNG of a single figure.

    Raises:
        ParameterError: there are no figures, or several for an SVG or PNG; the format is unknown; or the dpi are out of
            range.
    """
    require_one_file(figures, format)
    require_dpi(dpi, max(float(side) for figure in figures.values() for side in figure.get_size_inches()))
    stream = io.BytesIO()
    # TrueType, so that text in a PDF can be selected and typeset by journals; the salt makes files reproducible.
    with matplotlib.rc_context({"pdf.fonttype": 42, "svg.hashsalt": "rmtbase"}):
        if format == "pdf":
            with PdfPages(stream, metadata=_UNDATED["pdf"]) as pages:
                for figure in figures.values():
                    pages.savefig(figure, dpi=dpi)
        else:
            (figure,) = figures.values()
            figure.savefig(stream, format=format, dpi=dpi, metadata=_UNDATED[format])
    return stream.getvalue()


def require_one_file(names: Collection[str], format: str) -> None:
    """Raise :class:`~rmtbase.errors.ParameterError` unless figures of these names fit into one file of the format."""
    if format not in FORMATS:
        raise ParameterError("format", format, ", ".join(FORMATS))
    if len(names) != 1 and (format != "pdf" or not names):
        expected = f"one figure for a file of format {format}; pick one (--only), or write a PDF"
        raise ParameterError("figures", ", ".join(names) or "none", expected)


def require_dpi(dpi: float, longest: float = 1.0) -> None:
    """Raise :class:`~rmtbase.errors.ParameterError` unless a figure of that size, in inches, can have these dpi."""
    if not FEWEST_DPI <= dpi <= _MOST_PIXELS / longest:
        most = f"{_MOST_PIXELS / longest:.0f} for so large a figure"
        raise ParameterError("dpi", dpi, f"a number from {FEWEST_DPI}, below which no text can be drawn, to {most}")


def require_target(
    names: Collection[str], path: Path, format: str | None = None, overwrite: bool = False, inputs: Iterable[Path] = ()
) -> tuple[str, bool]:
    """Judge before anything is drawn where figures go: the format, and whether it is a folder of one file each."""
    suffix = path.suffix.lower().removeprefix(".")
    if path.name in [f".{suffix}" for suffix in FORMATS]:  # such a name has no suffix
        raise ParameterError("output", str(path), "a name before the suffix, or a folder with another name")
    if format is not None and format not in FORMATS:
        raise ParameterError("format", format, ", ".join(FORMATS))
    if path.is_dir() and suffix in FORMATS:
        raise OutputError(path, "a folder of that name is there; name another file, or a folder within it")
    if path.is_dir() or not suffix:
        nearest = next(folder for folder in (path, *path.parents) if folder.exists())
        try:
            require_writable(nearest / "figure")
        except OutputError as error:
            raise OutputError(path, error.reason) from error
        return format or "png", True
    if suffix not in FORMATS:
        endings = ", ".join(f".{name}" for name in FORMATS)
        raise ParameterError("output", str(path), f"a name that ends in {endings}, or a folder's, without a suffix")
    if format not in (None, suffix):
        raise ParameterError("format", format, f"{suffix}, as {path.name} ends, or another name")
    require_writable(path)
    require_replaceable(path, suffix, overwrite, inputs)
    require_one_file(names, suffix)
    return suffix, False


def save(
    figures: Figure | Axes | Mapping[str, Figure],
    path: Path | str,
    *,
    format: str | None = None,
    dpi: float = 150,
    overwrite: bool = False,
    prefix: str = "",
    inputs: Iterable[Path] = (),
) -> list[Path]:
    """Write figures to a single file, or each to its own file in a folder.

    Args:
        figures: a figure, axes, or figures by name.
        path: a file in .pdf (a page for each figure), .svg or .png (one figure); without a suffix a folder, made if it
            is missing, with a file for each figure.
        format: ``"pdf"``, ``"svg"`` or ``"png"``; if None, that of the path's suffix, or PNG in a folder.
        dpi: dots per inch of a PNG.
        overwrite: whether to replace files that are not figures of that format written by rmtbase.
        prefix: prefix of the names of files in a folder.
        inputs: files that are never replaced.

    Returns:
        The paths written.

    Raises:
        ParameterError: the suffix or format is not one of these, or they disagree, or there are several figures for an
            SVG or PNG.
        OutputError: a path cannot be written, or another kind of file exists there.
    """
    path, named = Path(path), figures if isinstance(figures, Mapping) else {"": figure_of(figures)}
    kind, in_folder = require_target(named, path, format, overwrite, inputs)
    targets = {path: named}
    if in_folder:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(path, error.strerror or str(error)) from error
        targets = {path / f"{prefix}{name or 'figure'}.{kind}": {name: figure} for name, figure in named.items()}
    for target in targets:
        require_writable(target)
        require_replaceable(target, kind, overwrite, inputs)
    return [write_bytes(content(figures, kind, dpi), target) for target, figures in targets.items()]


def figure_of(drawn: object) -> Figure:
    """Return a figure, or the one in which axes lie."""
    figure = drawn.get_figure(root=True) if isinstance(drawn, Axes) else drawn
    assert isinstance(figure, Figure)  # axes always lie in one
    return figure


def _image(name: str, figure: Figure) -> str:
    picture = base64.b64encode(content({"": figure}, "png", _SHOWN_DPI)).decode()
    return f'<img alt="{escape(name)}" style="max-width: 100%" src="data:image/png;base64,{picture}">'
