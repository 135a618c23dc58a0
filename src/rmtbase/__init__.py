"""rmtbase: how would this weight matrix look if it had learned nothing?

The calls that most users need, loaded on first use so that ``import rmtbase`` costs nothing:

* :func:`baseline`: the null's table for any (d_model, d_head, sigma), simulated and analytic side by side;
* :func:`open_baseline`, :func:`open_scores`, :func:`open_trajectory`: what these make, from a file, validated;
* :func:`score`: every head and matrix of a checkpoint against the null;
* :func:`score_heads`: the same for plain arrays;
* :func:`trajectory`: the scores of a model's checkpoints, and when each head left the null.

The packages ``laws``, ``ensembles``, ``statistics``, ``constants``, ``nulls``, ``montecarlo`` and ``models`` hold the
parts, ``results`` a folder for each kind of result; ``watch`` follows a training run from within.
"""

from __future__ import annotations

import rmtbase.forks  # noqa: F401  # sees every fork from now on

TYPE_CHECKING = False  # as typing has it, which takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from rmtbase.models import open_model
    from rmtbase.montecarlo import baseline
    from rmtbase.results import open_table
    from rmtbase.results.comparison import compare
    from rmtbase.results.composition import composition
    from rmtbase.results.depth import depth
    from rmtbase.results.diff import diff
    from rmtbase.results.figures import plot
    from rmtbase.results.scores import score, score_heads
    from rmtbase.results.signal import signal
    from rmtbase.results.trajectory import trajectory
    from rmtbase.tables import export

    __version__: str

__all__ = [
    "__version__",
    "baseline",
    "compare",
    "composition",
    "depth",
    "diff",
    "export",
    "open_model",
    "open_table",
    "plot",
    "score",
    "score_heads",
    "signal",
    "trajectory",
]

_HOME = {
    "baseline": "rmtbase.montecarlo",
    "compare": "rmtbase.results.comparison",
    "composition": "rmtbase.results.composition",
    "depth": "rmtbase.results.depth",
    "diff": "rmtbase.results.diff",
    "export": "rmtbase.tables",
    "open_model": "rmtbase.models",
    "open_table": "rmtbase.results",
    "plot": "rmtbase.results.figures",
    "score": "rmtbase.results.scores",
    "score_heads": "rmtbase.results.scores",
    "signal": "rmtbase.results.signal",
    "trajectory": "rmtbase.results.trajectory",
}
_PACKAGES = frozenset(
    {
        "constants",
        "drawing",
        "ensembles",
        "errors",
        "heads",
        "laws",
        "linalg",
        "models",
        "montecarlo",
        "nulls",
        "results",
        "statistics",
        "tables",
        "watch",
    }
)


def __getattr__(name: str) -> Any:
    import importlib

    if name == "__version__":
        return globals().setdefault("__version__", _version())
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _PACKAGES:
        return importlib.import_module(f"rmtbase.{name}")
    raise AttributeError(f"module 'rmtbase' has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rmtbase")
    except PackageNotFoundError:  # imported from a source tree that was never installed
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted({*__all__, *_PACKAGES})
