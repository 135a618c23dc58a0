"""Repeated scoring of a model in memory during training, with an alarm."""

from __future__ import annotations

import math
import sys
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from rmtbase.errors import CheckpointError, ParameterError, RmtbaseWarning
from rmtbase.models import Model, open_model
from rmtbase.parameters import require_finite_number
from rmtbase.results.trajectory import summarize_trajectory
from rmtbase.results.trajectory._alarm import ALARM_LEVEL, spending_of, with_alarm, without_alarm
from rmtbase.results.trajectory._along_steps import StepName, joined, until
from rmtbase.results.trajectory._checkpoint_scores import Scoring
from rmtbase.results.trajectory.measure import earlier_file
from rmtbase.results.trajectory.schema import STEP
from rmtbase.tables import groups_of, require_writable, write_table

BUDGET = 0.05  # share of a run's time that looks may take by default
_OF_ADAPTERS = "the updates of its adapters were added to its weights, and the module itself was not run"


class WatchWarning(RmtbaseWarning):
    """Warning that a look failed, or that the alarm can no longer name a lone head; the run continues."""


class Watcher:
    """Watcher that scores a model in memory repeatedly, and writes the trajectory after every look.

    A look reads the weights on their device and changes neither them nor the state of torch's random generators. The
    file is complete after each look, so that a killed run keeps all earlier looks. A run that is resumed from an
    earlier step continues the file, and replaces the looks beyond that step.

    The alarm names the heads that differ from random heads, at a level that holds over all looks. When too little of
    the level is left to name a lone head, however much it differs from random heads, a :class:`WatchWarning` is given
    if a further look is planned, or taken.

    Args:
        output: file of the trajectory. An existing trajectory is continued.
        scoring: how the weights are scored; by default against the Gaussian null of normal initialization.
        planned_looks: approximate number of looks. If it is given, the alarm is more sensitive; more looks are allowed.
            A file that is continued keeps the number that it was begun with.
        level: probability of any alarm at any look if all heads are random.
        budget: the share of the time since the first look that looks may take according to :meth:`can_afford`; None
            for no limit.
        **opening: further arguments of :func:`rmtbase.models.open_model`: ``family`` and ``config`` of a state dict,
            ``name``, ``sites``; ``inputs`` of a module of your own, whose heads each look finds by running it on noise.

    Attributes:
        tree: the trajectory so far, or None.
        seconds: duration of each look of this process in seconds, including the writing of the file.

    Raises:
        ParameterError: the budget is out of range.
        OutputError: the file cannot be written.
        TableError: the file is not a trajectory, or was scored in another way.
    """

    def __init__(
        self,
        output: Path | str,
        scoring: Scoring | None = None,
        *,
        planned_looks: int | None = None,
        level: float = ALARM_LEVEL,
        budget: float | None = BUDGET,
        **opening: Any,
    ) -> None:
        if budget is not None and not 0 < require_finite_number("budget", budget) <= 1:
            raise ParameterError("budget", budget, "a share of the time above 0 and at most 1, or None")
        self.output, self.scoring = require_writable(output), scoring or Scoring(proof=False)
        self.planned_looks, self.level, self.budget = planned_looks, level, budget
        self.seconds: list[float] = []
        self.tree: xr.DataTree | None = None
        self._opening = {"proof": self.scoring.proof, "fold": self.scoring.fold, **opening}
        self._began, self._is_blind, self._can_name = math.nan, False, True
        self.tree = earlier_file(self.output, self.scoring.options)
        if self.tree is not None and "planned_looks" in self.tree.attrs:
            self.planned_looks = int(self.tree.attrs["planned_looks"]) or None

    @property
    def steps(self) -> list[int]:
        """The steps at which the model has been scored."""
        return [] if self.tree is None else groups_of(self.tree)["/heads"][STEP].values.tolist()

    def can_afford(self) -> bool:
        """Return True if the budget allows another look as long as the last one; it always allows the first look."""
        if self.budget is None or not self.seconds:
            return True
        elapsed = time.perf_counter() - self._began
        return sum(self.seconds) + self.seconds[-1] <= self.budget * (elapsed + self.seconds[-1])

    def go_on_from(self, model: Any, step: int) -> bool:
        """Remove the looks beyond the step from which a run is resumed.

        Returns:
            True if the last remaining look is at that step.

        Raises:
            ParameterError: the weights differ from those at that step in the file, which then belongs to another run.
        """
        self.tree = None if self.tree is None else until(self.tree, step)
        if self.tree is None or self.steps[-1] != step:
            return False
        seen = groups_of(self.tree)["/heads"]["fingerprint"].values[-1]
        if self._opened(model).weights_digest() != seen:
            expected = f"a file of this run, whose weights at step {step} are others: name another, or remove it"
            raise ParameterError("output", self.output.name, expected)
        return True

    def look(self, model: Any, step: int, *, is_last: bool = False) -> dict[str, float]:
        """Score a model in its current state, and write the trajectory with the result.

        Args:
            model: a module of transformers or of torch, or a state dict: anything that
                :func:`rmtbase.models.open_model` accepts; it may be compiled, parallel, or have low-rank adapters of
                peft, whose updates are added.
            step: number of optimizer steps taken; it must be larger than at the last look.
            is_last: whether no look follows, so that nothing need be said of one.

        Returns:
            ``rmtbase/left_share``: share of the heads that differ from random heads, at a false discovery rate of 5 %
            within this look; ``rmtbase/heads_that_differ``: their number; ``rmtbase/smallest_q_value``: smallest false
            discovery rate at which any head differs; ``rmtbase/median_participation_ratio``;
            ``rmtbase/largest_distance``: largest distance from the null over all heads and statistics, in standard
            deviations; ``rmtbase/alarm``: number of heads for which the alarm has been raised, or NaN if there are none
            and it can no longer be raised for any; ``rmtbase/alarm_detectable_p_value``: the smallest effect that the
            alarm can still detect, as the largest p-value that gets a lone head named by the last planned look if the
            head stays at that p-value (NaN: none, or no look is left); ``rmtbase/look_seconds``: duration of
            the look in seconds.

        Raises:
            ParameterError: the step is not beyond the last one, ``model`` is not a model or has other sizes than at the
                last look, or the level or the number of planned looks is out of range.
            CheckpointError: the weights cannot be scored, for instance because one is not finite.
            OutputError: the file cannot be written.
        """
        begin = time.perf_counter()
        self._began = begin if math.isnan(self._began) else self._began
        before = self.steps
        if before and step <= before[-1]:
            raise ParameterError("step", step, f"more than {before[-1]}, that of the last look; see go_on_from")
        torch = sys.modules.get("torch")
        generators = nullcontext()
        if torch is not None:
            generators = torch.random.fork_rng(devices=range(torch.cuda.device_count()))
        with generators:
            opened = self._opened(model, f"step-{step}")
            part = self.scoring.step(opened, StepName(step, f"step-{step}", opened.weights_digest()))
        trajectory = joined([part] if self.tree is None else [without_alarm(self.tree), part])
        if groups_of(trajectory)["/heads"][STEP].values.tolist() != [*before, step]:
            raise ParameterError("model", opened.name, f"one with the sizes of that in {self.output.name}")
        self.tree = with_alarm(trajectory, self.planned_looks, self.level)
        write_table(self.tree, self.output)
        is_over = is_last or len(self.steps) == self.planned_looks
        if not is_over or len(self.steps) == 1:
            self._tell_if_blind(is_over)
        self.seconds.append(time.perf_counter() - begin)
        last = summarize_trajectory(self.tree).steps[-1]
        departures = groups_of(self.tree)["/departures"]
        raised = int(np.isfinite(departures["alarm_step"].values).sum())
        q_value = departures["omnibus_q_value"].isel({STEP: -1, "null": 0}).values
        differing = next(iter(last.left.values()))
        spending = spending_of(self.tree)
        least = None if spending is None or is_over else spending.largest_p_value_named(seen=len(self.steps))
        return {
            "rmtbase/left_share": math.nan if differing is None else differing / last.n_heads,
            "rmtbase/heads_that_differ": math.nan if differing is None else float(differing),
            "rmtbase/smallest_q_value": math.nan if differing is None else float(np.nanmin(q_value)),
            "rmtbase/median_participation_ratio": last.median_participation_ratio,
            "rmtbase/largest_distance": abs(last.distance),
            "rmtbase/alarm": float(raised) if raised or (self._can_name and last.n_heads) else math.nan,
            "rmtbase/alarm_detectable_p_value": math.nan if least is None else least,
            "rmtbase/look_seconds": self.seconds[-1],
        }

    def _opened(self, model: Any, revision: str | None = None) -> Model:
        adapted = adapted_weights(model)
        opened = open_model(**{"model": model} | (adapted or {}) | self._opening, revision=revision)
        return opened.without_proof(_OF_ADAPTERS) if adapted else opened

    def _tell_if_blind(self, is_over: bool) -> None:
        """Warn once if the alarm cannot name a lone head that begins to differ now, or at the first look differs."""
        spending = None if self._is_blind or self.tree is None else spending_of(self.tree)
        if spending is None:
            return
        seen = len(self.steps)
        if seen == 1 and spending.looks_to_name() is None:
            seen, when, begins = 0, "at no look can the alarm", "differs"
        elif not is_over and spending.looks_to_name(seen=seen) is None:
            when, begins = f"from look {seen + 1} on the alarm cannot", "begins to differ"
        else:
            return
        self._is_blind, n_heads = True, spending.n_heads
        counts = range(2, n_heads + 1)
        together = next((count for count in counts if spending.looks_to_name(seen=seen, departed=count)), None)
        self._can_name = together is not None
        whom = f"{together} or more that do so together" if together else "none that do so from then on"
        warnings.warn(
            f"{when} name a lone head of {n_heads} that {begins} "
            f"from random heads (it can name {whom}): plan the number of looks, or score against more null draws or "
            "null='analytic'",
            WatchWarning,
            stacklevel=3,
        )


