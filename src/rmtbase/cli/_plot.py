"""``rmtbase plot``: the figures of any table, and an animation of a training run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rmtbase.terminal.command_line import NUMBER, Overwrite, words
from rmtbase.terminal.completion import one_of


def plot(
    file: Annotated[Path, typer.Argument(help="Any file that rmtbase writes, but for an atlas.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="A file that ends in .pdf (a page for each figure), .svg or .png; of --animate .gif or .mp4; a "
            "folder; '-': stdout.",
        ),
    ] = Path(),
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            "--figure",
            help="Draw these alone: names, parted by commas, in which * stands for any characters ('*': all there "
            "are); an unknown name lists them.",
        ),
    ] = None,
    animate: Annotated[
        str | None,
        typer.Option(
            help="Of a trajectory a frame for each step: 'spectra', 'weibull-plane', or a statistic's name.",
            autocompletion=one_of("spectra", "weibull-plane"),
        ),
    ] = None,
    frames: Annotated[
        bool, typer.Option("--frames", help="With --animate: the frames as figures of their own, for print.")
    ] = False,
    rate: Annotated[float, typer.Option(help="With --animate: frames per second.", **NUMBER)] = 6,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="pdf, svg or png, of --animate gif or mp4 (which needs ffmpeg); by the name of the output unless "
            "given, else png or gif.",
            autocompletion=one_of("pdf", "svg", "png", "gif", "mp4"),
        ),
    ] = None,
    dpi: Annotated[
        float | None, typer.Option(help="Dots per inch of a PNG (150) or of a moving picture (100).", **NUMBER)
    ] = None,
    theme: Annotated[
        str, typer.Option(help="light, dark or print.", autocompletion=one_of("light", "dark", "print"))
    ] = "light",
    style: Annotated[
        Path | None, typer.Option(help="Matplotlib style file, whose fonts and colours go before the theme's.")
    ] = None,
    width: Annotated[
        float | None, typer.Option(help="Width of each figure in inches; a journal's column has 3.4.", **NUMBER)
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Draw a table: baseline, scores, trajectory, signal, depth, composition, changes, spectra, elements.

    Example: rmtbase plot gpt2.nc -o figures

    For a paper: rmtbase plot gpt2.nc --only null-spectrum-768x64 --theme print --width 3.4 -o spectrum.pdf

    A training run: rmtbase plot run.nc --animate spectra -o spectra.gif
    """
    from rmtbase.drawing.figure import content, save
    from rmtbase.drawing.theme import as_theme
    from rmtbase.errors import OutputError, ParameterError
    from rmtbase.results import open_table
    from rmtbase.results.trajectory.figures import animation, save_animation
    from rmtbase.terminal.output import is_standard_output, write_to_standard_output
    from rmtbase.terminal.streams import say_written

    if animate is not None and only:
        raise ParameterError("--only", ", ".join(only), "none with --animate, which draws one picture")
    if animate is None and frames:
        raise ParameterError("--frames", "given", "none without --animate")
    chosen = as_theme(theme)
    if style is not None:
        chosen = chosen.with_style(style)
    table: Any = open_table(file)
    if animate is None:
        drawn: Any = _figures(table, only, theme=chosen, width=width)
    else:
        moving = animation(table, animate, theme=chosen, width=width)
        if not frames:
            if is_standard_output(output):
                raise OutputError("-", "a moving picture cannot be written to stdout; name a file")
            if output.is_dir():
                output = output / f"{file.stem}-{animate}.{file_format or 'gif'}"
            settings: dict[str, Any] = {
                "format": file_format,
                "dpi": 100 if dpi is None else dpi,
                "frames_per_second": rate,
            }
            say_written(save_animation(moving, output, **settings, overwrite=overwrite, inputs=[file]))
            return
        drawn = moving.stills()
    if is_standard_output(output):
        write_to_standard_output(content(drawn, file_format or "png", 150 if dpi is None else dpi))
        return
    for path in save(
        drawn,
        output,
        format=file_format,
        dpi=150 if dpi is None else dpi,
        overwrite=overwrite,
        prefix=f"{file.stem}-",
        inputs=[file],
    ):
        say_written(path)


def _figures(table: Any, only: list[str] | None, **look: Any) -> Any:
    """Draw the figures of a table: the standard figures, or the requested ones."""
    import re
    from fnmatch import fnmatchcase

    from rmtbase.errors import ParameterError
    from rmtbase.results.figures import figure_names, figures

    if only is None:
        return figures(table, **look)
    patterns, names = [name for given in only for name in words(given)], figure_names(table)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            kinds = dict.fromkeys(re.sub(r"-\d+(?=-|$)", "-N", name) for name in names)  # one name for all layers
            raise ParameterError("--only", pattern, f"one of {', '.join(kinds)}")
    return figures(table, names=patterns, **look)
