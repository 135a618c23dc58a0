"""Recipe ``training``: the follow-up's pictures and animations, beside simulated matrices and the exact laws.

Of the demo the four checkpoints that are shipped are shown, and, moving, two runs of its recipe of 400 steps with two
seeds (:mod:`studies.sources.two_seeds`), which stand for the models trained on deduplicated and other data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.stats import wasserstein_distance

from studies.sources import training_figures as figures
from studies.sources.course import PYTHIA_STEPS, Checkpoint, checkpoints_shown, is_pythia
from studies.sources.manifests import Needs
from studies.sources.recipe import Null, Result, Row, Run
from studies.sources.spectra import COMPONENTS, all_spectra, independent_near_zero
from studies.sources.statements import verdict
from studies.sources.training_figures import NAMES, SOURCE, Course
from studies.sources.two_seeds import HELD, SEEDS

_SMALL, _LARGE = ((f"EleutherAI/pythia-{size}", f"EleutherAI/pythia-{size}-deduped") for size in ("1b", "1.4b"))
_OF_ONE = Needs("training", _SMALL[:1], here="of the demo's recipe", by=",".join(_SMALL))
_OF_TWO = Needs("training", _LARGE, here="of the demo's recipe")
COVERS = {
    **{f"{SOURCE}, figure {number}": _OF_ONE for number in (1, 2, 3, 4)},
    f"{SOURCE}, figure 5": "done",
    f"{SOURCE}, figure 6": _OF_TWO._replace(models=_LARGE[:1], by=",".join(_LARGE)),
    f"{SOURCE}, figure 7": _OF_ONE._replace(models=_SMALL),
    **{f"{SOURCE}, figure {number}": _OF_TWO for number in (8, 9, 10)},
}


MODELS = ("pythia-1b", "pythia-1b-deduped")
"""The follow-up's model of 800m, on either data."""
RAPID = 0.5
"""What forms rapidly at the beginning has gone more than this share of its way by a tenth of the steps."""
SETTLED = 0.9
"""And more than this by half of them, where it is largely consistent from then on."""


def make(run: Run) -> Result:
    runs = courses(run)
    shown = {_named(run, at): spectra_of(run, at) for at in checkpoints_shown(run)}
    last = list(shown.values())[-1]
    drawn = [
        *(figures.moving(runs[0], run.quick) if len(runs[0].steps) > 1 else ()),
        figures.toy_model(run.quick),
        figures.checkpoints(shown),
        figures.by_layer(last),
    ]
    if len(runs) > 1:
        drawn += [figures.two_moving(runs[0], runs[1]), *figures.norms(runs)]
    rows = [*_of_last(run, last), *_references(last, run.quick), *_early(run, runs[0]), *_of_two(run, runs)]
    return Result(tuple(drawn), tuple(rows))


def _named(run: Run, at: Checkpoint) -> str:
    return run.label if at.step is None else f"step {at.step}"


def spectra_of(run: Run, at: Checkpoint) -> dict[str, np.ndarray]:
    """Compute the singular values of all layers of a checkpoint."""
    return run.arrays("spectra", all_spectra, at.model, at.revision)


def courses(run: Run) -> list[Course]:
    """Spectra along training: of each of the run's models; of the demo, of two seeds of its recipe."""
    if run.model == "demo":
        with np.load(HELD) as held:
            steps = [int(step) for step in held["steps"]]
            return [
                Course(f"seed {seed}", tuple(steps), tuple(_of_step(held, f"{seed} {step} ") for step in steps))
                for seed in SEEDS
            ]
    found = []
    for model in run.models or (run.model,):
        own = replace(run, model=model, models=(model,))
        points = points_of(own)
        spectra = tuple(spectra_of(own, at) for at in points)
        found.append(Course(own.label, tuple(at.step or 0 for at in points), spectra))
    return found


def points_of(run: Run) -> tuple[Checkpoint, ...]:
    """Checkpoints of the run's model along its training."""
    steps = (0, *PYTHIA_STEPS) if is_pythia(run.model) else ()
    return tuple(Checkpoint(None, f"step{step}", step) for step in steps) or checkpoints_shown(run)


def _of_step(held: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): held[name].astype(float) for name in held if name.startswith(prefix)}