def adapted_weights(model: Any) -> dict[str, Any] | None:
    """Return the arguments of ``open_model`` for a module of peft; None without adapters.

    W with low-rank updates becomes W + Σ s B A, over the adapters that are active and not merged. Each such weight is
    copied; the module is not changed.
    """
    if "peft" not in sys.modules or not callable(getattr(model, "named_modules", None)):
        return None
    import torch
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import ModulesToSaveWrapper
    from transformers import PreTrainedModel

    base = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
    if base is None:
        return None
    kinds = (BaseTunerLayer, ModulesToSaveWrapper)
    wrapped: dict[str, Any] = {name: module for name, module in base.named_modules() if isinstance(module, kinds)}
    if not wrapped:
        return None
    places = tuple(f"{place}." for place in wrapped)
    tensors = {name: tensor for name, tensor in base.state_dict().items() if not name.startswith(places)}
    with torch.no_grad():
        for place, layer in wrapped.items():
            adapters = () if layer.disable_adapters else layer.active_adapters
            if isinstance(layer, ModulesToSaveWrapper):  # trained as a whole beside the adapters
                modules = [layer.original_module, *(layer.modules_to_save[name] for name in adapters)]
                in_effect = modules[-1].state_dict()
            else:
                in_effect = dict(layer.get_base_layer().state_dict())
                for adapter in adapters:
                    if adapter in layer.merged_adapters:
                        continue
                    if getattr(layer, "lora_variant", {}).get(adapter) or not hasattr(layer, "get_delta_weight"):
                        problem = f"its adapter {adapter!r} adds no low-rank update; merge it to look at it"
                        raise CheckpointError(place, problem)
                    delta = layer.get_delta_weight(adapter)
                    in_effect["weight"] = in_effect["weight"] + delta.to(in_effect["weight"].dtype)
            tensors |= {f"{place}.{name}": tensor for name, tensor in in_effect.items()}
    return {"model": tensors, "family": base.config.model_type, "config": base.config, "name": type(base).__name__}
