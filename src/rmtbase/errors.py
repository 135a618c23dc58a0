"""The exception tree of rmtbase.

Every error that rmtbase raises on purpose derives from :class:`RmtbaseError`. An error carries the values
that explain it as attributes, and its message says what was found, what was expected, and what to do.
The command line turns each of them into one line on stderr and exit status 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from rmtbase.shown import one_line, quoted, shown


class RmtbaseError(Exception):
    """Base class of every error that rmtbase raises on purpose. It can be pickled, and so be raised by a worker.

    The message is one line of harmless text (:mod:`rmtbase.shown`); the attributes hold the values as they are.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))

    def __reduce__(self) -> tuple:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[RmtbaseError], args: tuple, attributes: dict[str, object]) -> RmtbaseError:
    """An error as it was, without its constructor, whose parameters the message no longer tells apart."""
    base = kind.__base__  # that which lays out its memory: OSError's is not Exception's
    error = base.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class RmtbaseWarning(UserWarning):
    """Base class of what rmtbase warns of: the result stands, and something beside it should be known.

    The command line prints it as one line among its notes.
    """


class _FileError(RmtbaseError):
    """Something is wrong with a file or a folder.

    Attributes:
        path: which.
    """

    def __init__(self, path: Path | str, message: str) -> None:
        self.path = Path(path)
        super().__init__(f"{shown(path)}: {message}")


class _ContentError(_FileError):
    """What a file or a folder holds is not what it should hold.

    Attributes:
        path: which.
        found: what it holds.
        expected: what it should hold.
    """

    def __init__(self, path: Path | str, found: str, expected: str) -> None:
        self.found, self.expected = found, expected
        super().__init__(path, f"found {found}; expected {expected}")


class ParameterError(RmtbaseError, ValueError):
    """A parameter lies outside its domain.

    Attributes:
        name: the parameter.
        found: the value that was passed.
        expected: its domain, in words.
    """

    def __init__(self, name: str, found: object, expected: str) -> None:
        self.name, self.found, self.expected = name, found, expected
        super().__init__(f"{name} = {quoted(found)}: expected {expected}")


class MissingDependencyError(RmtbaseError, ImportError):
    """An optional package is needed for what was asked, or a later version of it.

    Attributes:
        package: what is missing.
        purpose: what it is needed for.
        extra: the extra of rmtbase that installs it.
        oldest: the first version that serves, or None where any does.
        found: the version that is installed, or None where none is.
    """

    def __init__(
        self, package: str, purpose: str, extra: str, oldest: str | None = None, found: str | None = None
    ) -> None:
        self.package, self.purpose, self.extra, self.oldest, self.found = package, purpose, extra, oldest, found
        what = f"the package {package!r}" + (f" {oldest} or later" if oldest else "")
        state = "which is not installed" if found is None else f"and {shown(found)} is installed"
        upgrade = "" if found is None else "--upgrade "
        super().__init__(f'{purpose} needs {what}, {state}: run pip install {upgrade}"rmtbase[{extra}]"')


class OutputError(RmtbaseError, OSError):
    """A file cannot be written. What was there before is untouched.

    Attributes:
        path: the file.
        reason: why not.
    """

    def __init__(self, path: Path | str, reason: str) -> None:
        self.path, self.reason = Path(path), reason
        super().__init__(f"cannot write {shown(path)}: {reason}")


class FitError(RmtbaseError):
    """A law cannot be fitted to a sample.

    Attributes:
        law: the law.
        reason: why not.
    """

    def __init__(self, law: str, reason: str) -> None:
        self.law, self.reason = law, reason
        super().__init__(f"cannot fit the {law} law: {reason}")


class TableError(_ContentError):
    """A file is not a table of the kind and version that was expected."""


class RecordError(_ContentError):
    """What rmtbase was installed with is damaged: the record of a set of constants is not the one that was released."""


class MissingFileError(RmtbaseError, FileNotFoundError):
    """A file that is to be read is not there.

    Attributes:
        path: the file.
        needed_by: what names it (an index, say), or None.
    """

    def __init__(self, path: Path | str, advice: str, needed_by: str | None = None) -> None:
        self.path, self.needed_by = Path(path), needed_by
        why = f" (named in {shown(needed_by)})" if needed_by else ""
        RmtbaseError.__init__(self, f"{shown(path)}: no such file{why}; {advice}")


class PlanError(_FileError):
    """A plan cannot be read, or asks for what cannot be done."""


class StoreError(_ContentError):
    """A store of chunks cannot be used as it stands. Nothing in it was changed."""


class WorkerError(RmtbaseError):
    """Those who were to draw cannot, or fail again and again. What was finished is kept.

    Attributes:
        piece: what they failed at, or who failed, in words.
        reason: how.
    """

    def __init__(self, piece: str, reason: str) -> None:
        self.piece, self.reason = piece, reason
        super().__init__(f"{piece}: {reason}")


@contextmanager
def said_what_is_kept(kept: Callable[[], str]) -> Iterator[None]:
    """Say in the message of what stops a run what it has finished, and where that is kept to go on with.

    Args:
        kept: the words, asked for when it stops; "" where there is nothing.
    """

    def added() -> str:
        there = kept()
        return f"; {there}, run again to go on" if there else ""

    try:
        yield
    except OutputError as error:
        raise OutputError(error.path, f"{error.reason}{added()}") from error
    except WorkerError as error:
        raise WorkerError(error.piece, f"{error.reason}{added()}") from error
    except KeyboardInterrupt as stop:  # told by who ends the process on it, once
        if there := added():
            stop.add_note(there.removeprefix("; "))
        raise


