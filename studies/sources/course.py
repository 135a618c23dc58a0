"""The course of a model's training, the Transmission Class of its checkpoints, and models to set beside it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

import rmtbase
from rmtbase.errors import ParameterError
from rmtbase.laws import parents
from rmtbase.models import Model, find_series, known_models
from rmtbase.results import open_table
from rmtbase.results.comparison import TRANSMISSION, Training, compare
from rmtbase.results.trajectory.schema import scores_at
from rmtbase.statistics import ElementSketch, element_sketch
from studies.sources.recipe import Run, hub_id, label

STUDIES = Path(__file__).resolve().parents[1]
DEMO_RUN = STUDIES / "training_run" / "trajectory.nc"
TWINS = STUDIES / "attention_twins" / "comparison.nc"
DEMO_TRAINING = Training(peak_rate=3e-3, weight_decay=0.1, steps=3500)
"""As ``studies/demo_model/training.json`` has it, which a test compares."""
PYTHIA_STEPS = (1, 4, 16, 64, 256, 1000, 2000, 4000, 8000, 10000, 16000, 32000, 64000, 143000)
"""Fourteen of them, among them those of the peaks that the paper names."""
POOLED = "pythia-70m"
"""The model of the paper's figure 14."""
PYTHIA_RATES = {"70m": 1.0e-3, "160m": 6.0e-4, "410m": 3.0e-4, "1B": 2.5e-4, "6.9B": 1.2e-4}
_PYTHIA = {one.hub_id.lower() for one in known_models() if one.hub_id.startswith("EleutherAI/pythia-")}
PYTHIA_DECAY = 0.1
"""By the training configurations published with the models; the paper prints others (errata, 25)."""
PYTHIA_SHOWN = (1, 1000, 5000, 143000)
"""The four of the paper's figures 3 and 8."""
PYTHIA_REVISIONS = tuple(f"step{step}" for step in sorted({0, *PYTHIA_STEPS, *PYTHIA_SHOWN}))
"""What is fetched of a Pythia model along its training: the fourteen, the start, and the four of the figures."""
TRIMS = (0.1, 0.05, 0.0)
"""At either end: of the middle 80 %, the middle 90 %, and all."""
_REACH, _BINS = 4.5, 90  # of |w| over its root mean square
_TAIL_BINS = 60


def is_pythia(model: str) -> bool:
    """Return True if the model is one of EleutherAI's Pythia models, which have a revision for each of the steps."""
    name, _, revision = model.partition("@")
    is_hub = not Path(name).expanduser().exists()
    return is_hub and not revision and hub_id(name) in _PYTHIA


def training_of(run: Run) -> Training | None:
    """Return η, λ_wd and T as configured, for the demo and the Pythia models of the paper's Table 4; else None."""
    if run.model == "demo":
        return DEMO_TRAINING
    size = next((one for one in PYTHIA_RATES if run.is_of(f"pythia-{one.lower()}")), None)
    return None if size is None else Training(PYTHIA_RATES[size], PYTHIA_DECAY, PYTHIA_STEPS[-1])


def course(run: Run) -> xr.DataTree | None:
    """Score the run's model along its training; None for a model of which only one checkpoint is known.

    The demo's are those of ``studies/training_run``: 41 steps.
    """
    if run.model == "demo":
        return rmtbase.open_table(DEMO_RUN)
    if is_pythia(run.model):
        return run.trajectory(revisions=PYTHIA_REVISIONS)
    if not _is_series(run.model):
        return None
    return run.trajectory()


def steps_of(along: xr.DataTree) -> list[int]:
    """Return the steps of a trajectory."""
    return [int(step) for step in along["matrices"].to_dataset()["step"].values.tolist()]


class Checkpoint(NamedTuple):
    """Location of the weights of one step.

    Attributes:
        model: as :class:`~studies.sources.recipe.Run` names it; None for the run's own.
        revision: of it; None for its usual one.
        step: None where it is not known.
    """

    model: str | None = None
    revision: str | None = None
    step: int | None = None


def checkpoints_shown(run: Run) -> tuple[Checkpoint, ...]:
    """Choose four checkpoints, as the paper shows them, or the only one."""
    if run.model == "demo":
        steps = {"step-0": 0, "step-200": 200, "step-1000": 1000, "final": DEMO_TRAINING.steps}
        return tuple(Checkpoint(None, name, step) for name, step in steps.items())
    if is_pythia(run.model):
        return tuple(Checkpoint(None, f"step{step}", step) for step in PYTHIA_SHOWN)
    return _spread(run.model, 4) if _is_series(run.model) else (Checkpoint(),)


