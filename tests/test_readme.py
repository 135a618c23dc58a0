"""What the README and the users' guide show runs as it is written there."""

import re
import shlex
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec

import numpy as np
import pytest
import tensorboardX

import rmtbase
from event_files import events
from markdown_pages import PAGES, ROOT, blocks, commands
from rmtbase.tables import write_table

BLOCKS = [(page.relative_to(ROOT).as_posix(), language, text) for page in PAGES for language, text in blocks(page)]
SNIPPETS = {text: page for page, language, text in reversed(BLOCKS) if language == "python"}
PRINTED = sorted({text for _, language, text in BLOCKS if language == "console"})
COMMANDS = sorted({command.partition(" > ")[0] for page in PAGES for command in commands(page)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with what the first commands make, the table of another shape and fewer draws."""
    folder = tmp_path_factory.mktemp("readme")
    write_table(rmtbase.baseline(32, 8, draws=200), folder / "gpt2.nc")
    write_table(rmtbase.score("demo", matrices="elements"), folder / "scores.nc")
    return folder


@pytest.fixture
def logged(monkeypatch, tmp_path):
    """What stand-ins of W&B, Trackio and MLflow are given, by name; those that are installed run as they are."""
    local = {"WANDB_MODE": "offline", "TRACKIO_DIR": tmp_path, "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/runs.db"}
    for name, value in local.items():
        monkeypatch.setenv(name, str(value))
    found: dict[str, list] = {name: [] for name in ("wandb", "trackio", "mlflow") if not find_spec(name)}
    for name, given in found.items():
        module = module_from_spec(ModuleSpec(name, None))
        vars(module)["init"] = lambda project: None
        vars(module)["log"] = lambda data, step, given=given: given.append((data, step))
        vars(module)["log_metric"] = lambda key, value, step, given=given: given.append(({key: value}, step))
        monkeypatch.setitem(sys.modules, name, module)
    if not find_spec("tensorboard"):
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", tensorboardX)  # the same events, the same signature
    return found


@pytest.mark.parametrize("snippet", SNIPPETS, ids=SNIPPETS.get)
def test_snippets_run(snippet, folder, monkeypatch, capsys, logged):
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    exec(snippet, names)  # the page's own text
    assert capsys.readouterr().out
    if "watcher" in names:
        last = names["found"]
        assert names["watcher"].steps == [0, 40]  # type: ignore[attr-defined]
        for given in logged.values():
            assert {key: one for data, step in given if step == 40 for key, one in data.items()} == last
        scalars = events(folder / "logs")
        assert all([step for step, _ in scalars[name]] == [0, 40] for name in last)
        np.testing.assert_allclose([scalars[name][-1][1] for name in last], list(last.values()), rtol=1e-6)
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


@pytest.mark.parametrize("shown", PRINTED, ids=lambda shown: shown.partition("\n")[0])
def test_what_a_command_prints_is_shown_as_it_is(shown, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RMTBASE_PROOF", "0")
    command, _, output = shown.partition("\n")
    prompt, _, *words = shlex.split(command)
    ran = run(*words)
    assert (prompt, ran.status) == ("$", 0)
    place, printed = 0, " ".join(ran.out.split())  # however its lines are broken
    for part in re.split(r"^\.\.\.$", output, flags=re.MULTILINE):
        place = printed.find(wanted := " ".join(part.split()), place)
        assert place >= 0, wanted
    assert output.startswith("...") or printed.startswith(" ".join(output.partition("...")[0].split()))


def test_every_study_has_its_line():
    listed = re.findall(r"^\| \[(\w+)\]\(\1/README.md\)", (ROOT / "studies/README.md").read_text("utf-8"), re.MULTILINE)
    assert listed == sorted(page.parent.name for page in (ROOT / "studies").glob("*/README.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files_that_are_there(page):
    prose = re.sub(r"```.*?```|`[^`\n]+`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", prose)
    assert [link for link in links if not (page.parent / link).exists()] == []
