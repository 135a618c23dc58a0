"""Watching a run of the ``Trainer`` of transformers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from rmtbase.errors import MissingDependencyError, RmtbaseError
from rmtbase.parameters import require_positive_integer
from rmtbase.shown import one_line
from rmtbase.watch._watcher import Watcher, WatchWarning

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise MissingDependencyError("transformers", "watching a run of the Trainer", "hf") from error


class WatchCallback(TrainerCallback):
    """Looks at the weights of a ``Trainer`` run every so many steps, and logs what it finds as the Trainer logs.

    So TensorBoard, W&B, Trackio and whatever else reports for the Trainer show it, under ``rmtbase/``. The first look
    is before the first step, the last after the last. Of several processes the first looks, the others wait for it as
    for any step; weights that are sharded over them (FSDP, ZeRO-3) are refused at the first look. What fails later is
    warned of, and the run goes on.

    Args:
        trainer: that runs; give the callback to its ``add_callback``.
        output: file of the trajectory; see :class:`Watcher`, also for the other options.
        every: steps from look to look. A look that the budget does not allow is left out.
        **options: of the :class:`Watcher`.

    Attributes:
        watcher: the :class:`Watcher`.
        skipped: looks that were left out.
    """

    def __init__(self, trainer: Any, output: Path | str, every: int, **options: Any) -> None:
        self.trainer, self.every = trainer, require_positive_integer("every", every)
        self.watcher = Watcher(output, **options)
        self.skipped = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        """The first look; of a run that goes on, at the step it goes on from."""
        if not state.is_world_process_zero:
            return
        is_seen = self.watcher.go_on_from(model, state.global_step)
        if self.watcher.tree is None and self.watcher.planned_looks is None and state.max_steps > 0:
            self.watcher.planned_looks = 2 + state.max_steps // self.every
        if not is_seen:
            self.trainer.log(self.watcher.look(model, state.global_step))

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        """A look, if one is due and the budget allows it."""
        if state.is_world_process_zero and state.global_step % self.every == 0:
            if self.watcher.can_afford():
                self._look(model, state.global_step)
            else:
                self.skipped += 1

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        """The last look, whatever the budget."""
        if state.is_world_process_zero and self.watcher.steps[-1:] != [state.global_step]:
            self._look(model, state.global_step)

    def _look(self, model: Any, step: int) -> None:
        try:
            found = self.watcher.look(model, step)
        except Exception as error:  # whatever it is, the training is worth more
            said = str(error) if isinstance(error, RmtbaseError) else f"{type(error).__name__}: {one_line(str(error))}"
            warnings.warn(f"the look at step {step} failed: {said}", WatchWarning, stacklevel=2)
        else:
            self.trainer.log(found)
