"""``rmtbase plot``: the pictures of any table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rmtbase.cli._command_line import NUMBER, Overwrite
from rmtbase.cli._completion import one_of


def plot(
    file: Annotated[Path, typer.Argument(help="Any file that rmtbase writes, but for an atlas.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="A file that ends in .pdf (a page for each figure), .svg or .png; a folder; '-': stdout.",
        ),
    ] = Path(),
    figure: Annotated[str | None, typer.Option(help="Draw this one alone; an unknown name lists them.")] = None,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="pdf, svg or png; by the name of the output unless given, else png.",
            autocompletion=one_of("pdf", "svg", "png"),
        ),
    ] = None,
    dpi: Annotated[float, typer.Option(help="Dots per inch of a PNG.", **NUMBER)] = 150,
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
    """Draw the pictures of a table: baseline, scores, effective depths, spectra or elements.

    Example: rmtbase plot gpt2.nc -o figures

    For a paper: rmtbase plot gpt2.nc --figure null-spectrum-768x64 --theme print --width 3.4 -o spectrum.pdf
    """
    from rmtbase.cli._output import is_standard_output, write_to_standard_output
    from rmtbase.cli._terminal import say_written
    from rmtbase.errors import ParameterError
    from rmtbase.plots import as_theme, content, figures, save
    from rmtbase.tables import open_table

    chosen = as_theme(theme)
    if style is not None:
        chosen = chosen.with_style(style)
    drawn = figures(open_table(file), theme=chosen, width=width)
    if figure is not None:
        if figure not in drawn:
            raise ParameterError("--figure", figure, f"one of {', '.join(drawn)}")
        drawn = {figure: drawn[figure]}
    if is_standard_output(output):
        write_to_standard_output(content(drawn, file_format or "png", dpi))
        return
    for path in save(drawn, output, format=file_format, dpi=dpi, overwrite=overwrite, prefix=f"{file.stem}-"):
        say_written(path)
