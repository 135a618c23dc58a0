"""``rmtbase composition``: which heads read what earlier heads write, against chance."""

from functools import partial
from typing import Annotated

import typer

from rmtbase.terminal.command_line import INTEGER, NUMBER, words
from rmtbase.terminal.completion import some_of
from rmtbase.terminal.options import Fold, ModelArgument, Output


def composition(
    model: ModelArgument,
    kinds: Annotated[
        str,
        typer.Option(
            help="What the later head reads into: letters separated by commas, 'q' queries, 'k' keys, 'v' values.",
            autocompletion=some_of("q", "k", "v"),
        ),
    ] = "q,k,v",
    level: Annotated[float, typer.Option(help="False discovery rate of the pairs found to compose.", **NUMBER)] = 0.05,
    layer: Annotated[
        int | None, typer.Option(help="Print, and draw, only pairs with a head of that layer.", **INTEGER)
    ] = None,
    head: Annotated[
        int | None,
        typer.Option(
            help="Only pairs with a head of that number in its layer, or in --layer. All are tested.", **INTEGER
        ),
    ] = None,
    fold: Fold = None,
    output: Output = None,
) -> None:
    """Composition: which heads read what which earlier heads write, more than by chance?

    For every two heads of different layers: the composition score, its exact mean and variance under a random rotation
    of one head against the other, its p-value, and q-values over all pairs, which are valid although pairs share heads.

    Example: rmtbase composition demo -o composition.nc, then rmtbase plot composition.nc

    Only keys, as induction heads use them: rmtbase composition MODEL --kinds k

    What one head reads and what reads it: rmtbase composition demo --layer 2 --head 5
    """
    from rmtbase.errors import ParameterError
    from rmtbase.parameters import require_probability
    from rmtbase.results.composition.measure import composition
    from rmtbase.results.composition.report import as_json, pairs_with, report
    from rmtbase.results.outputs import Outputs

    level = require_probability("level", level)
    files = Outputs(output, "composition")
    opened = files.open(model, fold=fold or ())
    layers, heads = {site.place.layer for site in opened.sites}, range(max(site.n_heads for site in opened.sites))
    for name, number, numbers in (("layer", layer, sorted(layers)), ("head", head, heads)):
        if number is not None and number not in numbers:
            raise ParameterError(name, number, f"from {numbers[0]} to {numbers[-1]}")
    table = files.measure(composition, opened, words(kinds))
    chosen = {"level": level, "layer": layer, "head": head}
    drawn = pairs_with(table, layer, head)
    files.finish(table, partial(as_json, **chosen), partial(report, **chosen), drawn=drawn)


COMMAND = composition
