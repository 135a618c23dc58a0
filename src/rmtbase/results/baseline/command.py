"""``rmtbase baseline``: table of the null for any shape and σ, or for a plan."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from rmtbase.terminal.command_line import COUNT, INTEGER
from rmtbase.terminal.completion import models
from rmtbase.terminal.options import DIMS, SIGMA, Normalization, Workers, executor_of

if TYPE_CHECKING:
    from rmtbase.montecarlo import Plan


def baseline(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL|PLAN]",
            help="Take the shape from a model (a known name, a folder with config.json, or a hub id); or run a TOML "
            "plan, for any ensemble.",
            autocompletion=models,
        ),
    ] = None,
    d_model: Annotated[
        list[int] | None, typer.Option(help="Width of the residual stream; repeat for more shapes.", **INTEGER)
    ] = None,
    d_head: Annotated[
        list[int] | None,
        typer.Option(help="Head dimension; one, one for each --d-model, or several of one --d-model.", **INTEGER),
    ] = None,
    dims: Annotated[
        list[Any] | None,
        typer.Option(
            help="Dimensions of a chain of Gaussian factors, in place of --d-model, --d-head; repeat.", **DIMS
        ),
    ] = None,
    sigma: Annotated[
        list[Any] | None,
        typer.Option(
            help="Standard deviation of the weights of W_Q and W_K, or of each: 0.02,0.03; repeat. Default: 1.", **SIGMA
        ),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            help="Monte Carlo draws per shape, such as 10_000, 1e4 or 10k. Default: 10000. A larger number continues "
            "an interrupted run from its finished chunks.",
            **COUNT,
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same numbers. Default: 0.", **INTEGER)
    ] = None,
    normalization: Normalization = None,
    workers: Workers = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output", "-o", help="File to write: .nc the table (default: baseline-DxH.nc or PLAN.nc), .html a page."
        ),
    ] = None,
) -> None:
    """Make a table of the null, with simulated and analytic values: W_QK = W_Q^T W_K, or any ensemble.

    Finished chunks are kept beside the file until it is written, so that the same command resumes a killed run.

    Example: rmtbase baseline --d-model 768 --d-head 64 --draws 10000 -o gpt2.nc

    Example: rmtbase baseline --dims 512,64,512,64 -o chain.nc

    Example: rmtbase baseline sims/residual-paths.toml --workers 8
    """
    from rmtbase.montecarlo import run_plan
    from rmtbase.results.baseline.report import as_json, report
    from rmtbase.results.outputs import Outputs

    options: dict[str, Any] = {"d_model": d_model, "d_head": d_head, "dims": dims, "sigma": sigma}
    options |= {"draws": draws, "seed": seed, "normalization": normalization}
    plan = _plan(source, {name: value for name, value in options.items() if value is not None})
    files = Outputs(output, ("baseline", "spectra"), Path(f"{plan.name}.nc"))
    path = cast("Path", files.table)
    files.require_replaceable(*([] if source is None else [Path(source)]))
    table = files.measure(run_plan, plan, path, executor=executor_of(workers))
    files.finish(table, partial(as_json, path=path), report, written=True)


def _plan(source: str | None, options: dict[str, Any]) -> Plan:
    """Read a plan from a TOML file, or make it from the options and the shape of a model."""
    from rmtbase.errors import ParameterError
    from rmtbase.montecarlo import baseline_plan, make_plan, read_plan

    if source is not None and source.endswith(".toml"):
        if options:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in options)
            raise ParameterError("PLAN", source, f"no {names} beside it: the plan states what is drawn")
        return read_plan(Path(source))
    if chains := options.pop("dims", None):
        if source is not None or {"d_model", "d_head"} & set(options):
            raise ParameterError("dims", chains, "no MODEL, --d-model or --d-head beside it")
        name = f"chain-{'x'.join(map(str, chains[0]))}"
        return make_plan("gaussian_chain", [{"dims": dims} for dims in chains], name=name, **options)
    if source is not None:
        from rmtbase.models import head_shape
        from rmtbase.shown import one_line
        from rmtbase.terminal.endings import note

        if {"d_model", "d_head"} & set(options):
            raise typer.BadParameter(f"MODEL = {one_line(source)!r}: expected a model, or --d-model and --d-head")
        shape = head_shape(source)
        note(f"{one_line(shape.source)}: d_model = {shape.d_model}, d_head = {shape.d_head}")
        options |= {"d_model": shape.d_model, "d_head": shape.d_head}
    for name in ("d_model", "d_head"):
        if name not in options:
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"Missing option '{option}'; or name a model, or a plan (.toml)")
    return baseline_plan(**options)


COMMAND = baseline
