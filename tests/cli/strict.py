"""JSON as its standard has it, and as the schema of errors has it."""

import json
from importlib.resources import files

import jsonschema
import pytest


def strict_json(text):
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def error_in(printed):
    schema = json.loads((files("rmtbase.results") / "schemas" / "error.json").read_text(encoding="utf-8"))
    jsonschema.validate(strict_json(printed), schema)
    return strict_json(printed)["error"]
