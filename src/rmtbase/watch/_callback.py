"""Monitoring of a run of the ``Trainer`` of transformers."""

import warnings
from pathlib import Path
from typing import Any

from rmtbase.arguments import checked
from rmtbase.errors import MissingDependencyError, RmtbaseError
from rmtbase.parameters import require_positive_integer
from rmtbase.shown import one_line
from rmtbase.watch._watcher import Watcher, WatchWarning

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise MissingDependencyError("transformers", "watching a run of the Trainer", "hf") from error


@checked
class WatchCallback(TrainerCallback):
    """Callback that scores the weights of a ``Trainer`` run at regular steps, and logs the results with the Trainer.

    TensorBoard, W&B, Trackio and every other integration of the Trainer show them under ``rmtbase/``. The first look is
    taken before the first step, the last one after the last step. With several processes, only the first one looks, and
    the others wait for it as they do at any step. Weights that are sharded over processes (FSDP, ZeRO-3) are refused at
    the first look. A later failure causes a warning, and the run continues.

    Args:
        trainer: the running trainer; pass the callback to its ``add_callback``.
        output: file of the trajectory; see :class:`Watcher`.
        every: number of steps between looks. A look that the budget does not allow is skipped.
        **options: options of the :class:`Watcher`.

    Attributes:
        watcher: the :class:`Watcher`.
        skipped: number of looks that were skipped.
    """

    def __init__(self, trainer: Any, output: Path | str, every: int, **options: Any) -> None:
        self.trainer, self.every = trainer, require_positive_integer("every", every)
        self.watcher = Watcher(output, **options)
        self.skipped = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        """Take the first look; in a resumed run, at the step from which it continues."""
        if not state.is_world_process_zero:
            return
        is_seen = self.watcher.go_on_from(model, state.global_step)
        if self.watcher.tree is None and self.watcher.planned_looks is None and state.max_steps > 0:
            self.watcher.planned_looks = 2 + state.max_steps // self.every
        if not is_seen:
            self.trainer.log(self.watcher.look(model, state.global_step))

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        """Look if a look is due and the budget allows it."""
        if state.is_world_process_zero and state.global_step % self.every == 0:
            if self.watcher.can_afford():
                self._look(model, state.global_step, is_last=state.global_step == state.max_steps)
            else:
                self.skipped += 1

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        """Take the last look, regardless of the budget."""
        if state.is_world_process_zero and self.watcher.steps[-1:] != [state.global_step]:
            self._look(model, state.global_step, is_last=True)

    def _look(self, model: Any, step: int, is_last: bool) -> None:
        try:
            scalars = self.watcher.look(model, step, is_last=is_last)
        except Exception as error:  # no failed look is worth losing the training run
            name = "" if isinstance(error, RmtbaseError) else f"{type(error).__name__}: "
            reason = f"{name}{one_line(str(error)) if name else error}"
            warnings.warn(f"the look at step {step} failed: {reason}", WatchWarning, stacklevel=2)
        else:
            self.trainer.log(scalars)
