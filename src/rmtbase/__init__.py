"""rmtbase: how would this weight matrix look if it had learned nothing?

The calls that most users need, loaded on first use so that ``import rmtbase`` costs nothing:

* :func:`baseline`: the null's table for any (d_model, d_head, sigma), simulated and analytic side by side;
* :func:`open_baseline`, :func:`open_scores`, :func:`open_trajectory`: what these make, from a file, validated;
* :func:`score`: every head and matrix of a checkpoint against the null;
* :func:`score_heads`: the same for plain arrays;
* :func:`trajectory`: the scores of a model's checkpoints, and when each head left the null.

The rooms ``constants``, ``laws``, ``ensembles``, ``statistics``, ``montecarlo``, ``nulls``, ``models``, ``scoring``,
``comparison``, ``trajectories`` and ``plots`` hold the parts; ``watch`` follows a training run from within.
"""

from __future__ import annotations

import rmtbase.forks  # noqa: F401  # sees every fork from now on

TYPE_CHECKING = False  # as typing has it, which takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from rmtbase.montecarlo import baseline
    from rmtbase.scoring import score, score_heads
    from rmtbase.tables import open_baseline, open_scores, open_trajectory
    from rmtbase.trajectories import trajectory

    __version__: str

__all__ = [
    "__version__",
    "baseline",
    "open_baseline",
    "open_scores",
    "open_trajectory",
    "score",
    "score_heads",
    "trajectory",
]

_HOME = {
    "baseline": "rmtbase.montecarlo",
    "open_baseline": "rmtbase.tables",
    "open_scores": "rmtbase.tables",
    "open_trajectory": "rmtbase.tables",
    "score": "rmtbase.scoring",
    "score_heads": "rmtbase.scoring",
    "trajectory": "rmtbase.trajectories",
}
_ROOMS = frozenset(
    {
        "comparison",
        "constants",
        "ensembles",
        "errors",
        "laws",
        "linalg",
        "models",
        "montecarlo",
        "nulls",
        "plots",
        "report",
        "scoring",
        "statistics",
        "tables",
        "trajectories",
        "watch",
    }
)


def __getattr__(name: str) -> Any:
    import importlib

    if name == "__version__":
        return globals().setdefault("__version__", _version())
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"rmtbase.{name}")
    raise AttributeError(f"module 'rmtbase' has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rmtbase")
    except PackageNotFoundError:  # imported from a source tree that was never installed
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS})