def _of_last(run: Run, spectra: Mapping[str, np.ndarray]) -> Iterator[Row]:
    """Singular values near zero, and the largest, of the middle layer at the end."""
    for number, name in enumerate(COMPONENTS, 1):
        one = figures.middle(spectra, name)
        if one is None:
            continue
        place, expected = f"{SOURCE}, figure {number}", independent_near_zero(one.rows, one.columns)
        own = one.near_zero()
        spread = float(np.sqrt(expected * (1 - expected) / one.values.size))
        of = f"independent elements, {one.rows} × {one.columns}"
        yield Row(
            place, f"{NAMES[name]}: share of singular values below a tenth of their root mean square",
            "much higher than a Gaussian", own, Null(expected, of=of),
            verdict(run, own > expected + 2 * spread, *MODELS), "s",
            "" if one.rows == one.columns else "a matrix that is not square has a gap there",
        )  # fmt: skip
        edge = figures.independent_edge(one.rows, one.columns)
        yield Row(
            place, f"{NAMES[name]}: largest singular value over their root mean square", "an extremely long tail",
            one.largest(), Null(None, None, 0.0, edge, of=f"{of}: up to the edge"),
            verdict(run, one.largest() > 1.05 * edge, *MODELS), "s",
        )  # fmt: skip


def _references(spectra: Mapping[str, np.ndarray], quick: bool) -> Iterator[Row]:
    """Show that the two references of the source are the same."""
    one = figures.middle(spectra, "attention_output")
    if one is None:
        return
    gaussian, logistic = figures.references(one.rows, one.columns, 4 if quick else 16)
    apart = float(wasserstein_distance(gaussian.ravel(), logistic.ravel()))
    same = float(wasserstein_distance(*np.array_split(gaussian.ravel(), 2)))
    trained = float(wasserstein_distance(one.values, gaussian.ravel()))
    yield Row(
        f"{SOURCE}, figure 2", "distance of Gaussian from logistic matrices' singular values", "two comparisons",
        apart, Null(same, of="two halves of the Gaussian draws"), "corrected", "s",
        f"errata, 9: one law for both; the trained matrix is {trained:.2g} from either",
    )  # fmt: skip


def _early(run: Run, course: Course) -> Iterator[Row]:
    """Measure how much of its way the spectrum has gone by a tenth of the steps, and by half."""
    number = 1 + COMPONENTS.index("mlp_in")
    for share, enough, words in (
        (0.1, RAPID, "forms rapidly at the beginning"), (0.5, SETTLED, "then is largely consistent"),
    ):  # fmt: skip
        gone = way_gone(course, share)
        if gone is None:
            return
        yield Row(
            f"{SOURCE}, figure {number}", f"{course.name}: way of MLP in's spectrum to its end by "
            f"{100 * share:g} % of the steps", words, gone, Null(share, of="evenly"),
            verdict(run, gone > enough, *MODELS), "s",
            f"of Wasserstein's distance, shapes alone; {enough:g} or more would be",
        )  # fmt: skip


def way_gone(course: Course, share: float) -> float | None:
    """Share of its way to the end that MLP in's spectrum has gone by a share of the steps; None for too few steps."""
    spectra = [figures.middle(one, "mlp_in") for one in course.spectra]
    values = [one.values for one in spectra if one is not None]
    if len(values) < max(3, len(course.steps)):
        return None
    distance = np.array([wasserstein_distance(one, values[-1]) for one in values])
    return 1.0 - float(np.interp(share * course.steps[-1], course.steps, distance)) / distance[0]


def _of_two(run: Run, runs: Sequence[Course]) -> Iterator[Row]:
    """Measure how far apart two runs end, beside two untrained matrices."""
    if len(runs) < 2:
        return
    for name in COMPONENTS:
        ends = [figures.middle(course.spectra[-1], name) for course in runs[:2]]
        if ends[0] is None or ends[1] is None:
            continue
        start = figures.middle(runs[0].spectra[0], name)
        assert start is not None
        apart = float(wasserstein_distance(ends[0].values, ends[1].values))
        moved = float(wasserstein_distance(ends[0].values, start.values))
        pair = figures.references(start.rows, start.columns, 2)[0]
        null = Null(float(wasserstein_distance(pair[0], pair[1])), of="two untrained matrices")
        yield Row(
            f"{SOURCE}, figure 7", f"{NAMES[name]}: distance of two runs at the end", "extremely similar", apart,
            null, verdict(run, apart < 0.25 * moved, *MODELS), "s", f"training moved them by {moved:.2g}",
        )  # fmt: skip
