"""``rmtbase signal``: what each head and matrix of a checkpoint has learned, and in how much noise."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmtbase.results.signal.terminal import LISTED, print_groups, print_readings, print_signal
from rmtbase.terminal.command_line import COUNT, INTEGER, NUMBER, Fold, Overwrite, Subfolder, words
from rmtbase.terminal.completion import circuits as circuit_names
from rmtbase.terminal.completion import one_of, revisions
from rmtbase.terminal.endings import note
from rmtbase.terminal.scoring_options import (
    Adapter,
    Base,
    Initialization,
    Minus,
    MinusRevision,
    ModelArgument,
    Proof,
    opened_model,
)
from rmtbase.terminal.streams import bars, out, print_json, say_written

if TYPE_CHECKING:
    import xarray as xr

    from rmtbase.results.signal._direction_tokens import DirectionReading
    from rmtbase.results.signal.rows import GroupRow, SignalRow


def signal(
    model: ModelArgument,
    revision: Annotated[
        str | None, typer.Option(help="Revision of a hub id or of 'demo'.", autocompletion=revisions)
    ] = None,
    subfolder: Subfolder = None,
    fold: Fold = None,
    circuits: Annotated[
        str | None,
        typer.Option(
            help="What of each head, names parted by commas: 'qk', 'ov', 'query', 'key', 'value', 'output'. Default "
            "all that the model has.",
            autocompletion=circuit_names,
        ),
    ] = None,
    adapter: Adapter = None,
    base: Base = None,
    minus: Minus = None,
    minus_revision: MinusRevision = None,
    matrices: Annotated[
        str,
        typer.Option(
            help="Whole weight matrices: 'spectra' (a full SVD of each), or 'none'.",
            autocompletion=one_of("none", "spectra"),
        ),
    ] = "spectra",
    level: Annotated[
        float, typer.Option(help="Of each test, and one minus the confidence of each limit.", **NUMBER)
    ] = 0.05,
    null: Annotated[
        str | None,
        typer.Option(
            help="The noise: 'gaussian', entries as --initialization draws them; 'kurtosis', of any law with the "
            "excess kurtosis of each head's or matrix's own; 'signs', random sign flips of each head and matrix, exact "
            "for any symmetric entries, rounded ones too. Default 'signs' with --minus, else 'gaussian'.",
            autocompletion=one_of("gaussian", "kurtosis", "signs"),
        ),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            help="Sign flips of each test, at most; no p-value is below 1/(draws + 1). Default 10/level - 1.", **COUNT
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sign flips.", **INTEGER)] = 0,
    initialization: Initialization = "normal",
    directions: Annotated[
        int,
        typer.Option(
            help="Read so many directions of each head and matrix that is listed as tokens, through the model's own "
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
    proof: Proof = True,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write (netCDF4).")] = None,
    csv: Annotated[
        Path | None,
        typer.Option(help="Also write a row for each head and matrix as CSV; '-': to stdout, in the table's place."),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Print decisions in the table's place: 'peft', what peft.LoraConfig takes, with the number of learned "
            "directions as each module's rank; 'yaml', patterns of parameters to unfreeze, most learned first.",
            autocompletion=one_of("peft", "yaml"),
        ),
    ] = None,
) -> None:
    """Signal and noise: how many directions has every head and matrix learned, how strong, and is the rest noise?

    Example: rmtbase signal demo -o signal.nc

    What its directions read and write: rmtbase signal demo --circuits qk,ov --matrices none --directions 2

    Ranks of adapters that hold what fine-tuning changed: rmtbase signal TUNED --minus BASE --format peft

    Initialised uniformly, as torch.nn.Linear does: rmtbase signal MODEL --initialization uniform

    Is it a power law? rmtbase signal demo --heavy-tails

    What an adapter learned: rmtbase signal ADAPTER; what fine-tuning changed: rmtbase signal TUNED --minus BASE
    """
    from rmtbase.errors import OutputError, ParameterError
    from rmtbase.models import require_other_files, token_names
    from rmtbase.nulls import find_null
    from rmtbase.terminal.output import is_standard_output, require_output, require_replaceable, write_output

    printed = is_standard_output(csv)
    if printed + as_json + (form is not None) > 1:
        raise OutputError("-", "stdout takes one output; name files for the others")
    files = {"netCDF": output, "CSV of signal": None if printed else csv}
    outputs = {kind: path for kind, path in files.items() if path is not None}
    for kind, path in outputs.items():
        require_output(path, kind)
    if len({path.resolve() for path in outputs.values()}) < len(outputs):
        raise OutputError(outputs["netCDF"], "it is named for two outputs; expected a name for each")
    opened, files_of = opened_model(model, revision, subfolder, fold, adapter, base, minus, minus_revision, proof)
    name = null or ("gaussian" if minus is None else "signs")
    noise = find_null(name, initialization=initialization, draws=draws, seed=seed)
    for one in files_of:
        require_other_files(list(outputs.values()), one)
    for kind, path in outputs.items():
        require_replaceable(path, kind, overwrite, "signal", [one.path for one in files_of])
    if directions < 0:
        raise ParameterError("directions", directions, "0 or more")

    from rmtbase.results.signal._decisions import FORMATS, decisions_text, learned_modules, left_out_of
    from rmtbase.results.signal._direction_tokens import embedding_of, read_directions
    from rmtbase.results.signal.measure import signal as signal_of
    from rmtbase.results.signal.rows import signal_csv, signal_groups, signal_rows
    from rmtbase.tables import write_table

    if form is not None and form not in FORMATS:
        raise ParameterError("format", form, f"one of {', '.join(FORMATS)}")
    if form is not None and matrices == "none":
        raise ParameterError("matrices", matrices, "'spectra' with --format, which is of whole matrices")
    if directions:
        embedding_of(files_of[0])  # before long work
    with bars() as progress:
        tree = signal_of(
            opened,
            circuits=None if circuits is None else words(circuits),
            matrices=matrices,  # type: ignore[arg-type]  # checked where it is used
            level=level,
            null=noise,
            progress=progress,
            heavy_tails=heavy_tails,
        )
    if output is not None:
        write_table(tree, output)
    if csv is not None:
        write_output(signal_csv(tree).encode(), csv)
    rows, groups = signal_rows(tree), signal_groups(tree)
    strongest = sorted((row for row in rows if row.directions), key=lambda row: -row.numbers["signal_share"])[:LISTED]
    readings: list[DirectionReading] | None = [] if directions else None
    if directions and not printed and form is None:
        names = token_names(files_of[0].path)
        read = read_directions(
            opened,
            strongest,
            level,
            directions,
            files_of[0],
            names,
            null=noise,
        )
        readings = list(read)
    if form is not None:
        modules = learned_modules(tree, opened)
        print(decisions_text(modules, level, form), end="")
        for line in left_out_of(modules, level, form):
            note(line)
    elif as_json:
        print_json(_signal_json(tree, rows, groups, readings))
    elif not printed:
        title = opened.name + (f", revision {opened.revision}" if opened.revision else "")
        print_signal(rows, strongest, title, level, out())
        if groups:
            print_groups(rows, groups, level, out())
        if readings is not None:
            print_readings(readings, level, out())
    for path in outputs.values():
        say_written(path)


def _signal_json(
    tree: xr.DataTree,
    rows: Sequence[SignalRow],
    groups: Sequence[GroupRow],
    readings: Sequence[DirectionReading] | None,
) -> dict[str, Any]:
    """Every head and matrix with its directions; null where there is no number."""
    from rmtbase.results.signal._direction_tokens import readings_headline
    from rmtbase.results.signal.rows import discoveries, groups_not_testable, signal_headline, signal_not_testable
    from rmtbase.tables import not_testable_json

    attributes, level = tree.attrs, float(tree.attrs["level"])
    return {
        **{name: attributes[name] for name in ("model", "revision", "level")},
        "n_testable": sum(row.testable for row in rows),
        "n_learned": discoveries(rows, level) if any(row.testable for row in rows) else None,
        "not_testable": not_testable_json([*signal_not_testable(rows), *groups_not_testable(groups)]),
        "sentences": [
            signal_headline(rows, level),
            *([] if readings is None else [readings_headline(readings, level)]),
        ],
        "warnings": json.loads(attributes["warnings"]),
        "spectra": [_row_json(row) for row in rows],
        **({"groups": [_group_json(one) for one in groups]} if groups else {}),
        **({} if readings is None else {"tokens": [_reading_json(one) for one in readings]}),
    }


def _place_json(row: SignalRow, numbered: str = "head") -> dict[str, Any]:
    return ({"stack": row.stack} if row.stack else {}) | {"layer": row.layer, "what": row.what, numbered: row.head}


def _row_json(row: SignalRow, numbered: str = "head") -> dict[str, Any]:
    return (
        _place_json(row, numbered)
        | {name: _plain(name, value) for name, value in row.numbers.items()}
        | {"directions": row.directions, "reason": row.reason}
        | ({"heavy_tails": row.tails} if row.tails else {})
    )


def _group_json(group: GroupRow) -> dict[str, Any]:
    whole = _row_json(group.row, "key_head")
    directions = zip(group.row.directions, group.head_share, strict=True)
    return whole | {"directions": [{**one, "head_share": share} for one, share in directions]}


def _reading_json(reading: DirectionReading) -> dict[str, Any]:
    told = ("direction", "side", "written", "p_value", "above", "below")
    return _place_json(reading.row) | {name: getattr(reading, name) for name in told}


def _plain(name: str, value: float) -> float | int | bool:
    """Convert a value to its own type; printing turns NaN into JSON's null."""
    if math.isnan(value) or name not in ("n_directions", "noise_floor"):
        return value
    return bool(value) if name == "noise_floor" else int(value)


COMMAND = signal
