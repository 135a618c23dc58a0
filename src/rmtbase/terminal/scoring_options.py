"""Options shared by the commands that score: the choice of a model, and the settings of scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rmtbase.errors import ParameterError
from rmtbase.terminal.command_line import COUNT, INTEGER
from rmtbase.terminal.completion import circuits, components, models, one_of, parts, revisions

if TYPE_CHECKING:
    from rmtbase.models import Difference, Model

ModelArgument = Annotated[
    str,
    typer.Argument(
        help="A checkpoint folder, a hub id, a known name (pythia-70m), or 'demo' (bundled).", autocompletion=models
    ),
]
Component = Annotated[
    list[str] | None,
    typer.Option(
        help="A weight matrix, 'mlp_in' say, in every layer; repeat for more. Default all.",
        autocompletion=components,
    ),
]
Adapter = Annotated[
    str | None,
    typer.Option(
        help="Of a low-rank adapter: 'delta', its updates alone (the default); 'merged', its base with "
        "them; 'base', without.",
        autocompletion=one_of("delta", "merged", "base"),
    ),
]
Base = Annotated[
    str | None,
    typer.Option(help="Base model of the adapter: a folder, a hub id or a known name; else the one its settings name."),
]
Minus = Annotated[
    str | None,
    typer.Option(help="Score the difference: each matrix less that of this model, of the same architecture."),
]
MinusRevision = Annotated[str | None, typer.Option(help="Revision of that model.", autocompletion=revisions)]
Baseline = Annotated[
    str | None,
    typer.Option(help="Baseline table to take the null from."),
]
Circuits = Annotated[
    str,
    typer.Option(
        help="What of each head, names parted by commas: 'qk', W_Q^T W_K, always is; 'ov', W_O^T W_V; 'query', "
        "'key', 'value', 'output', each of its matrices by itself.",
        autocompletion=circuits,
    ),
]
Matrices = Annotated[
    str,
    typer.Option(
        help="Whole weight matrices: 'none', 'elements', or 'spectra' (a full SVD of each).",
        autocompletion=one_of("none", "elements", "spectra"),
    ),
]
Components = Annotated[
    str,
    typer.Option(
        help="Which of them, names parted by commas: 'layers', those of attention, MLPs, shared experts and "
        "routers; 'embeddings', with position embeddings and unembedding; 'experts', those of each expert; 'all'. "
        "Embeddings are large, and experts most of a mixture: each takes its time.",
        autocompletion=parts,
    ),
]
Elements = Annotated[
    str,
    typer.Option(
        help="Whose elements: 'matrices', of whole ones alone; 'factors', of each head's W_Q, W_K, W_V and W_O, "
        "too; 'heads', also of its W_QK, which takes minutes where a model has a thousand heads.",
        autocompletion=one_of("matrices", "factors", "heads"),
    ),
]
Initialization = Annotated[
    str,
    typer.Option(
        help="How untrained matrices are drawn: with elements 'normal', 'uniform' or 'truncated_normal', cut at two "
        "standard deviations (trunc_normal_ of torch and transformers cuts at -2 and 2 instead: with std 0.02 that is "
        "'normal'); or 'orthogonal', as torch.nn.init.orthogonal_ does.",
        autocompletion=one_of("normal", "uniform", "truncated_normal", "orthogonal"),
    ),
]
Draws = Annotated[
    int | None,
    typer.Option(
        help="Null draws, at least: of the shipped atlas, or else simulated. Default all of the atlas; for a shape "
        "that it lacks max(10000, 50 per head of the model); 1000 for each head's own null.",
        **COUNT,
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of the null draws.", **INTEGER)]
Proof = Annotated[
    bool,
    typer.Option(
        "--proof/--no-proof",
        help="Prove first, with torch and transformers, that q·k of the model's own forward pass is what was read.",
    ),
]


def opened_model(
    model: str,
    revision: str | None,
    subfolder: str | None,
    fold: str | None,
    adapter: str | None,
    base: str | None,
    minus: str | None,
    minus_revision: str | None,
    proof: bool,
) -> tuple[Model | Difference, list[Model]]:
    """Open the model or the difference that these options name; return it with all models that are read for it."""
    from rmtbase.models import difference, open_model

    if minus is None and minus_revision is not None:
        raise ParameterError("minus_revision", minus_revision, "none without --minus")
    folds = fold or ()
    opened = open_model(model, revision, subfolder=subfolder, adapter=adapter, base=base, fold=folds, proof=proof)
    if minus is None:
        return opened, [opened]
    less = open_model(minus, minus_revision, fold=folds)
    return difference(opened, less), [opened, less]
