"""``rmtbase signal``: what each head and matrix of a checkpoint has learned, and in how much noise."""

from functools import partial
from typing import Annotated

import typer

from rmtbase.terminal.command_line import COUNT, INTEGER, NUMBER, words
from rmtbase.terminal.completion import circuits as circuit_names
from rmtbase.terminal.completion import one_of
from rmtbase.terminal.options import Adapter, Base, FailIf, Fold, Initialization, Minus, ModelArgument, Output


def signal(
    model: ModelArgument,
    fold: Fold = None,
    circuits: Annotated[
        str | None,
        typer.Option(
            help="Matrices of each head, separated by commas: 'qk', 'ov', 'query', 'key', 'value', 'output'. Default: "
            "all that the model has.",
            autocompletion=circuit_names,
        ),
    ] = None,
    adapter: Adapter = None,
    base: Base = None,
    minus: Minus = None,
    matrices: Annotated[
        str,
        typer.Option(
            help="Whole weight matrices: 'spectra' (a full SVD of each), or 'none'.",
            autocompletion=one_of("none", "spectra"),
        ),
    ] = "spectra",
    level: Annotated[
        float, typer.Option(help="Level of each test; limits have confidence 1 - level.", **NUMBER)
    ] = 0.05,
    null: Annotated[
        str | None,
        typer.Option(
            help="The noise: 'gaussian', entries as --initialization draws them; 'kurtosis', entries of any law with "
            "the excess kurtosis of each head or matrix; 'signs', random sign flips of each head and matrix, exact for "
            "any symmetric entries, also rounded ones. Default: 'signs' with --minus, else 'gaussian'.",
            autocompletion=one_of("gaussian", "kurtosis", "signs"),
        ),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            help="Largest number of sign flips of each test; no p-value is below 1/(draws + 1). Default: 10/level - 1.",
            **COUNT,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sign flips.", **INTEGER)] = 0,
    initialization: Initialization = "normal",
    directions: Annotated[
        int,
        typer.Option(
            help="Read that many directions of each listed head and matrix as tokens, through the model's own "
            "embedding; 0: none.",
            **INTEGER,
        ),
    ] = 0,
    heavy_tails: Annotated[
        bool,
        typer.Option(
            "--heavy-tails",
            help="Also fit a power law to every spectrum, beside those of noise, and say whether it is noise, spikes "
            "on a bulk, a power law or a residual path. Seconds for a spectrum of 1000, a minute for one of 4096.",
        ),
    ] = False,
    fail_if: FailIf = None,
    output: Output = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Print decisions instead: 'peft', what peft.LoraConfig takes, with the number of learned directions "
            "as each module's rank; 'yaml', patterns of parameters to unfreeze, most learned first.",
            autocompletion=one_of("peft", "yaml"),
        ),
    ] = None,
) -> None:
    """Signal and noise: how many directions has every head and matrix learned, how strong, and is the rest noise?

    Example: rmtbase signal demo -o signal.nc

    What do its directions read and write? rmtbase signal demo --circuits qk,ov --matrices none --directions 2

    Ranks of adapters that hold what fine-tuning changed: rmtbase signal TUNED --minus BASE --format peft

    Initialised uniformly, as torch.nn.Linear does: rmtbase signal MODEL --initialization uniform

    Is it a power law? rmtbase signal demo --heavy-tails

    What an adapter learned: rmtbase signal ADAPTER; what fine-tuning changed: rmtbase signal TUNED --minus BASE
    """
    from rmtbase.errors import OutputError, ParameterError
    from rmtbase.models import opened_from, token_names
    from rmtbase.nulls import find_null
    from rmtbase.results.outputs import Outputs, places_of
    from rmtbase.terminal.output import JSON

    files = Outputs(output, "signal")
    if form is not None and JSON.get():
        raise OutputError("-", "--json and --format both print to stdout; expected one of them")
    by_default = "gaussian" if minus is None else "signs"
    noise = find_null(null or by_default, initialization=initialization, draws=draws, seed=seed)
    opened = files.open(model, adapter=adapter, base=base, fold=fold or (), minus=minus)
    if directions < 0:
        raise ParameterError("directions", directions, "0 or more")

    from rmtbase.heads.direction_tokens import embedding_of
    from rmtbase.results.signal._decisions import FORMATS
    from rmtbase.results.signal.measure import circuits_of, signal
    from rmtbase.results.signal.report import as_json, decisions, report, strongest_readings

    if form is not None and form not in FORMATS:
        raise ParameterError("format", form, f"one of {', '.join(FORMATS)}")
    if form is not None and matrices == "none":
        raise ParameterError("matrices", matrices, "'spectra' with --format, which is of whole matrices")
    if fail_if is not None:
        files.gate("signal", fail_if, places_of(opened, circuits_of(opened) if circuits is None else words(circuits)))
    if directions:  # judged before long work
        source = opened_from(opened)[0]
        embedding_of(source)
        source.require_finite((), ("embeddings",))
        token_names(source.path)
    chosen = None if circuits is None else words(circuits)
    settings = {"matrices": matrices, "level": level, "heavy_tails": heavy_tails}
    tree = files.measure(signal, opened, noise, circuits=chosen, **settings)
    readings = strongest_readings(opened, tree, directions, noise) if directions and form is None else None
    text = partial(report, readings=readings) if form is None else partial(decisions, model=opened, form=form)
    files.finish(tree, partial(as_json, readings=readings), text)


COMMAND = signal
