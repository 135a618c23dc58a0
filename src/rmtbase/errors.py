"""Exceptions of rmtbase: attributes hold the values that explain it, the message says what was found and expected.

The command line turns each into one line on stderr and exit status 2.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from rmtbase.shown import one_line, quoted, shown

Shape = Sequence[int]


class RmtbaseError(Exception):
    """Base class of all errors that rmtbase raises on purpose. It can be pickled, and so be raised by a worker.

    The message is one line of harmless text (:mod:`rmtbase.shown`); the attributes hold the original values.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))

    def __reduce__(self) -> tuple:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[RmtbaseError], args: tuple, attributes: dict[str, object]) -> RmtbaseError:
    """Restore an error without calling its constructor, whose arguments cannot be recovered from the message."""
    base = kind.__base__  # determines the memory layout: OSError's differs from Exception's
    error = base.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class RmtbaseWarning(UserWarning):
    """Base class of warnings of rmtbase: the result is valid, but there is something to know about it."""


class _FileError(RmtbaseError):
    """Something is wrong with the file or folder ``path``."""

    def __init__(self, path: Path | str, message: str) -> None:
        self.path, self.problem = Path(path), message
        super().__init__(f"{shown(path)}: {message}")


class _ContentError(_FileError):
    """The file or folder ``path`` has the contents ``found``, in words, and not the ``expected`` ones."""

    def __init__(self, path: Path | str, found: str, expected: str) -> None:
        self.found, self.expected = found, expected
        super().__init__(path, f"found {found}; expected {expected}")


class ParameterError(RmtbaseError, ValueError):
    """The parameter ``name`` has the value ``found`` outside its domain, in words ``expected``."""

    def __init__(self, name: str, found: object, expected: str) -> None:
        self.name, self.found, self.expected = name, found, expected
        super().__init__(f"{name} = {quoted(found)}: expected {expected}")


class MissingDependencyError(RmtbaseError, ImportError):
    """A ``package`` of an ``extra`` is needed for a ``purpose``, ``oldest`` or later; ``found`` is installed."""

    def __init__(
        self, package: str, purpose: str, extra: str, oldest: str | None = None, found: str | None = None
    ) -> None:
        self.package, self.purpose, self.extra, self.oldest, self.found = package, purpose, extra, oldest, found
        what = f"the package {package!r}" + (f" {oldest} or later" if oldest else "")
        state = "which is not installed" if found is None else f"and {shown(found)} is installed"
        upgrade = "" if found is None else "--upgrade "
        super().__init__(f'{purpose} needs {what}, {state}: run pip install {upgrade}"rmtbase[{extra}]"')


class OutputError(RmtbaseError, OSError):
    """The file ``path`` cannot be written for a ``reason``, in words. An existing file is left unchanged."""

    def __init__(self, path: Path | str, reason: str) -> None:
        self.path, self.reason = Path(path), reason
        super().__init__(f"cannot write {shown(path)}: {reason}")


class FitError(RmtbaseError):
    """A ``law`` cannot be fitted to a sample for a ``reason``, in words."""

    def __init__(self, law: str, reason: str) -> None:
        self.law, self.reason = law, reason
        super().__init__(f"cannot fit the {law} law: {reason}")


class TableError(_ContentError):
    """A file is not a table of the kind and version that was expected."""


class UnreadableTableError(TableError):
    """A table's file is there, but the system does not let it be read."""


class RecordError(_ContentError):
    """The installation is damaged: the record of a set of constants differs from the released one."""


class MissingFileError(RmtbaseError, FileNotFoundError):
    """The file ``path``, named in ``needed_by`` (such as an index) or None, does not exist."""

    def __init__(self, path: Path | str, advice: str, needed_by: str | None = None) -> None:
        self.path, self.needed_by = Path(path), needed_by
        why = f" (named in {shown(needed_by)})" if needed_by else ""
        self.problem = f"no such file{why}; {advice}"
        RmtbaseError.__init__(self, f"{shown(path)}: {self.problem}")


class PlanError(_FileError):
    """A plan cannot be read, or asks for something impossible."""


class StoreError(_ContentError):
    """A store of chunks cannot be used. Nothing in it was changed."""


class WorkerError(RmtbaseError):
    """Workers are lost, or fail again and again at a ``piece`` of work, for a ``reason``. Finished work is kept."""

    def __init__(self, piece: str, reason: str) -> None:
        self.piece, self.reason = piece, reason
        super().__init__(f"{piece}: {reason}")


