"""Whatever a file holds: status 0 with the right numbers, or status 2 with one line, in 1 GiB and 20 s of CPU.

And a command that is killed, or one of whose calls fails, loses nothing, and run again gives the same bytes. The long
run, with all points of all commands, is ``python tests/fuzz/run.py --mutations 1000``.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kinds import KINDS, SOME

HERE = Path(__file__).parent


def wrong(verdicts: list[dict]) -> list[str]:
    return [f"{one['case']}: {one['why']}" for one in verdicts if one["outcome"] == "wrong"]


def mutated(kind: str, verdicts: list[dict]) -> None:
    of_kind = [one for one in verdicts if one["case"].startswith(f"{kind}:")]
    assert wrong(of_kind) == []
    outcomes = {one["case"].split(":")[1]: one["outcome"] for one in of_kind}
    assert outcomes["untouched"] == "right"


@pytest.mark.parametrize("kind", SOME)
def test_mutated_files_give_the_right_numbers_or_one_line(kind: str, some_verdicts: list[dict]) -> None:
    mutated(kind, some_verdicts)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in SOME])
def test_every_kind_of_mutated_file_gives_the_right_numbers_or_one_line(kind: str, other_verdicts: list[dict]) -> None:
    mutated(kind, other_verdicts)


@pytest.mark.exhaustive
def test_what_was_wrong_once_is_right_now(other_verdicts: list[dict]) -> None:
    seeds = set(json.loads((HERE / "seeds.json").read_text()))
    again = [one for one in other_verdicts if one["case"] in seeds]
    assert {one["case"] for one in again} == seeds
    assert wrong(again) == []


def interrupted(verdicts: list[dict]) -> set[str]:
    """The ways in which a command was interrupted that went on to the same bytes each time."""
    cases = [one for one in verdicts if one["case"].startswith("interrupted ")]
    assert wrong(cases) == []
    return {one["case"].split(":")[1].rpartition(", ")[2] for one in cases}


def test_interrupted_run_loses_nothing_and_goes_on_to_the_same_bytes(some_verdicts: list[dict]) -> None:
    assert len(interrupted(some_verdicts)) == 2


@pytest.mark.exhaustive
def test_run_interrupted_in_any_way_loses_nothing(other_verdicts: list[dict]) -> None:
    assert {"kill", "ENOSPC", "EIO", "EACCES", "EMFILE"} <= interrupted(other_verdicts)


LIMITS = """
import os, signal, sys, time
from pathlib import Path
from sandbox import GIB, run_forked

def end(work):
    return run_forked(work, Path.cwd())

hungry = end(lambda: bytearray(2 * GIB).count(b"x"))
assert "GiB of memory" in hungry.limit, hungry
killed = end(lambda: os.kill(os.getpid(), signal.SIGSEGV))
assert killed.status == -signal.SIGSEGV, killed
left = end(lambda: sys.exit(2))
assert (left.status, left.limit) == (2, ""), left
raised = end(lambda: 1 / 0)
assert raised.status == 1 and b"ZeroDivisionError" in raised.err, raised
unprintable = end(lambda: print("\\udcff"))
assert unprintable.status == 1 and b"UnicodeEncodeError" in unprintable.err, unprintable
talkative = end(lambda: print("x" * 10_000_000))
assert (talkative.status, len(talkative.out)) == (0, 10_000_001), talkative.limit
print("seen")
"""


def test_the_sandbox_sees_what_it_is_there_for(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LIMITS],
        cwd=tmp_path,
        env={"PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout == "seen\n", ended.stderr


SUITE = Path(__file__).with_name("values.py")
SHORT = ("--cases", "60", "--seed", "0")


@pytest.mark.exhaustive
def test_nonsense_ends_with_status_0_or_2(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    ended = subprocess.run(
        [sys.executable, str(SUITE), *SHORT, "--json", str(record)],
        capture_output=True,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        check=False,
    )
    assert ended.returncode in (0, 1), ended.stderr
    cases = json.loads(record.read_text())
    assert len(cases) in range(58, 63)
    assert [case for case, _, wrong, _ in cases if wrong] == [], ended.stdout
