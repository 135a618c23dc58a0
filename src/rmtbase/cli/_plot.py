"""``rmtbase plot``: the figures of any table, and an animation of a training run."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from rmtbase.terminal.command_line import NUMBER, words
from rmtbase.terminal.completion import one_of


def plot(
    file: Annotated[Path, typer.Argument(help="Any file that rmtbase writes, except an atlas.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="A file that ends in .pdf (a page for each figure), .svg or .png, with --animate .gif or .mp4 (which "
            "needs ffmpeg); a folder; '-': stdout.",
        ),
    ] = Path(),
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help="Draw only these: names, separated by commas, with * for any characters ('*': all figures); an "
            "unknown name lists them.",
        ),
    ] = None,
    animate: Annotated[
        str | None,
        typer.Option(
            help="Animate a trajectory, a frame for each step: 'spectra', 'weibull-plane', or a statistic's name.",
            autocompletion=one_of("spectra", "weibull-plane"),
        ),
    ] = None,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="pdf, svg or png; with --animate gif or mp4. Default: by the name of the output, else png or gif.",
            autocompletion=one_of("pdf", "svg", "png", "gif", "mp4"),
        ),
    ] = None,
    dpi: Annotated[
        float | None, typer.Option(help="Dots per inch of a PNG (150) or of an animation (100).", **NUMBER)
    ] = None,
    theme: Annotated[
        str, typer.Option(help="light, dark or print.", autocompletion=one_of("light", "dark", "print"))
    ] = "light",
    style: Annotated[
        Path | None, typer.Option(help="Matplotlib style file, whose fonts and colours replace the theme's.")
    ] = None,
    width: Annotated[
        float | None, typer.Option(help="Width of each figure in inches; a journal's column has 3.4.", **NUMBER)
    ] = None,
) -> None:
    """Draw a table: baseline, scores, trajectory, signal, depth, composition, changes, spectra, elements.

    Example: rmtbase plot gpt2.nc -o figures

    For a paper: rmtbase plot gpt2.nc --only null-spectrum-768x64 --theme print --width 3.4 -o spectrum.pdf

    A training run: rmtbase plot run.nc --animate spectra -o spectra.gif
    """
    from rmtbase.drawing.figure import content, require_dpi, require_one_file, require_target, save
    from rmtbase.drawing.theme import as_theme
    from rmtbase.errors import OutputError, ParameterError
    from rmtbase.results import open_table
    from rmtbase.results.figures import figure_names, figures
    from rmtbase.results.trajectory.figures._animation import animation, save_animation
    from rmtbase.tables import matching
    from rmtbase.terminal.output import JSON, is_standard_output, write_to_standard_output
    from rmtbase.terminal.streams import print_json, say_written

    if animate is not None and only:
        raise ParameterError("--only", ", ".join(only), "none with --animate, which draws one animation")
    chosen = as_theme(theme)
    if style is not None:
        chosen = chosen.with_style(style)
    table: Any = open_table(file)
    if animate is not None:
        if is_standard_output(output):
            raise OutputError("-", "an animation cannot be written to stdout; name a file")
        path = output / f"{file.stem}-{animate}.{file_format or 'gif'}" if output.is_dir() else output
        moving = animation(table, animate, theme=chosen, width=width)
        written = [save_animation(moving, path, format=file_format, dpi=100 if dpi is None else dpi, inputs=[file])]
    else:
        dots, standard_by_name = 150 if dpi is None else dpi, figure_names(table)
        if only is None:
            names = [name for name, standard in standard_by_name.items() if standard]
        else:
            patterns = [pattern for text in only for pattern in words(text)]
            # An error lists one name for all layers.
            names = matching("--only", patterns, standard_by_name, lambda name: re.sub(r"-\d+(?=-|$)", "-N", name))
        require_dpi(dots)
        if is_standard_output(output):
            require_one_file(names, file_format or "png")
        else:
            require_target(names, output, file_format, inputs=[file])
        drawn = figures(table, names=names, theme=chosen, width=width)
        if is_standard_output(output):
            write_to_standard_output(content(drawn, file_format or "png", dots))
            return
        written = save(drawn, output, format=file_format, dpi=dots, prefix=f"{file.stem}-", inputs=[file])
    for path in written:
        say_written(path)
    if JSON.get():
        print_json([str(path) for path in written])
