"""What the README and the users' guide show runs as it is written there."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pytest

import rmtbase
from markdown_pages import PAGES, ROOT, blocks, commands
from rmtbase.tables import write_table

BLOCKS = [(page.relative_to(ROOT).as_posix(), language, text) for page in PAGES for language, text in blocks(page)]
SNIPPETS = {text: page for page, language, text in reversed(BLOCKS) if language == "python"}
COMMANDS = sorted({command.partition(" > ")[0] for page in PAGES for command in commands(page)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with what the first commands make, the table of another shape and fewer draws."""
    folder = tmp_path_factory.mktemp("readme")
    write_table(rmtbase.baseline(32, 8, draws=200), folder / "gpt2.nc")
    write_table(rmtbase.score("demo", matrices="elements"), folder / "scores.nc")
    return folder


@pytest.mark.parametrize("snippet", SNIPPETS, ids=SNIPPETS.get)
def test_snippets_run(snippet, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    exec(snippet, names)  # the page's own text
    assert capsys.readouterr().out
    if "scores" in names:  # "head 3, and only head 3, differs from random heads"
        q_value = names["scores"]["heads"]["omnibus_q_value"].values  # type: ignore[index]
        assert np.argwhere(q_value < 0.05).tolist() == [[0, 3]]


def test_commands_and_their_options_exist(run):
    assert len(COMMANDS) > 10
    for command in COMMANDS:
        _, name, *words = shlex.split(command)
        ran = run(name, "--help")
        assert ran.status == 0, command
        for option in (word for word in words if re.fullmatch(r"-{1,2}[a-z-]+", word)):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", ran.out), f"{command}: {option}"


@pytest.mark.parametrize("command", [command for command in COMMANDS if re.match(r"rmtbase (law|constants) ", command)])
def test_commands_that_are_quick_run(command, run):
    ran = run(*shlex.split(command)[1:])
    assert (ran.status, ran.err) == (0, "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files_that_are_there(page):
    prose = re.sub(r"```.*?```|`[^`\n]+`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", prose)
    assert [link for link in links if not (page.parent / link).exists()] == []
