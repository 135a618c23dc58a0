"""Recipe ``weibull``: the Weibull paper's tables and figures, beside the run's model, first principles and the null."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import xarray as xr

from rmtbase.results.trajectory.schema import scores_at
from studies.sources import weibull_scales as scales
from studies.sources import weibull_shapes as shapes
from studies.sources import weibull_tables as tables
from studies.sources.course import Transmission, checkpoints_shown, cohort, course, steps_of, training_of, transmission
from studies.sources.recipe import Figure, Result, Run, label
from studies.sources.weibull_shapes import PAPER

_COMMAND = "python -m studies.sources weibull --model"
_TWELVE = f"needs the twelve models of its table 4; here of the demo and the twins: {_COMMAND} MODEL,MODEL"
_PYTHIA = "needs EleutherAI/pythia-{0}; here of the demo's training: " + _COMMAND + " EleutherAI/pythia-{0}"
_OF_FIVE = ("figure 10", "figure 11", "table 3", "table 5")
COVERS = {
    f"{PAPER}, figure 1": "superseded: a diagram of the framework; docs/architecture.md draws the rooms",
    f"{PAPER}, figure 2": "done",
    f"{PAPER}, figure 13": "done",
    **{f"{PAPER}, figure {number}": _PYTHIA.format(size) for number, size in ((3, "70m"), (12, "410m"), (14, "70m"))},
    **{f"{PAPER}, figure {number}": _TWELVE for number in (4, 5, 9)},
    f"{PAPER}, figure 8": _PYTHIA.format("70m") + ", and 160m, 410m and 6.9b",
    **{f"{PAPER}, {place}": _PYTHIA.format("70m") + ", and four larger ones" for place in _OF_FIVE},
    f"{PAPER}, figure 6": f"needs allenai/OLMo-7B-hf; here of the demo: {_COMMAND} allenai/OLMo-7B-hf",
    f"{PAPER}, figure 7": "needs OLMo-1 7B, Qwen2.5 14B and Qwen3 8B; here of the twins, which differ in nothing else: "
    f"{_COMMAND} allenai/OLMo-7B-hf,Qwen/Qwen2.5-14B,Qwen/Qwen3-8B",
    **{f"{PAPER}, table {number}": _TWELVE for number in (1, 4)},
    f"{PAPER}, table 2": f"needs the eight models of its table 2; here of the demo: {_COMMAND} MODEL",
    f"{PAPER}, table 6": "done",
    f"{PAPER}, text": "needs the models of its tables; here what follows from first principles: "
    f"{_COMMAND} MODEL,MODEL",
}


def make(run: Run) -> Result:
    along, beside = course(run), cohort(run)
    shown = [(at.step, transmission(run, at)) for at in checkpoints_shown(run)]
    named = [(f"step {step}" if step is not None else run.label, state) for step, state in shown]
    last = shown[-1][1]
    scores = run.scores() if along is None else scores_at(along, steps_of(along)[-1])
    return Result(
        tuple(_figures(run, along, beside, named, [(step or 0, state) for step, state in shown], scores)),
        tuple(tables.rows(run, along, last)),
        tuple([*tables.printed(), tables.functions(run, along, beside, scores, last)]),
    )


def _figures(
    run: Run,
    along: xr.DataTree | None,
    beside: xr.DataTree,
    named: Sequence[tuple[str, Transmission]],
    states: Sequence[tuple[int, Transmission]],
    scores: xr.DataTree,
) -> Iterator[Figure]:
    twins = beside if "along" in beside.children else None
    yield shapes.noise()
    yield shapes.body_and_tail(named)
    if along is not None:
        yield shapes.drift(along, twins)
    yield shapes.ablation(named, twins)
    yield shapes.magnitudes(scores)
    yield (
        shapes.norm_contrast(twins)
        if twins is not None
        else shapes.maps_of_models({label(model): run.scores(model) for model in run.models})
    )
    if along is not None:
        steps = steps_of(along)
        wanted = [step for step, _ in states]
        yield shapes.by_step(along, [min(steps, key=lambda own, to=step: abs(own - to)) for step in wanted])
    yield shapes.attention(beside)
    lines = [
        *([scales.line_of(along, run.label)] if along is not None else []),
        *(scales.lines_of(twins) if twins is not None else []),
    ]
    if lines:
        yield scales.kinds_along(lines)
        yield scales.mean_along(lines)
    yield scales.blocks(named[-1][1])
    training = training_of(run)
    own = scales.cohort_models(beside)
    if training is not None:
        own.append(scales.Model(run.label, training.root, tables.mean_scale(scores)))
    yield scales.scaling(own)
    if along is not None:
        yield scales.shape_and_scale_along(along, states)
