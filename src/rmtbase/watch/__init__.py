"""Monitoring of a run from inside it: its weights are compared with the null regularly, and an alarm names heads.

:class:`Watcher` works in any training loop, :class:`WatchCallback` in the ``Trainer`` of transformers, a package that
is imported only when ``WatchCallback`` is used::

    watcher = Watcher("run.nc", planned_looks=50)  # of a module of your own: inputs={"x": batch} finds its heads
    for step, batch in enumerate(batches):
        ...
        if step % 100 == 0 and watcher.can_afford():
            print(watcher.look(model, step))

    trainer.add_callback(WatchCallback(trainer, "run.nc", every=100))
"""

from typing import TYPE_CHECKING, Any

from rmtbase.arguments import check_public
from rmtbase.watch._watcher import BUDGET, Watcher, WatchWarning

if TYPE_CHECKING:
    from rmtbase.watch._callback import WatchCallback as WatchCallback

__all__ = ["WatchWarning", "Watcher"]

check_public(globals())


def __getattr__(name: str) -> Any:
    if name != "WatchCallback":
        raise AttributeError(f"module 'rmtbase.watch' has no attribute {name!r}")
    from rmtbase.watch._callback import WatchCallback

    return WatchCallback
