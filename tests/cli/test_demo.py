"""The demo does the three jobs on the bundled model, offline, and leaves their results."""

import io
import socket
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from rmtbase.cli import main
from rmtbase.models import demo_revisions, open_model
from rmtbase.results import open_table
from rmtbase.results.scores import score, summarize_scores

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """What the demo noted, in this process, which has all libraries loaded, and the folder that it left."""
    folder, notes = tmp_path_factory.mktemp("demo") / "results", io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()), redirect_stderr(notes):
        patch.chdir(folder.parent)
        patch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a network was asked for"))
        with pytest.raises(SystemExit) as ended:
            main(["demo", "-o", str(folder)])
    assert ended.value.code == 0, notes.getvalue()
    return notes.getvalue(), folder


def names_of_files():
    """What the demo writes."""
    first, last = demo_revisions()[0], demo_revisions()[-1]
    scores, reports = ([f"scores-{step}.nc", f"report-{step}.html"] for step in (first, last))
    return {"baseline.nc", *scores, *reports}


def test_demo_writes_its_parts_to_its_folder(tmp_path, monkeypatch, run):
    monkeypatch.setattr("rmtbase.montecarlo.baseline", lambda *_, **__: open_table(DATA / "baseline.nc", "baseline"))
    monkeypatch.setattr("rmtbase.results.scores.score", lambda *_, **__: open_table(DATA / "scores.nc", "scores"))
    monkeypatch.setattr("rmtbase.results.scores.render", lambda *_, **__: "<!DOCTYPE html>")
    ran = run("demo", "-o", tmp_path / "results")
    assert ran.status == 0, ran.err
    assert {path.name for path in (tmp_path / "results").iterdir()} == names_of_files()
    for name in names_of_files():
        assert f"rmtbase: wrote {tmp_path / 'results' / name}" in ran.err
    assert ran.out.splitlines()[-1].startswith(f"Open {tmp_path / 'results' / 'report-final.html'} in a browser")


def test_demo_and_score_compare_with_as_many_random_heads(tmp_path, monkeypatch, run):
    stopped = RuntimeError("enough is known")
    asked = []

    def baseline(*sizes, **options):
        asked.append(sizes)
        raise stopped

    monkeypatch.setattr("rmtbase.montecarlo.baseline", baseline)
    run("demo", "-o", tmp_path / "results")
    ((d_model, d_head, _, draws),) = asked
    model = open_model("demo")
    assert draws == score(model, matrices="none").attrs["null_draws"]
    assert (d_model, d_head) == (model.sites[0].d_query, model.sites[0].d_head)


def test_demo_promises_no_time(run):
    said = " ".join(run("demo", "--help").out.split())
    assert "minute" not in said and "seconds" not in said


@pytest.mark.exhaustive
def test_demo_leaves_table_scores_and_reports_and_nothing_else(demo):
    _, folder = demo
    assert {path.name for path in folder.iterdir()} == names_of_files()
    assert [path.name for path in folder.parent.iterdir()] == ["results"]


@pytest.mark.parametrize("name", ["baseline.nc", "scores-step-0.nc", "report-final.html"])
def test_demo_replaces_no_file_of_another_kind(tmp_path, name, capsys):
    assert name.split("-", 1)[-1].rsplit(".", 1)[0] in {"baseline", *demo_revisions()}
    (tmp_path / name).write_text("notes of a user")
    with pytest.raises(SystemExit) as ended:
        main(["demo", "-o", str(tmp_path)])
    assert ended.value.code == 2
    assert "expected another folder (-o)" in " ".join(capsys.readouterr().err.split())
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [(name, "notes of a user")]


@pytest.mark.exhaustive
def test_demo_says_each_file_that_it_wrote(demo):
    notes, folder = demo
    for path in folder.iterdir():
        assert f"rmtbase: wrote {path}" in notes


@pytest.mark.exhaustive
def test_untrained_heads_are_not_flagged_and_trained_ones_are(demo):
    _, folder = demo
    first, last = (
        summarize_scores(open_table(folder / f"scores-{step}.nc", "scores"))
        for step in (demo_revisions()[0], demo_revisions()[-1])
    )
    assert not first.findings
    assert len(last.findings) > last.n_heads / 2


@pytest.mark.exhaustive
def test_demos_null_is_of_the_models_shape(demo):
    _, folder = demo
    table, scores = (
        open_table(folder / "baseline.nc", "baseline"),
        open_table(folder / f"scores-{demo_revisions()[-1]}.nc", "scores"),
    )
    assert table["d_head"].values[0] == scores.attrs["d_head"]
    assert scores.attrs["table"] == str(folder / "baseline.nc")


@pytest.mark.exhaustive
def test_reports_open_without_a_network(demo):
    _, folder = demo
    for path in folder.glob("*.html"):
        text = path.read_text()
        assert "<script src=" not in text
        assert 'src="http' not in text
        assert 'rel="stylesheet"' not in text
