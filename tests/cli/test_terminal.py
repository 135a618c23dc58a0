"""Quiet where nobody watches, a bar where somebody does, and a traceback only where it is asked for."""

import os
import pty
import re
from threading import Thread

import pytest

from rmtbase.statistics import SPECTRAL_STATISTICS


@pytest.fixture
def in_terminal(run, monkeypatch):
    """Run the command line with streams on a pseudo-terminal; its status and what was shown there."""

    def run_command(*arguments, columns=120, streams=("stderr",)):
        ours, theirs = pty.openpty()
        parts = []

        def read():
            while True:
                try:
                    parts.append(os.read(ours, 65536))
                except OSError:  # the terminal's other end is closed
                    break

        reader = Thread(target=read)
        reader.start()
        with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patch:
            patch.setenv("TERM", "xterm")
            patch.setenv("COLUMNS", str(columns))
            for stream in streams:
                patch.setattr(f"sys.{stream}", terminal)
            status = run(*arguments).status
        reader.join()
        os.close(ours)
        return status, b"".join(parts).decode(errors="replace")

    return run_command


def plain(shown):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


def test_terminal_shows_a_bar_with_counts_a_rate_and_the_time_left(in_terminal, shape, tmp_path):
    status, shown = in_terminal("baseline", *shape, "--draws", 4000, "-o", tmp_path / "table.nc")
    assert status == 0, shown
    text = plain(shown)
    for part in ("drawing", "/4000", r"[\d,]+/s", "left", r"\d:\d\d:\d\d", "rmtbase: wrote"):
        assert re.search(part, text), part
    assert in_terminal("baseline", *shape, "--draws", 400, "-q", "-o", tmp_path / "table.nc") == (0, "")


BASELINE = ["baseline", "--d-model", 32, "--d-head", 8, "--draws", 20]


@pytest.mark.parametrize(
    ("command", "columns", "parts"),
    [
        (BASELINE, 80, [*SPECTRAL_STATISTICS, "approximate"]),
        (BASELINE, 200, [*SPECTRAL_STATISTICS, "approximate"]),
        (["score", "demo"], 80, ["spectral_entropy_singular", "-258.3", "≤ 2e-05", "and 20 more heads"]),
        (["depth", "demo", "--component", "mlp_in", "--max-depth", 3, "--draws", 19], 80, ["320 × 128", "no depth"]),
    ],
)
def test_tables_are_whole_at_any_width(command, parts, columns, in_terminal):
    status, shown = in_terminal(*command, "-v", columns=columns, streams=("stdout",))
    assert status == 0, shown
    lines = plain(shown).splitlines()
    assert max(map(len, lines)) <= columns and "…" not in shown
    for part in parts:
        assert any(part in line for line in lines), part


def test_notes_and_errors_in_a_terminal_are_the_same_lines(in_terminal, model_folder, null_file):
    status, shown = in_terminal("-v", "score", model_folder, "--null", null_file)
    assert status == 0 and "null of (32, 8): 200 draws" in re.sub(r"\s+", " ", shown)
    status, shown = in_terminal("baseline", "--d-model", 8, "--d-head", 9)
    assert status == 2
    last = plain(shown).splitlines()[-1]
    assert last == "rmtbase: error: d_head = 9: expected at most d_model = 8 (W_Q is d_head × d_model, of rank d_head)"


def test_log_holds_no_bars_where_colours_are_forced(run, shape, tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    ran = run("baseline", *shape, "--draws", 100, "-o", tmp_path / "table.nc")
    assert (ran.status, ran.err) == (0, f"rmtbase: wrote {tmp_path / 'table.nc'}\n")
    assert "\x1b" not in ran.out


@pytest.fixture
def long(shape, monkeypatch):
    monkeypatch.setenv("RMTBASE_PROGRESS_SECONDS", "0.02")
    return ("baseline", *shape, "--draws", "40k")


def test_long_work_away_from_a_terminal_tells_how_far_it_is(run, long, tmp_path):
    path = tmp_path / "table.nc"
    ran = run(*long, "-o", path)
    # That it is at work may be said once more while what the run leaves is put away.
    *lines, wrote = (line for line in ran.err.splitlines() if "at work for" not in line)
    assert (ran.status, wrote) == (0, f"rmtbase: wrote {path}")
    drawing = [line for line in lines if line.startswith("rmtbase: drawing: ")]
    assert len(drawing) > 2
    assert re.fullmatch(r"rmtbase: drawing: [\d,]+ of 40,000, [\d,.]+/s, [\d.]+ s left", drawing[-1])
    done = [int(re.findall(r"[\d,]+", line)[0].replace(",", "")) for line in drawing]
    assert done == sorted(done)


@pytest.mark.parametrize("seconds", ["0", "-1", "often", "nan"])
def test_interval_that_is_none_is_refused(seconds, run, shape, tmp_path, monkeypatch):
    monkeypatch.setenv("RMTBASE_PROGRESS_SECONDS", seconds)
    ran = run("baseline", *shape, "--draws", 5, "-o", tmp_path / "table.nc")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert f"RMTBASE_PROGRESS_SECONDS = '{seconds}': expected a positive number of seconds" in ran.err


@pytest.mark.parametrize("place", [0, 1, 5])
def test_debug_shows_the_traceback_wherever_it_stands(place, run):
    command = ["baseline", "--d-model", 8, "--d-head", 9]
    ran = run(*command[:place], "--debug", *command[place:])
    assert ran.status == 2 and "Traceback" in ran.err and "ParameterError: d_head = 9" in ran.err
