"""Sets of the sources: said first, fetched once, gone on with after a kill, and closed in the table of coverage."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_models import write_fake
from local_hub import asked
from run_set import STEPS, shorten

from studies.sources import __main__ as entry
from studies.sources import manifests, sets
from studies.sources.claims import claims, closing
from studies.sources.coverage import covered, shown
from studies.sources.manifests import Needs, Planned
from studies.sources.recipe import Run

LLAMA, MISTRAL = "meta-llama/Llama-3.1-8B", "mistralai/Mistral-7B-v0.3"
HERE = Path(__file__).resolve().parent


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with a stand-in of every model that a test writes; its client asks it."""
    shorten(monkeypatch)
    with asked(monkeypatch, tmp_path) as server:
        yield server


def write_models(hub, models):
    steps = [f"step{step}" for step in (0, *STEPS)]
    for model in models:
        write_fake(hub.folder / model, model)
        for step in steps if "pythia" in model else ():
            write_fake(hub.folder / f"{model}@{step}", model, step)


def arguments(tmp_path, name):
    return ["--model", f"set:{name}", "--out", str(tmp_path / "out"), "--store", str(tmp_path / "store")]


def closed(tmp_path):
    """Places that need models and have them in the folder of results."""
    found = covered(entry.RECIPES)
    return {place for place, files in shown(tmp_path / "out", found).items() if any(file.closes for file in files)}


def rows_of_claims(tmp_path):
    """Rows of all runs of ``claims``, with the claim of each."""
    for path in (tmp_path / "out").glob("*/claims/results.json"):
        held = json.loads(path.read_text(encoding="utf-8"))
        for claim, row in zip(claims(), held["rows"], strict=True):
            assert (claim["place"], claim["quantity"]) == (row["place"], row["quantity"])
            yield claim, row


def commands():
    """Commands that open claims name, but sets, and the models of each."""
    named = {claim["command"]: None for claim in claims() if "set:" not in claim.get("command", "set:")}
    return [(command, tuple(shlex.split(command)[5::2])) for command in named]


def closed_by(planned):
    """Places that the runs are said to close."""
    found = set()
    for one in covered(entry.RECIPES):
        if isinstance(one.status, Needs):
            models = [each.models for each in planned if each.recipe == one.status.recipe]
            if len(one.status.models) == 1 and one.status.recipe != "weibull":
                models = [each[:1] for each in models]
            if any({*one.status.models} <= {*each} for each in models):
                found.add(one.place)
    return found


@pytest.mark.exhaustive
def test_what_is_refused_is_said_first_the_others_are_scored_and_only_the_rest_is_fetched_later(
    hub, tmp_path, monkeypatch, capsys
):
    small = {"post1": (Planned("post1", ("openai-community/gpt2",)), Planned("cross", (LLAMA, MISTRAL)))}
    monkeypatch.setattr(entry, "sets", lambda: small)
    write_models(hub, ("openai-community/gpt2", LLAMA, MISTRAL))
    hub.gated = frozenset({LLAMA})
    assert entry.main(arguments(tmp_path, "post1")) == 2
    said = capsys.readouterr()
    assert re.search(rf"^{LLAMA} +1 +0 .* yes +refused", said.out, flags=re.MULTILINE)
    assert "hf auth login (Llama 3.1 Community License" in said.err
    assert said.err.rstrip().endswith(f"cross of {entry.folder_of((LLAMA, MISTRAL))}: not run without {LLAMA}")
    assert hub.weights == ["openai-community/gpt2@main", f"{MISTRAL}@main"]
    hub.gated = frozenset()
    assert entry.main(arguments(tmp_path, "post1")) == 0
    assert re.search(rf"^{MISTRAL} +1 +1 +0\.00 +at times$", capsys.readouterr().out, flags=re.MULTILINE)
    assert hub.weights[2:] == [f"{LLAMA}@main"]
    assert closed(tmp_path) == closed_by(small["post1"]) >= {"post 1, figure 5", "post 1, figure 20"}
    assert not [*(tmp_path / "fetched").iterdir()]


