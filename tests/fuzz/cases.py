"""One mutation of one file: made, read by the command, and judged.

The rule: status 0 with the right numbers, or status 2 with one line, and nothing touched.
"""

import hashlib
import itertools
import json
import os
import shutil
import stat
import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

from kinds import KINDS, Kind
from mutations import UNTOUCHED, Mutator
from originals import donor
from readers import RefusedError
from sandbox import Ended, environment, run_forked

REFUSED, RIGHT, WRONG = "refused", "right", "wrong"
_MANY = 100  # mutations, from which it pays to run every command once
_LONGEST = 2200  # characters of a line of error


@dataclass(frozen=True)
class Case:
    """A mutation, by kind of file, name and seed: the same file each time."""

    kind: str
    mutator: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.mutator}:{self.seed}"

    @classmethod
    def parse(cls, text: str) -> "Case":
        """The case that ``str`` gave."""
        kind, _, rest = text.partition(":")
        mutator, _, seed = rest.rpartition(":")
        return cls(kind, mutator, int(seed))


@dataclass(frozen=True)
class Verdict:
    """How a case ended, and why."""

    case: Case
    outcome: str
    why: str
    cpu: float
    memory: int


@dataclass(frozen=True)
class Reading:
    """What came of a file: the command's end and its files, and the digest of the content where it was read."""

    ended: Ended
    content: dict[str, str] | None
    commanded: bool
    files: dict[str, str] = field(default_factory=dict)


def cases(root: Path, kind: Kind, count: int, seed: int) -> list[Case]:
    """Mutations of a kind: those without chance once, the others again and again with other seeds, all in one order."""
    rng = Random(f"{kind.name}:{seed}")
    fixed, random = kind.fixed(root / kind.name), kind.random
    deck: list[tuple[str, int]] = []
    for turn in itertools.count():
        if len(deck) >= count:
            break
        names = [one.name for one in (*random, *(fixed if turn == 0 else ()))]
        rng.shuffle(names)
        deck += [(name, rng.randrange(10**9)) for name in names]
    untouched = [Case(kind.name, UNTOUCHED.name, int(count < _MANY))]  # 0: with its command
    return untouched + [Case(kind.name, name, number) for name, number in deck if name != UNTOUCHED.name][: count - 1]


def check(root: Path, case: Case) -> Verdict:
    """Make the mutation of the originals below ``root``, run what reads it, and judge."""
    kind = KINDS[case.kind]
    mutator = _mutators(root, kind)[case.mutator]
    with tempfile.TemporaryDirectory(prefix="rmtbase-fuzz-", dir=root / "made", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch) / "work"
        shutil.copytree(root / kind.name, folder, symlinks=True)
        target = folder / kind.path(root / kind.name).relative_to(root / kind.name)
        rng = Random(str(case))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mutator.apply(rng, target, donor(root, kind.name))
        before = _snapshot(folder)
        command = rng.randrange(len(kind.commands))
        how = How(command, case.seed % kind.every == 0, case.seed % 4 == 0, mutator.unprivileged)
        reading = read(kind, target.relative_to(folder), folder, how)
        try:
            outcome, why = _judge(root, kind, mutator, folder, before, reading, command)
        except _WrongError as wrong:
            outcome, why = WRONG, str(wrong)
    return Verdict(case, outcome, why, reading.ended.cpu, reading.ended.memory)


@cache
def _mutators(root: Path, kind: Kind) -> dict[str, Mutator]:
    return {one.name: one for one in (*kind.random, *kind.fixed(root / kind.name))}


@dataclass(frozen=True)
class How:
    """Which of a kind's commands is run: on a file that the library takes, on one that it refuses, and by whom."""

    command: int
    taken: bool
    refused: bool = True
    unprivileged: bool = False


def read(kind: Kind, target: Path, folder: Path, how: How) -> Reading:
    """What the library reads of a file, and what the command makes of it."""
    before = _snapshot(folder)
    with tempfile.TemporaryDirectory(prefix="rmtbase-fuzz-log-") as log:
        said = Path(log) / "content"
        commanded = Path(log) / "commanded"

        def work() -> None:
            from rmtbase.cli import main
            from rmtbase.errors import RmtbaseError

            if kind.content is not None:
                try:
                    said.write_text(json.dumps(kind.content(target)))
                    if not how.taken:
                        return
                except RmtbaseError as error:
                    if not (how.refused or kind.heals):
                        print(f"rmtbase: error: {error}", file=sys.stderr)
                        sys.exit(2)
            commanded.touch()
            main(list(kind.commands[how.command]))

        with environment(**dict(kind.environment)):
            ended = run_forked(work, folder, how.unprivileged)
        content = json.loads(said.read_text()) if said.exists() else None
        after = _snapshot(folder)
        files = {name: _sha256(folder / name) for name in after.keys() - before.keys() if (folder / name).is_file()}
        return Reading(ended, content, commanded.exists(), files)


class _WrongError(Exception):
    """What breaks the rule."""


def _require(condition: object, why: str) -> None:
    if not condition:
        raise _WrongError(why)


