"""``rmtbase score``: the heads and matrices of a checkpoint against the null."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rmtbase.terminal.command_line import Fold, Overwrite, Subfolder, words
from rmtbase.terminal.completion import one_of, questions, revisions
from rmtbase.terminal.scoring_options import (
    Adapter,
    Base,
    Baseline,
    Circuits,
    Components,
    Draws,
    Elements,
    Initialization,
    Matrices,
    Minus,
    MinusRevision,
    ModelArgument,
    Proof,
    Seed,
    opened_model,
)


def score(
    model: ModelArgument,
    baseline: Baseline = None,
    null: Annotated[
        str,
        typer.Option(
            help="'gaussian': independent weights as --initialization draws them, at each head's own sigma; "
            "'analytic': the same by law, without draws; 'kurtosis': independent weights with the head's own excess "
            "kurtosis; 'signs': the head's own weights with random signs; 'axes': its query axes paired with its key "
            "axes in random order and sign.",
            autocompletion=one_of("gaussian", "analytic", "kurtosis", "signs", "axes"),
        ),
    ] = "gaussian",
    revision: Annotated[
        str | None, typer.Option(help="Revision of a hub id or of 'demo'.", autocompletion=revisions)
    ] = None,
    subfolder: Subfolder = None,
    fold: Fold = None,
    circuits: Circuits = "qk",
    adapter: Adapter = None,
    base: Base = None,
    minus: Minus = None,
    minus_revision: MinusRevision = None,
    matrices: Matrices = "elements",
    components: Components = "layers",
    elements: Elements = "matrices",
    initialization: Initialization = "normal",
    why: Annotated[
        str | None,
        typer.Option(
            help="Also look for the causes of each head's difference: 'all', or some questions, separated by commas: "
            "'spectrum', 'entries', 'directions', 'relation'.",
            autocompletion=questions,
        ),
    ] = None,
    draws: Draws = None,
    seed: Seed = 0,
    proof: Proof = True,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Scores file to write (netCDF4).")] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Also write the heads as CSV; '-': to stdout, in the summary's place.")
    ] = None,
    matrices_csv: Annotated[
        Path | None,
        typer.Option(
            help="Also write the matrices as CSV, a row for each that is scored: of layers, of embeddings at layer -1, "
            "of experts with their number; '-': to stdout."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write a self-contained HTML report; '-': to stdout.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Score a model: how far is every head and weight matrix from random?

    Example: rmtbase score demo -o scores.nc --report report.html

    Are queries and keys related along the head axes? rmtbase score demo --null axes

    Initialised uniformly, as torch.nn.Linear does: rmtbase score MODEL --initialization uniform

    Entries, directions or a relation of W_Q and W_K: which cause? rmtbase score demo --why all

    What heads write, and each side by itself: rmtbase score demo --circuits ov,query,key

    Of a mixture, its experts too: rmtbase score MODEL --components layers,experts --matrices-csv matrices.csv

    The elements of every head, W_QK's too: rmtbase score MODEL --elements heads -o scores.nc

    What did fine-tuning add? rmtbase score TUNED --minus BASE; rmtbase score ADAPTER --base BASE --adapter merged
    """
    from rmtbase.errors import OutputError, ParameterError
    from rmtbase.models import require_other_files
    from rmtbase.nulls import find_null
    from rmtbase.terminal.endings import detail
    from rmtbase.terminal.output import is_standard_output, require_output, require_replaceable, write_output
    from rmtbase.terminal.streams import bars, out, print_json, say_written

    printed = [path for path in (csv, matrices_csv, report) if is_standard_output(path)]
    if matrices_csv is not None and matrices == "none":
        raise ParameterError("matrices", matrices, "elements or spectra, where they are written")
    if len(printed) + as_json > 1:
        raise OutputError("-", "stdout takes one output; name files for the others")
    named = {"netCDF": output, "CSV of heads": csv, "CSV of matrices": matrices_csv, "HTML": report}
    files = {kind: path for kind, path in named.items() if path is not None and (path is output or path not in printed)}
    outputs = list(files.values())
    for kind, path in files.items():
        require_output(path, kind)
        if [other.resolve() for other in outputs].count(path.resolve()) > 1:
            raise OutputError(path, "it is named for two outputs; expected a name for each")
    against = find_null(null, baseline=baseline, initialization=initialization, draws=draws, seed=seed)
    opened, read = opened_model(model, revision, subfolder, fold, adapter, base, minus, minus_revision, proof)
    for one in read:
        require_other_files(outputs, one)
    read_from = [*(one.path for one in read), *([Path(baseline)] if isinstance(baseline, str | Path) else [])]
    for kind, path in files.items():
        require_replaceable(path, kind, overwrite, "scores", read_from)
    opened.hash_ahead()  # during the imports below, which take about as long

    from rmtbase.results.scores._element_summary import summarize_elements
    from rmtbase.results.scores._heads import circuit_scores, circuits_of
    from rmtbase.results.scores._why import summarize_why
    from rmtbase.results.scores.measure import score as score_model
    from rmtbase.results.scores.rows import heads_csv
    from rmtbase.results.scores.rows import matrices_csv as csv_of_matrices
    from rmtbase.results.scores.summary import summarize_scores
    from rmtbase.results.scores.terminal import print_elements, print_summary, print_why, summaries_json
    from rmtbase.tables import CIRCUITS, write_table

    with bars() as progress:
        tree = score_model(
            opened,
            against,
            matrices=matrices,  # type: ignore[arg-type]  # checked where it is used
            circuits=words(circuits),
            components=words(components),
            elements=elements,  # type: ignore[arg-type]  # as well
            why=words(why or ""),
            progress=progress,
        )
    summaries = {CIRCUITS[name]: summarize_scores(circuit_scores(tree, name)) for name in circuits_of(tree)}
    of_elements = summarize_elements(tree)
    if output is not None:
        write_table(tree, output)
    if csv is not None:
        write_output(heads_csv(tree).encode(), csv)
    if matrices_csv is not None:
        write_output(csv_of_matrices(tree).encode(), matrices_csv)
    if report is not None:
        from rmtbase.results.scores.page._page import render

        write_output(render(tree).encode(), report)
    detail(f"null: {tree.attrs['null']}; {tree.attrs['null_method']}; from {tree.attrs['table']}")
    if as_json:
        print_json(summaries_json(summaries, of_elements, summarize_why(tree)))
    elif not printed:
        title = opened.name + (f", revision {opened.revision}" if opened.revision else "")
        for circuit, summary in summaries.items():
            named = f"{title}: {circuit.symbol}" if len(summaries) > 1 else title
            print_summary(summary, named, out(), summarize_why(tree) if circuit.name == "qk" else None)
        print_why(summarize_why(tree), out())
        print_elements(of_elements, out())
    for path in outputs:
        say_written(path)


COMMAND = score
