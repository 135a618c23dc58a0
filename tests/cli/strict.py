"""JSON as its standard has it."""

import json

import pytest


def strict_json(text):
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
