"""The list of items of the sources: places that are there, commands that parse, and the page made of it."""

import argparse
import json
import shlex

import pytest
import typer

from rmtbase.cli._app import app
from studies.sources.__main__ import HERE, main
from studies.sources.claims import claims
from studies.sources.coverage import ITEMS, PLACES, items_page

HELD = json.loads(ITEMS.read_text(encoding="utf-8"))
SECTIONS = {
    "draft": ("Introduction", "Singular Values of Random Matrices of Low Rank", "Data Samples", "Results"),
    "post 1": ("Models and Data", "What Comes Next"),
    "post 2": ("What Comes Next",),
    "Weibull paper": ("6", "A.4", "B.2", "B.3"),
    "follow-up": ("comments", "Similarity with non-deduplicated models"),
}
"""Of the sources, those that neither a place of coverage nor a claim names."""


class ParsedError(Exception):
    """Raised in place of a run."""


def known_places():
    found = {*PLACES, *(f"{source}, {name}" for source, names in SECTIONS.items() for name in names)}
    for one in claims():
        source, _, parts = one["place"].partition(", ")
        found |= {one["place"], *(f"{source}, {part}" for part in parts.split("; "))}
    return found


def test_items_have_a_known_place_a_state_and_a_reason():
    known = known_places()
    for one in HELD["items"]:
        assert one["place"] in known, one["place"]
        assert one["state"] in ("done", "partly", "not") or one["state"].startswith("needs "), one
        assert one["what"] and one["why"].endswith("."), one
        assert one["command"] in HELD["commands"] or one["state"] == "not" or one["why"].startswith("Superseded"), one
    assert {*PLACES} <= {one["place"] for one in HELD["items"]}
    assert len({(one["place"], one["what"]) for one in HELD["items"]}) == len(HELD["items"])
    assert {*HELD["commands"]} == {one["command"] for one in HELD["items"]} - {""}


@pytest.mark.parametrize("command", HELD["commands"].values(), ids=HELD["commands"])
def test_each_command_parses(command, monkeypatch):
    program, *words = shlex.split(command)
    if program == "rmtbase":
        group = typer.main.get_command(app)
        context = group.make_context(program, words)
        name, found, arguments = group.resolve_command(context, words)
        found.make_context(name, arguments, parent=context)
        return
    assert words[:2] == ["-m", "studies.sources"]
    parse = argparse.ArgumentParser.parse_args

    def only(self, *arguments):
        raise ParsedError(parse(self, *arguments))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", only)
    with pytest.raises(ParsedError):
        main(words[2:])


def test_the_page_is_made_of_the_list():
    assert (HERE / "ITEMS.md").read_text(encoding="utf-8") == items_page()