def checkpoints_pooled(run: Run) -> tuple[Checkpoint, ...]:
    """Choose the checkpoints whose matrices are pooled along training: fourteen, as in the paper's figure 14.

    Of a Pythia size that the figure does not show, and of the demo, those of :func:`checkpoints_shown`.
    """
    if run.is_of(POOLED) and is_pythia(run.model):
        return tuple(Checkpoint(None, f"step{step}", step) for step in PYTHIA_STEPS)
    is_folder = run.model != "demo" and not is_pythia(run.model) and _is_series(run.model)
    return _spread(run.model, len(PYTHIA_STEPS)) if is_folder else checkpoints_shown(run)


def _spread(model: str, most: int) -> tuple[Checkpoint, ...]:
    """Choose up to so many checkpoints of a folder, evenly in their order, with the first and the last."""
    series = find_series(model)
    places = np.unique(np.linspace(0, len(series.revisions) - 1, most).round().astype(int)).tolist()
    chosen = [series.revisions[place] for place in places]
    return tuple(Checkpoint(str(Path(model).expanduser() / one.name), None, one.step) for one in chosen)


@dataclass(frozen=True)
class Transmission:
    """Transmission Class of one checkpoint: W_O and the MLP's matrices, one by one, by block, and pooled.

    Attributes:
        components: names of the matrices of a block.
        number: number of weights of each matrix, (layer, component), 0 where there is none.
        sigma: root mean square of each matrix.
        shape: k̂ of each matrix at each of :data:`TRIMS`, (layer, component, trim).
        block: values of each layer, pooled, (layer, value): k̂ at each trim, λ̂, max/q99, excess kurtosis.
        whole: values of all layers, pooled: k̂, λ̂ and R² of the body, root mean square, q99 and max of |w|.
        body: density of |w|/rms, all layers pooled, in equal bins up to :data:`REACH`.
        tail: numbers of weights beyond q99, between ``tail_edges``.
        tail_edges: edges of the bins of ``tail``, in |w|.
    """

    components: tuple[str, ...]
    number: Float[np.ndarray, "layer component"]
    sigma: Float[np.ndarray, "layer component"]
    shape: Float[np.ndarray, "layer component trim"]
    block: Float[np.ndarray, "layer value"]
    whole: Float[np.ndarray, " value"]
    body: Float[np.ndarray, " bin"]
    tail: Float[np.ndarray, " tail_bin"]
    tail_edges: Float[np.ndarray, " tail_edge"]

    def mixture(self, layer: int | None = None) -> parents.Mixture:
        """Mixture of normal weights with the σ of each matrix, of one layer or of all: the null of pooled weights."""
        layers = slice(None) if layer is None else slice(layer, layer + 1)
        number, sigma = self.number[layers].ravel(), self.sigma[layers].ravel()
        there = number > 0
        grouped: dict[float, float] = {}
        for one, n in zip(sigma[there].tolist(), number[there].tolist(), strict=True):
            grouped[float(f"{one:.4g}")] = grouped.get(float(f"{one:.4g}"), 0.0) + n
        total = sum(grouped.values())
        return parents.Mixture(tuple(map(parents.Normal, grouped)), tuple(n / total for n in grouped.values()))


class Member(NamedTuple):
    """Model of a run, with what was measured of it.

    Attributes:
        label: its name in texts and pictures, without the owner where that is clear.
        run: a run of this model only.
        along: its scores along training; None if only one checkpoint is known.
        scores: its scores at the last step.
        states: Transmission Class at each of :func:`checkpoints_shown`, the last one last.
        pooled: the same at each of :func:`checkpoints_pooled`.
    """

    label: str
    run: Run
    along: xr.DataTree | None
    scores: xr.DataTree
    states: tuple[tuple[Checkpoint, Transmission], ...]
    pooled: tuple[tuple[Checkpoint, Transmission], ...]

    @property
    def last(self) -> Transmission:
        """Transmission Class at the last step."""
        return self.states[-1][1]

    @property
    def named(self) -> list[tuple[str, Transmission]]:
        """States with their steps in words; that of a model without steps with its name."""
        return [(self.label if at.step is None else f"step {at.step}", state) for at, state in self.states]


def members(run: Run) -> list[Member]:
    """Measure the models of a run one after the other, so that each checkpoint is opened once."""
    names = run.models or (run.model,)
    short = [label(name).rpartition("/")[2] for name in names]
    called = short if len({*short}) == len(names) else [label(name) for name in names]
    return [_member(one, replace(run, model=name, models=(name,))) for one, name in zip(called, names, strict=True)]


