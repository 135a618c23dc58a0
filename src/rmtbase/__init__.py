"""rmtbase: how would this weight matrix look if it had learned nothing?

The most common functions, loaded on first use so that ``import rmtbase`` is fast:

* :func:`baseline`: table of the null for any (d_model, d_head, sigma), with simulated and analytic values;
* :func:`score`: scores of every head and matrix of a checkpoint against the null;
* :func:`score_heads`: the same for plain arrays;
* :func:`trajectory`: scores of a model's checkpoints, and when each head first differs from random heads;
* :func:`open_table`: any of these tables from a file, validated.

The packages ``laws``, ``ensembles``, ``statistics``, ``constants``, ``nulls``, ``montecarlo`` and ``models`` contain
the parts. ``results`` has a folder for each kind of result, and ``watch`` follows a training run from within.
"""

from __future__ import annotations

import rmtbase.forks  # noqa: F401  # notices every fork from now on

TYPE_CHECKING = False  # like typing.TYPE_CHECKING, whose module takes longer to import than this one
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
    "__version__", "baseline", "compare", "composition", "depth", "diff", "export", "open_model", "open_table",
    "plot", "score", "score_heads", "signal", "trajectory",
]  # fmt: skip

_HOME = {
    **{name: f"rmtbase.results.{name}" for name in ("composition", "depth", "diff", "signal", "trajectory")},
    "baseline": "rmtbase.montecarlo",
    "compare": "rmtbase.results.comparison",
    "export": "rmtbase.tables",
    "open_model": "rmtbase.models",
    "open_table": "rmtbase.results",
    "plot": "rmtbase.results.figures",
    "score": "rmtbase.results.scores",
    "score_heads": "rmtbase.results.scores",
}
_PACKAGES = (
    *("constants", "drawing", "ensembles", "errors", "heads", "laws", "linalg", "models", "montecarlo"),
    *("nulls", "results", "statistics", "tables", "watch"),
)


def __getattr__(name: str) -> Any:
    import importlib

    if name == "__version__":
        from rmtbase.systems import software_version

        return globals().setdefault("__version__", software_version())
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _PACKAGES:
        return importlib.import_module(f"rmtbase.{name}")
    raise AttributeError(f"module 'rmtbase' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_PACKAGES})
