"""``rmtbase demo``: the three jobs on the bundled model, offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out_folder: Annotated[Path, typer.Option("--out", help="Folder for the results.")] = Path("rmtbase-demo"),
) -> None:
    """Baseline table, scores and report for the bundled trained model, offline, in under a minute.

    Example: rmtbase demo --out results
    """
    from rmtbase.errors import OutputError
    from rmtbase.models import demo_revisions, open_model
    from rmtbase.montecarlo import baseline
    from rmtbase.nulls import Table, draws_for
    from rmtbase.results.scores import heads_csv, score, summarize_elements, summarize_scores, summarize_why
    from rmtbase.results.scores.page import render
    from rmtbase.results.scores.terminal import print_elements, print_summary, print_why
    from rmtbase.tables import require_writable, write_bytes, write_table
    from rmtbase.terminal.output import is_standard_output, require_replaceable
    from rmtbase.terminal.streams import bars, out, say_written

    if is_standard_output(out_folder):
        raise OutputError("-", "several files cannot be written to stdout; name a folder")
    try:
        out_folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(out_folder, error.strerror or str(error)) from error
    table_path = require_writable(out_folder / "baseline.nc")
    revisions = demo_revisions()
    first, last = revisions[0], revisions[-1]
    written = {
        revision: {
            "netCDF": out_folder / f"scores-{revision}.nc",
            "CSV of heads": out_folder / f"scores-{revision}.csv",
            "HTML": out_folder / f"report-{revision}.html",
        }
        for revision in (first, last)
    }
    try:
        require_replaceable(table_path, "netCDF", False, "baseline")
        for files in written.values():
            for kind, path in files.items():
                require_replaceable(path, kind, False, "scores")
    except OutputError as error:
        reason = "a file that the demo did not write is there; expected another folder (--out)"
        raise OutputError(error.path, reason) from error
    final = open_model("demo", last)
    site = final.sites[0]  # all sites have the same shape
    with bars() as progress:
        draws = draws_for(final.n_layers * site.n_heads)
        table = baseline(
            site.d_query,
            site.d_head,
            [1.0, float(final.config["initializer_range"])],
            draws,
            normalization="none",
            progress=progress,
        )
        say_written(write_table(table, table_path))
        for revision in (first, last):
            tree = score(
                open_model("demo", revision),
                Table(table_path),
                matrices="spectra",
                elements="heads",
                why="all",
                progress=progress,
            )
            files = written[revision]
            say_written(write_table(tree, files["netCDF"]))
            say_written(write_bytes(heads_csv(tree).encode(), files["CSV of heads"]))
            say_written(write_bytes(render(tree).encode(), files["HTML"]))
            why = summarize_why(tree)
            print_summary(summarize_scores(tree), f"demo, revision {revision}", out(), why)
            print_why(why, out())
            print_elements(summarize_elements(tree), out())
