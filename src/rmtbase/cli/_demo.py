"""``rmtbase demo``: the three jobs on the bundled model, offline."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")] = Path("rmtbase-demo"),
) -> None:
    """Make a baseline table, scores and pages for the bundled model, before and after its training, offline.

    Example: rmtbase demo -o results
    """
    from rmtbase.errors import OutputError
    from rmtbase.models import demo_revisions, open_model
    from rmtbase.montecarlo import baseline
    from rmtbase.nulls import Table, atlas_case, draws_for
    from rmtbase.report import print_report
    from rmtbase.results.outputs import Outputs
    from rmtbase.results.scores import render, score
    from rmtbase.results.scores.report import as_json, report
    from rmtbase.tables import write_bytes, write_table
    from rmtbase.terminal.output import JSON, is_standard_output
    from rmtbase.terminal.streams import bars, out, print_json, say_written

    if is_standard_output(output):
        raise OutputError("-", "several files cannot be written to stdout; name a folder")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(output, error.strerror or str(error)) from error
    revisions = demo_revisions()
    first, last = revisions[0], revisions[-1]
    table_path = output / "baseline.nc"
    files = {name: (output / f"scores-{name}.nc", output / f"report-{name}.html") for name in (first, last)}
    try:
        Outputs(table_path, "baseline").require_replaceable()
        for paths in files.values():
            Outputs(paths, "scores").require_replaceable()
    except OutputError as error:
        reason = "a file that the demo did not write is there; expected another folder (-o)"
        raise OutputError(error.path, reason) from error
    final = open_model("demo", last)
    site = final.sites[0]  # all sites have the same shape
    results = {}
    with bars() as progress:
        case = atlas_case(site.d_query, site.d_head)
        draws = draws_for(final.n_layers * site.n_heads) if case is None else int(case["draws"])  # as rmtbase score
        sigmas = [1.0, float(final.config["initializer_range"])]
        table = baseline(site.d_query, site.d_head, sigmas, draws, normalization="none", progress=progress)
        say_written(write_table(table, table_path))
        for revision, (scores, page) in files.items():
            opened = open_model("demo", revision)
            tree = score(opened, Table(table_path), matrices="spectra", elements="heads", why="all", progress=progress)
            say_written(write_table(tree, scores))
            say_written(write_bytes(render(tree, model=opened).encode(), page))
            results[revision] = as_json(tree) if JSON.get() else print_report(report(tree), out())
    if JSON.get():
        print_json(results)
    else:
        pages = [page for _, page in files.values()]
        out().print(f"Open {pages[-1]} in a browser, and {pages[0]} to see the same before training.", soft_wrap=True)