class ForkedProcessError(RmtbaseError, RuntimeError):
    """JAX is asked for in a process that was forked from one that had used it, where its calls would never end."""

    def __init__(self) -> None:
        super().__init__(
            "this process was forked from one that had used JAX, whose threads a fork does not take along: a draw here "
            "would never end; start processes by 'spawn', as multiprocessing.get_context('spawn') does, or fork before "
            "anything is drawn"
        )


class AllocationError(RmtbaseError, MemoryError):
    """Not even one draw fits in memory.

    Attributes:
        ensemble: what was drawn.
        shape: of the matrix of one draw.
        needed: bytes of that matrix alone; or, where it was refused beforehand, of all that the draw takes.
        available: bytes that were there when it was refused beforehand, else None.
    """

    def __init__(
        self, ensemble: str, shape: Sequence[int], precision: str, needed: int, *, available: int | None = None
    ) -> None:
        self.ensemble, self.shape, self.needed, self.available = ensemble, tuple(shape), needed, available
        size = " × ".join(map(str, self.shape))
        if available is None:
            found = (
                f"out of memory at one draw at a time: its {size} {precision} matrix alone takes {needed:,} bytes, and "
                "several times that while it is drawn"
            )
        else:
            found = (
                f"one draw, a matrix of {size}, takes {needed:,} bytes of memory at least, and {available:,} are there"
            )
        super().__init__(f"{ensemble}: {found}: use a smaller shape, or a machine with more memory")


class CheckpointError(_FileError):
    """A model checkpoint cannot be read as it stands."""


class MissingCheckpointFileError(MissingFileError, CheckpointError):
    """A file that a checkpoint names, or needs, is not there."""

    def __init__(
        self,
        path: Path | str,
        needed_by: str | None = None,
        advice: str = "download the checkpoint again, or pass its folder",
    ) -> None:
        MissingFileError.__init__(self, path, advice, needed_by)


class CorruptFileError(_ContentError, CheckpointError):
    """A file is truncated or not in the format that its name says."""


class MissingTensorError(CheckpointError):
    """A tensor that the layout needs is not in the checkpoint.

    Attributes:
        tensor: its name.
        architecture: which has it.
        because: why it should be there, where the configuration says so.
    """

    def __init__(self, path: Path | str, tensor: str, architecture: str, because: str = "") -> None:
        self.tensor, self.architecture, self.because = tensor, architecture, because
        why = f" ({because})" if because else ""
        super().__init__(
            path, f"tensor {quoted(tensor)}, which a {shown(architecture)} model has, is not in this checkpoint{why}"
        )


class ShapeError(CheckpointError):
    """A tensor's shape contradicts the configuration.

    Attributes:
        tensor: its name.
        found: its shape.
        expected: the shape that the configuration implies.
    """

    def __init__(
        self, path: Path | str, tensor: str, found: Sequence[int], expected: Sequence[int], because: str
    ) -> None:
        self.tensor, self.found, self.expected = tensor, tuple(found), tuple(expected)
        turned = len(self.found) == 2 and self.found == self.expected[::-1]
        advice = "; transpose it: it is stored as (inputs, outputs), or the other way about" if turned else ""
        super().__init__(
            path, f"tensor {quoted(tensor)} has shape {shown(self.found)}; expected {self.expected} ({because}){advice}"
        )


class NonFiniteError(CheckpointError):
    """A weight is NaN or infinite.

    Attributes:
        tensor: the tensor's name.
        nan_count, inf_count: how many.
    """

    def __init__(self, path: Path | str, tensor: str, nan_count: int, inf_count: int) -> None:
        self.tensor, self.nan_count, self.inf_count = tensor, nan_count, inf_count
        super().__init__(
            path,
            f"tensor {quoted(tensor)} holds {nan_count} NaN and {inf_count} infinite values; "
            "expected finite weights (a diverged or damaged checkpoint cannot be scored)",
        )


_WIDESPREAD = ("bert", "gpt2", "gpt_neox", "llama", "mistral", "qwen3")


def near_architectures(name: str, supported: Sequence[str]) -> str:
    """Some of the names, in words: those that come near one, then those in widest use."""
    near = get_close_matches(name, supported, n=6, cutoff=0.5)
    return ", ".join(dict.fromkeys((*near, *(one for one in _WIDESPREAD if one in supported))))


class UnprovedConfigurationError(CheckpointError):
    """A configuration is of a known architecture, and none of those for which its layout was proved."""


class UnknownArchitectureError(CheckpointError):
    """No layout is known for the model's architecture.

    Attributes:
        architecture: what the configuration names.
        supported: the architectures that have a layout.
        near: the names of some of these, those that come near it first.
    """

    def __init__(self, path: Path | str, architecture: str, supported: Sequence[str]) -> None:
        self.architecture, self.supported = architecture, tuple(supported)
        self.near = near_architectures(architecture, self.supported)
        super().__init__(
            path,
            f"unknown architecture {quoted(architecture)}; {len(self.supported)} are known, such as {self.near}, and "
            "with torch and transformers installed (rmtbase[hf]) all that transformers can run. "
            "For any other model whose heads have W_Q and W_K of their own (not latent attention, whose heads share "
            "factors), pass them as arrays of shape (head, d_head, d_model) to rmtbase.score_heads(w_q, w_k)",
        )
