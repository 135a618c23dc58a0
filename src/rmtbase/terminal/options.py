"""Options that several commands have, each defined once."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rmtbase.executors import Executor, Inline, LocalProcesses, Scheduler
from rmtbase.terminal.command_line import COUNT, INTEGER, count, integer, number_or_pair
from rmtbase.terminal.completion import circuits, components, models, one_of, parts

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL[@REVISION]",
        help="A checkpoint folder, a hub id (owner/name, with a subfolder: owner/name//folder), a known name "
        "(pythia-70m), or 'demo' (bundled).",
        autocompletion=models,
    ),
]
Output = Annotated[
    list[Path] | None,
    typer.Option("--output", "-o", help="File to write: .nc the table, .html a page; repeat for both."),
]
Fold = Annotated[
    str | None,
    typer.Option(
        help="Fold into queries, keys and values what the raw matrices lack: 'biases', 'norms', or 'biases,norms'.",
        autocompletion=one_of("biases", "norms", "biases,norms"),
    ),
]
Component = Annotated[
    list[str] | None,
    typer.Option(
        help="A weight matrix of every layer, such as 'mlp_in'; repeat for more. Default: all.",
        autocompletion=components,
    ),
]
Adapter = Annotated[
    str | None,
    typer.Option(
        help="For a low-rank adapter: 'delta', only its updates (default), by the heads of --base if given; 'merged', "
        "its base with them; 'base', its base without them.",
        autocompletion=one_of("delta", "merged", "base"),
    ),
]
Base = Annotated[
    str | None, typer.Option(help="Base model of the adapter. Default: the model that the adapter's settings name.")
]
Minus = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL[@REVISION]",
        help="Score the difference: each matrix minus that of this model, which has the same architecture.",
    ),
]
Circuits = Annotated[
    str,
    typer.Option(
        help="Matrices of each head, separated by commas: 'qk', W_Q^T W_K, always included; 'ov', W_O^T W_V; and "
        "'query', 'key', 'value', 'output', each of its matrices by itself.",
        autocompletion=circuits,
    ),
]
Matrices = Annotated[
    str,
    typer.Option(
        help="Score whole weight matrices: 'none', 'elements', or 'spectra' (a full SVD of each).",
        autocompletion=one_of("none", "elements", "spectra"),
    ),
]
Components = Annotated[
    str,
    typer.Option(
        help="Which whole matrices, separated by commas: 'layers', those of attention, MLPs, shared experts and "
        "routers; 'embeddings', with position embeddings and unembedding; 'experts', those of each expert; 'all'. "
        "Embeddings are large and experts many: both take time.",
        autocompletion=parts,
    ),
]
Elements = Annotated[
    str,
    typer.Option(
        help="Score the elements of: 'matrices', whole matrices only; 'factors', also each head's W_Q, W_K, W_V and "
        "W_O; 'heads', also its W_QK, which takes minutes for a model with a thousand heads.",
        autocompletion=one_of("matrices", "factors", "heads"),
    ),
]
Initialization = Annotated[
    str,
    typer.Option(
        help="How untrained matrices are drawn: with entries 'normal', 'uniform' or 'truncated_normal', cut at two "
        "standard deviations (trunc_normal_ of torch and transformers cuts at -2 and 2 instead: with std 0.02 that is "
        "'normal'); or 'orthogonal', as by torch.nn.init.orthogonal_.",
        autocompletion=one_of("normal", "uniform", "truncated_normal", "orthogonal"),
    ),
]
Draws = Annotated[
    int | None,
    typer.Option(
        help="Least number of null draws, from the shipped atlas or simulated. Default: all of the atlas; for a shape "
        "that it lacks max(10000, 50 per head of the model); 1000 if each head has its own null.",
        **COUNT,
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of the random draws.", **INTEGER)]
SIGMA: dict[str, Any] = {"parser": number_or_pair, "metavar": "SIGMA[,SIGMA_K]"}
Sigma = Annotated[
    Any,
    typer.Option(help="Standard deviation of the weights of W_Q and W_K, or of each: 0.02,0.03. Default: 1.", **SIGMA),
]
Normalization = Annotated[
    str | None,
    typer.Option(
        help="'sqrt_d' (default): W_QK divided by the square root of d_model; 'none': the raw product.",
        autocompletion=one_of("sqrt_d", "none"),
    ),
]
DModel = Annotated[int | None, typer.Option(help="Width of the residual stream.", **INTEGER)]
DHead = Annotated[int | None, typer.Option(help="Head dimension, at most d_model.", **INTEGER)]
DIMS: dict[str, Any] = {
    "parser": lambda text: tuple(integer(part.strip()) for part in str(text).split(",")),
    "metavar": "N,N[,N...]",
}
Dims = Annotated[
    Any,
    typer.Option(
        help="Dimensions of any chain of Gaussian factors, in place of --d-model and --d-head: 3072,768 is one matrix, "
        "512,64,512,64 a product of three.",
        **DIMS,
    ),
]
FailIf = Annotated[
    str | None,
    typer.Option(
        metavar="CONDITION",
        help="End with status 3 if a head meets this condition on its fields in --json, such as 'layer == 3 and not "
        "differs' or 'moved_share > 0.5'; with status 4 if none does but an untestable head could.",
    ),
]
Workers = Annotated[
    str | None,
    typer.Option(
        metavar="COUNT|ADDRESS",
        help="Work on that many local processes with one core each, or on the workers of a Dask scheduler: HOST:PORT, "
        "or tls://HOST:PORT with Dask's own keys.",
    ),
]


def sigma_keywords(sigma: float | tuple[float, float] | None) -> dict[str, float]:
    """Return the standard deviation of both factors, or those of each, as keyword arguments of a law."""
    if sigma is None:
        return {}
    return dict(zip(("sigma_q", "sigma_k"), sigma, strict=True)) if isinstance(sigma, tuple) else {"sigma": sigma}


def executor_of(workers: str | None) -> Executor:
    """Return the executor for a number of local processes, or for the address of a scheduler."""
    if workers is None:
        return Inline()
    return Scheduler(workers) if ":" in workers else LocalProcesses(count(workers))
