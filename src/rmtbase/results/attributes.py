"""Attributes that every file about one model has, whatever its kind."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rmtbase.models import WeightMatrices, opened_from
from rmtbase.reasons import NotTestable, not_testable_json
from rmtbase.shown import shown
from rmtbase.tables import SCHEMA_VERSION, provenance, software_version
from rmtbase.terminal.command_line import next_command

_LONGEST = 4000  # characters of a command


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
    folded, updates = (list(getattr(model, name, ())) for name in ("folded", "updates"))
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
