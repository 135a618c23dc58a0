"""The demo does the three jobs on the bundled model, offline, and leaves their results."""

import socket
from pathlib import Path

import pytest

from rmtbase.cli import main
from rmtbase.models import demo_revisions, open_model
from rmtbase.results import open_table
from rmtbase.results.scores import score, summarize_scores

DATA = Path(__file__).parents[1] / "data"


def names_of_files():
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
    said = " ".join(run("demo", "--help").out.split())
    assert "minute" not in said and "seconds" not in said
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
def test_demo_leaves_tables_scores_and_pages_of_the_untrained_and_the_trained_model(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a network was asked for"))
    folder = tmp_path / "results"
    ran = run("demo", "-o", folder)
    assert ran.status == 0, ran.err
    assert {path.name for path in folder.iterdir()} == names_of_files()
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
    assert all(f"rmtbase: wrote {path}" in ran.err for path in folder.iterdir())
    steps = (demo_revisions()[0], demo_revisions()[-1])
    untrained, trained = (open_table(folder / f"scores-{step}.nc", "scores") for step in steps)
    assert not summarize_scores(untrained).findings
    assert len(summarize_scores(trained).findings) > summarize_scores(trained).n_heads / 2
    assert open_table(folder / "baseline.nc", "baseline")["d_head"].values[0] == trained.attrs["d_head"]
    assert trained.attrs["table"] == str(folder / "baseline.nc")
    for path in folder.glob("*.html"):
        assert not any(words in path.read_text() for words in ("<script src=", 'src="http', 'rel="stylesheet"'))
