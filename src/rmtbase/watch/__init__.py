"""Monitoring of a training run from within: the live weights are compared with the null regularly, with an alarm.

:class:`Watcher` works in any loop, :class:`WatchCallback` in the ``Trainer`` of transformers, which is imported only
when that name is used::

    watcher = Watcher("run.nc", planned_looks=50)
    for step, batch in enumerate(batches):
        ...
        if step % 100 == 0 and watcher.can_afford():
            print(watcher.look(model, step))

    trainer.add_callback(WatchCallback(trainer, "run.nc", every=100))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmtbase.watch._watcher import BUDGET, Watcher, WatchWarning

if TYPE_CHECKING:
    from rmtbase.watch._callback import WatchCallback as WatchCallback

__all__ = ["WatchWarning", "Watcher"]


def __getattr__(name: str) -> Any:
    if name != "WatchCallback":
        raise AttributeError(f"module 'rmtbase.watch' has no attribute {name!r}")
    from rmtbase.watch._callback import WatchCallback

    return WatchCallback
