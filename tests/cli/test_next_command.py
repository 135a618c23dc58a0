"""Commands that are printed as the next ones can be pasted: they name the model, and run."""

import re
import shlex

import pytest

import rmtbase
from rmtbase.models import open_model
from rmtbase.results.scores import render


def commands_in(text):
    """Commands that a page, or a terminal, names."""
    return [shlex.split(found) for found in re.findall(r"rmtbase (?:score|signal|law|baseline|constants)[^<\n]*", text)]


@pytest.fixture
def awkward(weights, tmp_path):
    """A model in a folder whose name needs quotes in a shell."""
    return weights.save(tmp_path / "my model's folder")


@pytest.mark.exhaustive
def test_the_command_for_the_cause_names_the_model_and_runs(awkward, run):
    page = awkward.parent / "page.html"
    ran = run("score", awkward, "--matrices", "none", "-o", page)
    html = page.read_text().replace("&#39;", "'").replace("&#34;", '"')
    score, signal = (found for found in commands_in(html) if found[1] in ("score", "signal"))
    assert score == ["rmtbase", "score", str(awkward), "--matrices", "none", "-o", str(page), "--why", "all"]
    assert signal == ["rmtbase", "signal", str(awkward), "--directions", "2"]
    assert ran.status == run(*score[1:]).status == 0
    run("score", "demo@final", "--minus", "demo@step-0", "--matrices", "none", "-o", page)
    (signal,) = (found for found in commands_in(page.read_text()) if found[1] == "signal")
    assert signal == ["rmtbase", "signal", "demo@final", "--minus=demo@step-0", "--directions", "2"]


def test_python_names_the_folder_or_the_name_with_its_revision(awkward):
    model = open_model(awkward)
    tree = rmtbase.score(model, "analytic", matrices="none")
    html = render(tree, pictures=False, model=model).replace("&#39;", "'").replace("&#34;", '"')
    assert ["rmtbase", "score", str(awkward), "--why", "all"] in commands_in(html)
    demo = rmtbase.score("demo", "analytic", matrices="none")
    assert "rmtbase signal demo@final --directions 2" in render(demo, pictures=False)
    model = open_model("demo")
    heads = [model.by_head(0, name, model.matrix(0, f"attention_{name}")) for name in ("query", "key")]
    page = render(rmtbase.score_heads(*heads, "analytic"), pictures=False)
    assert "rmtbase.score(…, why=&#34;all&#34;)" in page and not commands_in(page)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (["score", "demo@step-200", "--matrices", "none", "--null", "analytic"], "score"),
        (["law", "--d-model", "64", "--d-head", "4"], "baseline"),
        (["constants", "--d-model", "768", "--d-head", "64"], "constants"),
    ],
)
def test_siblings_print_the_whole_command(given, name, run):
    ran = run(*given)
    assert ran.status == 0
    (command,) = (found for found in commands_in(ran.out) if found[1] == name)
    assert command[2 : 1 + len(given)] == given[1:]


@pytest.mark.parametrize("given", [["composition", "demo", "--kinds", "k"], ["diff", "demo@step-0", "demo@step-0"]])
def test_more_is_offered_by_a_whole_command_on_stderr_but_not_with_quiet(given, run):
    assert f"more, and what the words mean: rmtbase {shlex.join(given)} --verbose" in run(*given).err
    assert "--verbose" not in run("-q", *given).err