def test_an_estimate_is_marked_where_the_hub_says_no_size(hub, tmp_path):
    planned = [Planned("post1", (LLAMA,))]
    (one,) = sets.fetching(sets.readings(Run(LLAMA, False, tmp_path / "out", tmp_path / "store"), planned))
    (known,) = manifests.checkpoints_of([LLAMA])
    assert one.estimated and one.bytes_each == known.bytes_each and "not a public model" not in sets.report("x", [one])
    assert f"{known.bytes_each / 1e9:.2f}*" in sets.report("post1", [one])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name",
    ["training", "pythia", *(pytest.param(name, marks=pytest.mark.weekly) for name in ("post1", "post2", "weibull"))],
)
def test_a_set_that_is_killed_goes_on_and_closes_its_places_and_again_fetches_nothing(hub, tmp_path, name):
    planned = manifests.sets()[name]
    write_models(hub, dict.fromkeys(model for one in planned for model in one.models))
    settings = {"HF_ENDPOINT": hub.endpoint, "HF_HUB_OFFLINE": "0", "HF_HUB_CACHE": str(tmp_path / "cache"),
                "TMPDIR": str(tmp_path / "fetched"), "PYTHONPATH": str(HERE.parents[1])}  # fmt: skip
    command = [sys.executable, str(HERE / "run_set.py"), *arguments(tmp_path, name)]
    with subprocess.Popen(command, cwd=HERE.parents[1], env=os.environ | settings, stdout=subprocess.PIPE) as running:
        end = time.monotonic() + 60
        while len(hub.weights) < 5:
            assert running.poll() is None and time.monotonic() < end
            time.sleep(0.02)
        running.send_signal(signal.SIGKILL)
    scored = {*hub.weights[:-1]}  # the last may not be scored
    assert not (tmp_path / "out").exists()
    del hub.weights[:]
    assert entry.main(arguments(tmp_path, name)) == 0
    assert not scored & {*hub.weights}
    assert len(hub.weights) == len({*hub.weights})
    assert closed(tmp_path) == closed_by(planned)
    of_set = [Run(one.models[0], True, tmp_path, tmp_path, one.models) for one in planned if one.recipe == "claims"]
    decided = {claim["id"] for claim, row in rows_of_claims(tmp_path) if row["standing"] in ("decided", "corrected")}
    assert {one["id"] for one in claims() if any(closing(one, each) is not None for each in of_set)} <= decided
    for path in (tmp_path / "out").glob(f"{name}/cross/README.md"):
        assert "Of Llama-3.1-8B, Mistral-7B-v0.3, 2 of 14 models." in path.read_text(encoding="utf-8")
    del hub.weights[:]
    assert entry.main(arguments(tmp_path, name)) == 0
    assert hub.weights == []
    assert not [*(tmp_path / "fetched").iterdir()]


@pytest.mark.exhaustive
@pytest.mark.parametrize("command, models", commands(), ids=lambda one: "+".join(one) if isinstance(one, tuple) else "")
def test_the_command_that_an_open_claim_names_closes_it(hub, tmp_path, command, models):
    """On the stand-in hub: every claim that names the command is open without it, and decided by it."""
    write_models(hub, models)
    words = shlex.split(command)[3:]
    assert entry.main([*words, "--quick", "--out", str(tmp_path / "out"), "--store", str(tmp_path / "store")]) == 0
    assert {one.partition("@")[0] for one in hub.weights} == {*models}  # nothing is fetched for show
    own = [(claim, row) for claim, row in rows_of_claims(tmp_path) if "models" in claim]
    assert {row["standing"] for claim, row in own if claim["command"] == command} <= {"decided", "corrected"}
    others = [row for claim, row in own if closing(claim, Run(models[0], True, tmp_path, tmp_path, models)) is None]
    assert len(others) > 20 and {row["standing"] for row in others} == {"open"}


def test_the_workflow_offers_every_set():
    workflow = (HERE.parents[1] / ".github/workflows/sources.yml").read_text(encoding="utf-8")
    assert {f"set:{name}" if name != "all" else name for name in manifests.sets()} == {
        *re.search(r"options: \[(.*)\]", workflow)[1].replace('"', "").split(", ")
    }
