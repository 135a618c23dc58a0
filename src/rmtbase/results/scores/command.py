"""``rmtbase score``: the heads and matrices of a checkpoint against the null."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rmtbase.terminal import options
from rmtbase.terminal.command_line import words
from rmtbase.terminal.completion import one_of, questions


def score(
    model: options.ModelArgument,
    null: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="'gaussian': independent weights as --initialization draws them, at each head's own sigma; "
            "'analytic': the same by law, without draws; 'kurtosis': independent weights with the head's own excess "
            "kurtosis; 'signs': the head's own weights with random signs; 'axes': its query axes paired with its key "
            "axes in random order and sign; or a baseline table, for 'gaussian'.",
            autocompletion=one_of("gaussian", "analytic", "kurtosis", "signs", "axes"),
        ),
    ] = "gaussian",
    fold: options.Fold = None,
    circuits: options.Circuits = "qk",
    adapter: options.Adapter = None,
    base: options.Base = None,
    minus: options.Minus = None,
    matrices: options.Matrices = "elements",
    components: options.Components = "layers",
    elements: options.Elements = "matrices",
    initialization: options.Initialization = "normal",
    why: Annotated[
        str | None,
        typer.Option(
            help="Also look for the causes of each head's difference: 'all', or some questions, separated by commas: "
            "'spectrum', 'entries', 'directions', 'relation'.",
            autocompletion=questions,
        ),
    ] = None,
    draws: options.Draws = None,
    seed: options.Seed = 0,
    fail_if: options.FailIf = None,
    output: options.Output = None,
) -> None:
    """Score a model: how far is every head and weight matrix from random?

    Example: rmtbase score demo -o scores.nc -o report.html

    Are queries and keys related along the head axes? rmtbase score demo --null axes

    Initialised uniformly, as torch.nn.Linear does: rmtbase score MODEL --initialization uniform

    Entries, directions or a relation of W_Q and W_K: which cause? rmtbase score demo --why all

    What heads write, and each side by itself: rmtbase score demo --circuits ov,query,key

    The experts of a mixture, too: rmtbase score MODEL --components layers,experts -o scores.nc

    The elements of every head, W_QK's too: rmtbase score MODEL --elements heads -o scores.nc

    In a script, require that all heads of layer 3 differ: rmtbase score MODEL --fail-if 'layer == 3 and not differs'

    What did fine-tuning add? rmtbase score TUNED --minus BASE; rmtbase score ADAPTER --base BASE --adapter merged
    """
    from rmtbase.models import open_model
    from rmtbase.nulls import Table, find_null
    from rmtbase.results.outputs import Outputs, places_of

    files = Outputs(output, "scores")
    against = find_null(null, initialization=initialization, draws=draws, seed=seed)
    opened = open_model(model, adapter=adapter, base=base, fold=fold or (), minus=minus)
    files.require_replaceable(opened, *([Path(null)] if isinstance(against, Table) else []))
    files.gate("score", fail_if, places_of(opened))
    opened.hash_ahead()  # during the imports below, which take about as long

    from rmtbase.results.scores.measure import score
    from rmtbase.results.scores.report import as_json, report

    def page(tree: Any) -> str:
        from rmtbase.results.scores import render  # what draws takes half a second to import

        return render(tree, model=opened)

    tree = files.measure(
        score,
        opened,
        against,
        matrices=matrices,
        circuits=words(circuits),
        components=words(components),
        elements=elements,
        why=words(why or ""),
    )
    files.finish(tree, as_json, report, page)


COMMAND = score