def _judge(
    root: Path, kind: Kind, mutator: Mutator, folder: Path, before: dict[str, tuple], reading: Reading, command: int
) -> tuple[str, str]:
    ended = reading.ended
    _require(not ended.limit, ended.limit)
    _require(ended.status >= 0, f"ended by signal {-ended.status}")
    err, out = _text(ended.err), _text(ended.out)
    _require("Traceback" not in err, f"a traceback: {ended.last_words()}")
    _require(ended.status in (0, 2), f"status {ended.status}: {ended.last_words()}")
    for line in (*out.split("\n"), *err.split("\n")):
        _require(line.isprintable(), f"unprintable: {line[:200]!r}")
    after = _snapshot(folder)
    if ended.status == 2:
        last = _one_line(err)
        if reading.commanded and "--json" in kind.commands[command]:
            _require_object(out, last)
        else:
            _require(not out, f"a refusal that prints a result: {out[:100]!r}")
        _require(after == before, f"refused, and the folder changed: {_difference(before, after)}")
        _require(reading.content is None or reading.commanded, "refused without a command")
        # The library reads what the command, for another reason, does not take: both are right if the content is.
        if reading.content is not None and not mutator.anew:
            _same_content(root, kind, folder, reading, command)
        _require(mutator is not UNTOUCHED, f"the original is refused: {err[-300:]}")
        return REFUSED, err.strip().splitlines()[-1]
    changed = {name for name in before if after.get(name) != before[name]}
    touched = sorted(name for name in changed if not (kind.heals and name.startswith(kind.heals)))
    _require(not touched, f"an input was changed: {touched[:3]}")
    if mutator.refused and not kind.heals:
        raise _WrongError("taken, where it must be refused")
    if mutator.anew:
        return RIGHT, ""
    try:
        _same_content(root, kind, folder, reading, command)
    except _WrongError:
        if not (mutator.mixes and reading.content is not None and reading.content == _of_donor(root, kind)):
            raise
    return RIGHT, ""


def _one_line(err: str) -> str:
    """Return the line of the error, the only one beside notes."""
    lines = err.splitlines()
    _require(lines, "status 2 without a word")
    *notes, last = lines
    _require(last.startswith("rmtbase: error: "), f"no line of error at the end: {last[:200]}")
    for note in notes:
        _require(note.startswith("rmtbase: ") and "error: " not in note, f"a line beside the error: {note[:200]}")
    longest = max(map(len, lines))
    _require(longest <= _LONGEST, f"a line of {longest} characters")
    return last


def _require_object(out: str, last: str) -> None:
    """With ``--json`` an error is one object on stdout, which says what the line says, and the facts."""
    try:
        found = json.loads(out)
    except ValueError:
        found = None
    error = found.get("error") if isinstance(found, dict) and len(found) == 1 else None
    said = {name: error.get(name) for name in ("status", "message")} if isinstance(error, dict) else error
    expected = {"status": 2, "message": last.removeprefix("rmtbase: error: ")}
    _require(
        said == expected and error.keys() == {"status", "kind", "message", "facts"},
        f"a refusal that prints anything but its error: {out[:100]!r}",
    )


def _same_content(root: Path, kind: Kind, folder: Path, reading: Reading, command: int) -> None:
    """What was read is what an independent reader understands or, of a file with a checksum, the original."""
    expected = _expected(root, kind, folder, command, reading)
    if reading.content is not None:
        wanted, found = expected.content or {}, reading.content
        other = [name for name in wanted if found.get(name) != wanted[name]]  # what is beside it changes no number
        _require(
            wanted and not other,
            f"other content than {'the file' if kind.reference else 'the original'}'s: {other[:3]}",
        )
    if reading.commanded and reading.ended.status == 0:
        _require(reading.ended.out == expected.ended.out, f"other output: {reading.ended.out[:200]!r}")
        for name, digest in expected.files.items():
            _require(reading.files.get(name) == digest, f"other contents of {name}")
        extra = [
            name
            for name in reading.files.keys() - expected.files.keys()
            if not (kind.heals and name.startswith(kind.heals))
        ]
        _require(not extra, f"other files: {sorted(extra)[:3]}")


def _expected(root: Path, kind: Kind, folder: Path, command: int, reading: Reading) -> Reading:
    how = How(command, taken=reading.commanded)
    if kind.reference is None:
        return _original(root, kind, how)
    target = kind.path(root / kind.name).relative_to(root / kind.name)
    with tempfile.TemporaryDirectory(prefix="rmtbase-fuzz-", dir=root / "made") as scratch:
        clean = Path(scratch) / "work"
        shutil.copytree(root / kind.name, clean)
        shutil.copy(folder / target, clean / target)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kind.reference(clean / target)
        except RefusedError as error:
            raise _WrongError(f"taken, where the independent reader refuses: {str(error)[:200]}") from error
        return read(kind, target, clean, how)


@cache
def _original(root: Path, kind: Kind, how: How) -> Reading:
    target = kind.path(root / kind.name).relative_to(root / kind.name)
    with tempfile.TemporaryDirectory(prefix="rmtbase-fuzz-", dir=root / "made") as scratch:
        clean = Path(scratch) / "work"
        shutil.copytree(root / kind.name, clean, symlinks=True)
        return read(kind, target, clean, how)


@cache
def _of_donor(root: Path, kind: Kind) -> dict[str, str] | None:
    target = kind.path(root / kind.name).relative_to(root / kind.name)
    with tempfile.TemporaryDirectory(prefix="rmtbase-fuzz-", dir=root / "made") as scratch:
        clean = Path(scratch) / "work"
        shutil.copytree(root / kind.name, clean, symlinks=True)
        (clean / target).write_bytes(donor(root, kind.name))
        return read(kind, target, clean, How(0, taken=False)).content


def _snapshot(folder: Path) -> dict[str, tuple]:
    """Everything below a folder, with what tells whether it was touched."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(place, name)  # noqa: PTH118  # names that are no text
            status = os.lstat(path)
            if stat.S_ISDIR(status.st_mode):
                facts: tuple = (status.st_mode,)
            else:
                facts = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ino)
            found[os.path.relpath(path, folder)] = facts
    return found


def _difference(before: dict[str, tuple], after: dict[str, tuple]) -> list[str]:
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))[:3]


def _text(said: bytes) -> str:
    try:
        return said.decode()
    except UnicodeDecodeError as error:
        raise _WrongError(f"bytes that are no text: {said[:200]!r}") from error


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