@contextmanager
def resumable(finished: Callable[[], str]) -> Iterator[None]:
    """Add to an error that stops a run which work is ``finished()`` and kept, for the run to resume from."""
    try:
        yield
    except (OutputError, WorkerError) as error:
        if work := finished():
            error.reason = f"{error.reason}; {work}, run again to go on"
            error.args = (one_line(f"{error}; {work}, run again to go on"),)
        raise
    except KeyboardInterrupt as stop:
        if work := finished():
            stop.add_note(f"{work}, run again to go on")  # printed once, by the code that ends the process
        raise


class ForkedProcessError(RmtbaseError, RuntimeError):
    """JAX is needed in a process forked from one that had used it, where its calls would never return."""

    def __init__(self) -> None:
        super().__init__(
            "this process was forked from one that had used JAX, whose threads do not survive a fork: a draw here "
            "would never end; start processes by 'spawn', as multiprocessing.get_context('spawn') does, or fork before "
            "anything is drawn"
        )


class AllocationError(RmtbaseError, MemoryError):
    """A draw of the ``ensemble``, a matrix of this ``shape``, takes ``needed`` bytes, more than are ``available``."""

    def __init__(
        self, ensemble: str, shape: Sequence[int], precision: str, needed: int, *, available: int | None = None
    ) -> None:
        self.ensemble, self.shape, self.needed, self.available = ensemble, tuple(shape), needed, available
        size = " × ".join(map(str, self.shape))
        if available is None:
            found = (
                f"out of memory at one draw at a time: its {size} {precision} matrix takes {needed:,} bytes, and "
                "several times that while it is drawn"
            )
        else:
            found = f"one draw, a matrix of {size}, takes at least {needed:,} bytes of memory"
            found += f", and {available:,} are free"
        super().__init__(f"{ensemble}: {found}: use a smaller shape, or a machine with more memory")


class CheckpointError(_FileError):
    """A model checkpoint cannot be read."""


_DOWNLOAD = "download the checkpoint again, or pass its folder"


class MissingCheckpointFileError(MissingFileError, CheckpointError):
    """A file that a checkpoint names or needs does not exist."""

    def __init__(self, path: Path | str, needed_by: str | None = None, advice: str = _DOWNLOAD) -> None:
        MissingFileError.__init__(self, path, advice, needed_by)


class CorruptFileError(_ContentError, CheckpointError):
    """A file is truncated, or not in the format that its name implies."""


class MissingTensorError(CheckpointError):
    """The ``tensor`` that an ``architecture`` has is not in the checkpoint, which needs it ``because`` of something."""

    def __init__(self, path: Path | str, tensor: str, architecture: str, because: str = "") -> None:
        self.tensor, self.architecture, self.because = tensor, architecture, because
        why = f" ({because})" if because else ""
        needed = f"tensor {quoted(tensor)}, which a {shown(architecture)} model has"
        super().__init__(path, f"{needed}, is not in this checkpoint{why}")


class ShapeError(CheckpointError):
    """The shape ``found`` of a ``tensor`` contradicts the one that the configuration implies, ``expected``."""

    def __init__(self, path: Path | str, tensor: str, found: Shape, expected: Shape, because: str) -> None:
        self.tensor, self.found, self.expected = tensor, tuple(found), tuple(expected)
        turned = len(self.found) == 2 and self.found == self.expected[::-1]
        advice = "; transpose it: it is stored as (inputs, outputs), or the other way about" if turned else ""
        fault = f"tensor {quoted(tensor)} has shape {shown(self.found)}"
        super().__init__(path, f"{fault}; expected {self.expected} ({because}){advice}")


class NonFiniteError(CheckpointError):
    """The ``tensor`` has ``nan_count`` NaN and ``inf_count`` infinite values."""

    def __init__(self, path: Path | str, tensor: str, nan_count: int, inf_count: int) -> None:
        self.tensor, self.nan_count, self.inf_count = tensor, nan_count, inf_count
        values = f"tensor {quoted(tensor)} holds {nan_count} NaN and {inf_count} infinite values"
        expected = "expected finite weights (a diverged or damaged checkpoint cannot be scored)"
        super().__init__(path, f"{values}; {expected}")


_WIDESPREAD = ("bert", "gpt2", "gpt_neox", "llama", "mistral", "qwen3")


def near_architectures(name: str, supported: Sequence[str]) -> str:
    """List some supported names: first those similar to the given one, then the most widely used."""
    near = get_close_matches(name, supported, n=6, cutoff=0.5)
    return ", ".join(dict.fromkeys([*near, *filter(supported.__contains__, _WIDESPREAD)]))


class UnprovedConfigurationError(CheckpointError):
    """A configuration belongs to a known architecture, but its layout was not proved for this configuration."""


class UnknownArchitectureError(CheckpointError):
    """The ``architecture`` has no known layout, as the ``supported`` ones have, of which some are ``near``."""

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
