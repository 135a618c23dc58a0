"""``rmtbase baseline``: table of the null for any shape and σ, or for a plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmtbase.terminal.command_line import COUNT, INTEGER, NUMBER, Overwrite
from rmtbase.terminal.completion import models, one_of, plans

if TYPE_CHECKING:
    from rmtbase.montecarlo import Plan


def baseline(
    d_model: Annotated[
        list[int] | None, typer.Option(help="Width of the residual stream; repeat for more shapes.", **INTEGER)
    ] = None,
    d_head: Annotated[
        list[int] | None, typer.Option(help="Head dimension; one, or one for each --d-model.", **INTEGER)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Take the shape from a model: a known name, a folder with config.json, or a hub id.",
            autocompletion=models,
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="Make the table that a TOML plan describes, for any ensemble.", autocompletion=plans),
    ] = None,
    sigma: Annotated[
        list[float] | None,
        typer.Option(help="Standard deviation of the weights of W_Q and W_K; repeat for more. Default 1.", **NUMBER),
    ] = None,
    sigma_q: Annotated[float | None, typer.Option(help="That of W_Q, where it is not that of W_K.", **NUMBER)] = None,
    sigma_k: Annotated[float | None, typer.Option(help="That of W_K, where it is not that of W_Q.", **NUMBER)] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            help="Monte Carlo draws per shape, 10_000, 1e4 or 10k say. Default 10000. More than before go on from the "
            "whole chunks that are kept.",
            **COUNT,
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same numbers to the bit. Default 0.", **INTEGER)
    ] = None,
    normalization: Annotated[
        str | None,
        typer.Option(
            help="'sqrt_d' (default): W_QK divided by the square root of d_model; 'none': the raw product.",
            autocompletion=one_of("sqrt_d", "none"),
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="'float64' (default), or 'float32' for a stated error.", autocompletion=one_of("float64", "float32")
        ),
    ] = None,
    sample: Annotated[
        bool | None,
        typer.Option("--sample/--no-sample", help="Keep every draw's statistics in the table, as scoring needs."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Draw with that many local processes, one core each.", **COUNT),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="Draw on the workers of a Dask scheduler: HOST:PORT, or tls://HOST:PORT with Dask's own keys."
        ),
    ] = None,
    chunks: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST:STOP",
            help="Draw only these chunks, as one job of an array; a run without it then writes the table.",
        ),
    ] = None,
    status: Annotated[
        bool, typer.Option("--status", help="Say what is there, what is left and what it would take, and draw nothing.")
    ] = False,
    keep_chunks: Annotated[
        bool,
        typer.Option(
            "--keep-chunks", help="Keep FILE.chunks when the table is written, for more --draws to go on from."
        ),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write. Default baseline-DxH.nc or PLAN.nc, here.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the statistics as JSON.")] = False,
) -> None:
    """Make a table of random matrices: simulated beside analytic, W_QK = W_Q^T W_K or any ensemble.

    Finished chunks are kept beside the file until it is written: the same command after a kill goes on where it stood,
    and so does one that asks for more draws.

    Example: rmtbase baseline --d-model 768 --d-head 64 --draws 10000 -o gpt2.nc

    Example: rmtbase baseline --plan sims/residual-paths.toml --workers 8
    """
    from rmtbase.montecarlo import draw_chunks, plan_status, run_plan
    from rmtbase.results.baseline.terminal import print_table, table_json
    from rmtbase.shown import one_line
    from rmtbase.terminal.output import require_output, require_replaceable
    from rmtbase.terminal.streams import bars, out, print_json

    contents = {
        "d_model": d_model,
        "d_head": d_head,
        "model": model,
        "sigma": sigma,
        "sigma_q": sigma_q,
        "sigma_k": sigma_k,
        "draws": draws,
        "seed": seed,
        "normalization": normalization,
        "precision": precision,
        "keep_sample": sample,
    }
    chosen = _plan(plan, {name: value for name, value in contents.items() if value is not None})
    path = output or Path(f"{chosen.name}.nc")
    require_output(path, "netCDF")
    inputs = [Path(one) for one in (plan, model) if one is not None]
    require_replaceable(path, "netCDF", overwrite or status, "baseline,spectra", inputs)
    if status:
        print("\n".join(map(one_line, plan_status(chosen, path))))
        return
    dask = {"workers": workers, "scheduler": scheduler}
    if chunks is not None:
        first, stop = _range(chunks)
        with bars() as progress:
            draw_chunks(chosen, path, first, stop, progress=progress, **dask)
        return
    with bars() as progress:
        table = run_plan(chosen, path, keep_chunks=keep_chunks, progress=progress, **dask)
    if as_json:
        print_json(table_json(table, path))
    else:
        print_table(table, out())


def _range(chunks: str) -> tuple[int, int]:
    """Parse the two numbers of FIRST:STOP."""
    from rmtbase.errors import ParameterError

    found = re.fullmatch(r"(\d{1,10}):(\d{1,10})", chunks, re.ASCII)
    if found is None:
        raise ParameterError("chunks", chunks, "FIRST:STOP, two numbers of chunks such as 0:100")
    return int(found[1]), int(found[2])


def _plan(file: Path | None, contents: Mapping[str, Any]) -> Plan:
    """Read the plan from the file, or make it from the options."""
    from rmtbase.errors import ParameterError
    from rmtbase.montecarlo import baseline_plan, read_plan

    if file is not None:
        if contents:
            given = ", ".join(f"--{name.replace('_', '-')}" for name in contents)
            raise ParameterError("plan", str(file), f"no {given} beside it: the plan says what is drawn")
        return read_plan(file)
    options = dict(contents)
    if "model" in options:
        from rmtbase.models import head_shape
        from rmtbase.shown import one_line
        from rmtbase.terminal.endings import note

        if {"d_model", "d_head"} & set(options):
            raise ParameterError("model", options["model"], "either --model or --d-model and --d-head")
        shape = head_shape(options.pop("model"))
        note(f"{one_line(shape.source)}: d_model = {shape.d_model}, d_head = {shape.d_head}")
        options |= {"d_model": shape.d_model, "d_head": shape.d_head}
    for name in ("d_model", "d_head"):
        if name not in options:
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"Missing option '{option}'; or give --model, or --plan")
    return baseline_plan(**options)


COMMAND = baseline
