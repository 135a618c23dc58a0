"""``rmtbase plot``: the pictures of any table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def plot(
    file: Annotated[Path, typer.Argument(help="Any file that rmtbase writes, but for an atlas.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures.")] = Path(),
) -> None:
    """Draw the pictures of a table: baseline, scores, effective depths, spectra or elements, as PNG.

    Example: rmtbase plot gpt2.nc -o figures
    """
    import io

    from rmtbase.cli._terminal import say_written
    from rmtbase.errors import OutputError
    from rmtbase.plots import figures
    from rmtbase.tables import open_table, write_bytes

    table = open_table(file)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(output, error.strerror or str(error)) from error
    for name, figure in figures(table).items():
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=150)
        path = write_bytes(content.getvalue(), output / f"{file.stem}-{name}.png")
        say_written(path)
