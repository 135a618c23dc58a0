"""Attributes, JSON and notes of every result about one model, whatever its kind."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rmtbase.linalg import available_cores, matrix_singular_values
from rmtbase.models import WeightMatrices, opened_from
from rmtbase.progress import Progress
from rmtbase.reasons import NotTestable, not_testable_json
from rmtbase.shown import shown
from rmtbase.tables import SCHEMA_VERSION, provenance, software_version
from rmtbase.terminal.command_line import next_command

_LONGEST = 4000  # characters of a command
_TRIAL, _BLOCK = 512, 4096  # rows and columns of the matrix that is tried, and rows of one whose elements are
_LARGE_ELEMENTS, _LARGE_PRODUCTS = 10**9, 10**12  # work below which nothing is tried: seconds


def command_about(attributes: Mapping[Any, Any], name: str, *options: str, model: WeightMatrices | None = None) -> str:
    """Return a command about the model that a file's attributes name, to paste; ``model`` is that model, if opened."""
    revision = attributes.get("revision")
    argument = f"{attributes['model']}@{revision}" if revision else str(attributes["model"])
    sources = [] if model is None else opened_from(model)
    folders = [source.path for source in sources if source.path.name == source.name]
    return shown(next_command(*options, name=name, model=str(folders[0]) if folders else argument), _LONGEST)


def result_json(
    attributes: Mapping[Any, Any],
    names: Sequence[str],
    untested: Sequence[NotTestable],
    sentences: Sequence[str],
    **parts: object,
) -> dict[str, Any]:
    """Return the JSON of a result: attributes of its file, what was not tested, its sentences and its parts."""
    return {
        **{name: attributes[name] for name in names},
        "not_testable": not_testable_json(untested),
        "sentences": list(sentences),
        "warnings": json.loads(attributes.get("warnings", "[]")),
        **parts,
    }


def file_attributes(
    kind: str,
    model: WeightMatrices,
    of_kind: Mapping[str, object],
    notes: Sequence[str],
    warnings: Sequence[str],
    call: Mapping[str, object],
    **sections: Mapping[str, Any],
) -> dict[str, object]:
    """Make the attributes of a file: its kind and model, the attributes of its kind, and the provenance.

    ``call`` has the function and its arguments but the model; ``sections`` are those of
    :func:`rmtbase.tables.provenance`.
    """
    folded, updates = list(getattr(model, "folded", ())), list(getattr(model, "updates", ()))
    return {
        "schema_version": SCHEMA_VERSION,
        "rmtbase_version": software_version(),
        "kind": kind,
        "model": shown(model.name),  # netCDF holds no text that is not UTF-8
        "revision": shown(model.revision or ""),
        "family": shown(model.architecture),
        **of_kind,
        **({"folded": json.dumps(folded)} if folded else {}),
        **({"updates": json.dumps(updates)} if updates else {}),
        "notes": json.dumps(notes),
        "warnings": json.dumps(warnings),
        "provenance": provenance({"model": model.name, "revision": model.revision, **call}, **sections),
    }


def tell_of_large(
    model: WeightMatrices,
    components: Iterable[str] | None,
    progress: Progress,
    times: int,
    trial: Callable[..., object],
) -> None:
    """Note, before large matrices are read, how many there are and about how long they will take."""
    shapes = [shape for part in opened_from(model) for shape in part.layer_shapes(components)]
    elements = sum(rows * columns for rows, columns in shapes)
    products = times * sum(rows * columns * min(rows, columns) for rows, columns in shapes)
    if elements < _LARGE_ELEMENTS and products < _LARGE_PRODUCTS:
        return
    block = np.random.default_rng(0).standard_normal((_BLOCK, _TRIAL), dtype=np.float32)
    seconds = elements / block.size * _seconds(lambda: trial(block)) / available_cores()
    if times:
        square = block[:_TRIAL].astype(np.float64)
        seconds += products / _TRIAL**3 * _seconds(lambda: matrix_singular_values(square))
    words = f"{max(seconds, 1.0):.0f} s"
    for unit, size in (("min", 60.0), ("h", 3600.0)):
        if seconds >= 1.5 * size:
            words = f"{seconds / size:.2g} {unit}" if seconds < 100 * size else f"{seconds / size:.0f} {unit}"
    rows, columns = max(shapes, key=lambda shape: shape[0] * shape[1])
    progress.note(
        f"{len(shapes)} matrices of {elements:.2g} elements will be read, the largest {rows} × {columns}: "
        f"{'their spectra' if times else 'their elements'} take about {words}, by a trial of a small one"
    )


def _seconds(work: Callable[[], object]) -> float:
    """Time the second of two runs, as the first also loads libraries."""
    work()
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