def _member(called: str, run: Run) -> Member:
    along = course(run)
    scores = run.scores() if along is None else scores_at(along, steps_of(along)[-1])
    read = (*checkpoints_shown(run), *checkpoints_pooled(run))
    held = {at: transmission(run, at) for at in dict.fromkeys(read)}
    states, pooled = (tuple((at, held[at]) for at in chosen(run)) for chosen in (checkpoints_shown, checkpoints_pooled))
    return Member(called, run, along, scores, states, pooled)


def cohort(models: Sequence[Member]) -> xr.DataTree:
    """Compare several models; for one model, return the comparison of the seventeen twins.

    The twins (``studies/attention_twins``) are five groups of three or four seeds, by attention, layout and weight
    decay, trained on the same bytes.
    """
    if len(models) < 2:
        return open_table(TWINS, "comparison")
    settings = {one.label: known for one in models if (known := training_of(one.run)) is not None}
    return compare({one.label: one.scores for one in models}, training=settings or None)


def body_edges() -> Float[np.ndarray, " edge"]:
    """Edges of the bins of :attr:`Transmission.body`."""
    return np.linspace(0.0, _REACH, _BINS + 1)


def transmission(run: Run, at: Checkpoint) -> Transmission:
    """Measure the Transmission Class of a checkpoint."""
    held = run.arrays("transmission", _measured, at.model, at.revision)
    components = tuple(str(one) for one in held.pop("components"))
    return Transmission(components, **held)


def _measured(model: Model) -> dict[str, np.ndarray]:
    names = [name for name in TRANSMISSION if name in model.components]
    size = (model.n_layers, len(names))
    number, sigma, shape = np.zeros(size), np.full(size, np.nan), np.full((*size, len(TRIMS)), np.nan)
    blocks = []
    for layer in range(model.n_layers):
        own: list[ElementSketch] = []
        for place, name in enumerate(names):
            if not model.has(layer, name):
                continue
            sketch = element_sketch([model.matrix(layer, name)])
            own.append(sketch)
            number[layer, place] = sketch.count
            shape[layer, place] = list(_shapes(sketch))
            sigma[layer, place] = sketch.body.rms
        if own:
            blocks.append(reduce(ElementSketch.merged, own))
    whole = reduce(ElementSketch.merged, blocks)
    fit, q99 = whole.body, float(whole.magnitude_quantile(0.99))
    edges = body_edges() * fit.rms
    tail_edges = np.geomspace(q99, 1.02 * whole.largest_magnitude, _TAIL_BINS + 1)
    return {
        "components": np.array(names),
        "number": number,
        "sigma": sigma,
        "shape": shape,
        "block": np.array([list(_of_block(block)) for block in blocks]),
        "whole": np.array([fit.shape, fit.scale, fit.r_squared, fit.rms, q99, whole.largest_magnitude]),
        "body": _folded(whole, edges) / (whole.count * np.diff(body_edges())),
        "tail": _folded(whole, tail_edges),
        "tail_edges": tail_edges,
    }


def _shapes(sketch: ElementSketch) -> Iterator[float]:
    """k̂ at each of :data:`TRIMS`; zeros, which rounding makes of small weights, are left out of all of them."""
    yield from (sketch.body.shape, sketch.weibull_fit(TRIMS[1]).shape, sketch.whole.shape)


def _of_block(block: ElementSketch) -> Iterator[float]:
    yield from _shapes(block)
    yield block.body.scale
    yield block.largest_magnitude / float(block.magnitude_quantile(0.99))
    yield block.moments().excess_kurtosis


def _folded(sketch: ElementSketch, edges: Float[np.ndarray, " edge"]) -> Float[np.ndarray, " bin"]:
    """Count the magnitudes between the edges."""
    both = np.concatenate([-edges[::-1], edges]) if edges[0] > 0 else np.concatenate([-edges[:0:-1], edges])
    counts = sketch.histogram(both)
    n = edges.size - 1
    return counts[:n][::-1] + counts[-n:]


def _is_series(model: str) -> bool:
    folder = Path(model).expanduser()
    if not folder.is_dir() or any(one.name in (model, one.hub_id) for one in known_models()):
        return False
    if (folder / "config.json").exists():
        return False
    try:
        return len(find_series(folder).revisions) > 1
    except ParameterError:  # no name tells its steps: one model, such as a GGUF file, which needs no config.json
        return False
