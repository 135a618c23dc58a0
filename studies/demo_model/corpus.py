"""The text: source files of the running interpreter's standard library, split by file.

A file's side is a function of the SHA-256 of its path below the standard library's folder, so that the split
needs no random state, does not depend on the order of files or on which other files exist, and no held-out
byte lies in a training file.
"""

import hashlib
import platform
import sysconfig
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

HELD_OUT_SHARE = 0.10
TUNING_SHARE = 0.05  # of all files; part of the training side, used to tune the n-gram models' smoothing

# Not source text that was written by hand (tables, generated documentation), or test suites.
EXCLUDED_FOLDERS = frozenset(
    {"site-packages", "test", "tests", "idle_test", "encodings", "pydoc_data", "__pycache__", "ensurepip"}
)
# These two hold build options and paths of one machine.
EXCLUDED_PREFIXES = ("_sysconfigdata", "config-")


@dataclass(frozen=True)
class Corpus:
    """The files and their bytes, in the order of their paths.

    Attributes:
        train: training files, path -> bytes; `tuning` is a subset of it.
        tuning: training files on which smoothing constants are tuned.
        held_out: files that no model is fitted on.
        sha256: digest of all paths and bytes, training and held-out.
        python_version: the interpreter whose library it is.
    """

    train: dict[str, NDArray[np.uint8]]
    tuning: dict[str, NDArray[np.uint8]]
    held_out: dict[str, NDArray[np.uint8]]
    sha256: str
    python_version: str

    def describe(self) -> dict[str, object]:
        """Describe the corpus by what identifies it, as plain values for a JSON file."""
        return {
            "python_version": self.python_version,
            "sha256": self.sha256,
            "train_files": len(self.train),
            "train_bytes": count_bytes(self.train),
            "held_out_files": len(self.held_out),
            "held_out_bytes": count_bytes(self.held_out),
            "tuning_files": len(self.tuning),
            "tuning_bytes": count_bytes(self.tuning),
        }

    def differences(self, recorded: dict[str, object]) -> list[str]:
        """Sentences that say how this corpus differs from a recorded one; empty where it does not."""
        if recorded.get("sha256") == self.sha256:
            return []
        found = self.describe()
        changed = [f"{key}: {recorded.get(key)} -> {found[key]}" for key in found if recorded.get(key) != found[key]]
        return ["the standard library here is not the one that the recorded numbers belong to", *changed]


def count_bytes(files: dict[str, NDArray[np.uint8]]) -> int:
    """Count the bytes of all files together."""
    return sum(text.size for text in files.values())


def split_position(path: str) -> float:
    """Position of a file in [0, 1): the first 48 bits of the SHA-256 of its POSIX path, as a fraction."""
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:6], "big") / 2**48


def is_held_out(path: str) -> bool:
    """Return True if a file, given by its POSIX path below the standard library's folder, is held out."""
    return split_position(path) < HELD_OUT_SHARE


def is_tuning(path: str) -> bool:
    """Return True if a training file belongs to the part on which smoothing constants are tuned."""
    return HELD_OUT_SHARE <= split_position(path) < HELD_OUT_SHARE + TUNING_SHARE


def belongs(path: str) -> bool:
    """Return True if a `.py` file is part of the corpus at all."""
    parts = PurePosixPath(path).parts
    return not EXCLUDED_FOLDERS.intersection(parts[:-1]) and not parts[0].startswith(EXCLUDED_PREFIXES)


def standard_library() -> Path:
    """Folder of the running interpreter's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def source_paths(root: Path) -> list[str]:
    """POSIX paths, below `root`, of the corpus's files, sorted by code point."""
    return sorted(path for path in (p.relative_to(root).as_posix() for p in root.rglob("*.py")) if belongs(path))


def load(root: Path | None = None) -> Corpus:
    """Read the corpus from `root` (default: the running interpreter's standard library)."""
    root = standard_library() if root is None else root
    digest = hashlib.sha256()
    files: dict[str, NDArray[np.uint8]] = {}
    for path in source_paths(root):
        text = (root / path).read_bytes()
        digest.update(f"{path}\0{len(text)}\0".encode() + text)
        if text:
            files[path] = np.frombuffer(text, dtype=np.uint8)
    return Corpus(
        train={path: text for path, text in files.items() if not is_held_out(path)},
        tuning={path: text for path, text in files.items() if is_tuning(path)},
        held_out={path: text for path, text in files.items() if is_held_out(path)},
        sha256=digest.hexdigest(),
        python_version=platform.python_version(),
    )
