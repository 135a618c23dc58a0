"""Ctrl-C at random moments to every command: how long it takes to end, and whether anything is left.

    python benchmarks/interrupts.py --runs 100 --seed 0

The moment is drawn over the processor time that a command takes (which is the same however busy the machine is), its
first seconds above all. ``tests/cli/interrupts_of_commands.py`` says what must hold; besides, the interrupted
``baseline`` run again gives the table of an uninterrupted run, to the bit. The time from the first signal to the end is
recorded (``--record FILE``, one JSON object a line).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import xarray as xr

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cli"))
from interrupts_of_commands import COMMAND, COMMANDS, ENDING, Moment, Run, Whole, interrupted

EARLY = 6.0  # seconds: most interrupts come before, where there is most to import, to compile and to start


def drawn(seconds: float, chance: random.Random) -> Moment:
    return Moment(
        after=chance.uniform(0.0, chance.choices((0.3, min(seconds, EARLY), seconds), (0.15, 0.6, 0.25))[0]),
        signal=chance.choices(list(ENDING), (0.5, 0.4, 0.1))[0],
        again=chance.uniform(0.0, 0.3) if chance.random() < 0.25 else None,
        group=chance.random() < 0.5,
        terminal=chance.random() < 0.4,
    )


def uninterrupted(folder: Path, arguments: tuple[str, ...]) -> Whole:
    run = Run(folder, arguments)
    begin = end = run.used()
    while run.process.poll() is None:
        time.sleep(0.02)
        end = used if (used := run.used()) < math.inf else end
    run.finish()
    assert run.status == 0, run.err.decode(errors="replace")
    assert not run.wrong, run.wrong
    return Whole(end - begin, run.files(), run.table())


def run_again(folder: Path, arguments: tuple[str, ...], whole: Whole) -> list[str]:
    """List the faults of the table that the same command gives after an interrupt."""
    again = Run(folder, arguments)
    again.finish()
    if again.status != 0:
        return [f"run again: status {again.status}: {again.lines}"]
    table = again.table()
    wrong = [] if table is not None and table.identical(whole.table) else [f"run again: {_differences(table, whole)}"]
    if left := again.files() - whole.files:
        wrong.append(f"run again: left {sorted(left)}")
    return [*wrong, *again.wrong]


def _differences(table: xr.Dataset | None, whole: Whole) -> str:
    if table is None or whole.table is None:
        return "no table"
    values = [str(name) for name in whole.table.variables if not table[name].identical(whole.table[name])]
    attributes = {name: (table.attrs.get(name), value) for name, value in whole.table.attrs.items()}
    return f"other values of {values}, other attributes {[one for one, (a, b) in attributes.items() if a != b]}"


@cache
def given(name: str) -> dict[str, bytes]:
    """Make the files that a command reads, by name, in other processes, so that this one uses no thread of JAX."""
    scored = ("score", "--draws", "200", "--matrices", "elements")
    commands = {}
    if name in ("plot", "export"):
        commands["given.nc"] = ("baseline", "--d-model", "32", "--d-head", "8", "--draws", "200")
    if name == "compare":
        commands |= {"first.nc": (*scored, "demo@step-0"), "last.nc": (*scored, "demo@final")}
    with tempfile.TemporaryDirectory() as folder:
        for file, command in commands.items():
            subprocess.run([*COMMAND, *command, "-o", file], cwd=folder, check=True, capture_output=True)
        return {file: Path(folder, file).read_bytes() for file in commands}


def prepare(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in given(name).items():
        (folder / file).write_bytes(content)


def spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return (
        f"{len(ordered)} ended, median {ordered[len(ordered) // 2]:.2f} s, 99 % within "
        f"{ordered[max(0, math.ceil(0.99 * len(ordered)) - 1)]:.2f} s, longest {ordered[-1]:.2f} s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=COMMANDS, action="append", help="these commands; default all")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end after so long, whatever is left")
    parser.add_argument("--record", type=Path, help="file to add a line of JSON to for each interrupt")
    parser.add_argument("--seconds", type=float, help="of every command but baseline, in place of running it once")
    options = parser.parse_args()
    chance, names = random.Random(options.seed), options.only or list(COMMANDS)
    ends: Counter[str] = Counter()
    took: dict[str, list[float]] = {}
    wrong = done = 0
    until = time.monotonic() + 60.0 * options.minutes
    with tempfile.TemporaryDirectory(prefix="rmtbase-interrupts-") as root:
        whole: dict[str, Whole] = {}
        while done < options.runs and time.monotonic() < until:
            name = chance.choice(names)
            if name not in whole and options.seconds and COMMANDS[name][0] != "baseline":
                whole[name] = Whole(options.seconds, frozenset(), None)
            if name not in whole:
                prepare(Path(root, "whole", name), name)
                whole[name] = uninterrupted(Path(root, "whole", name), COMMANDS[name])
                print(f"{name}: {whole[name].seconds:.1f} s uninterrupted", flush=True)
            moment = drawn(whole[name].seconds, chance)
            folder = Path(root, f"{done}-{chance.random()}")
            prepare(folder, name)
            run = interrupted(folder, COMMANDS[name], moment, whole[name])
            if run is None:
                ends["too late, drawn again"] += 1
                whole[name] = replace(whole[name], seconds=0.9 * min(whole[name].seconds, moment.after))
                continue
            if whole[name].table is not None and not run.wrong and chance.random() < 0.25:
                run.wrong += run_again(folder, COMMANDS[name], whole[name])
            done += 1
            wrong += bool(run.wrong)
            ends[f"status {run.status}"] += 1
            took.setdefault(name, []).append(run.took)
            said = "; ".join(run.wrong) or "as it should"
            print(f"{done} {name} {moment}: {run.took:.2f} s, {said} {run.lines[-1:]}", flush=True)
            if run.wrong:
                print(run.err.decode(errors="replace")[-6000:], flush=True)
            if options.record:
                line = {"command": name, "after": round(moment.after, 3), "signal": moment.signal.name}
                line |= {"twice": moment.again is not None, "took": round(run.took, 3), "status": run.status}
                with options.record.open("a") as file:
                    file.write(json.dumps(line | {"wrong": run.wrong}) + "\n")
            shutil.rmtree(folder, ignore_errors=True)
    for name, seconds in took.items():
        print(f"{name}: {spread(seconds)}")
    print(f"{done} interrupts, {wrong} wrong: {dict(ends)}; {spread([one for each in took.values() for one in each])}")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
