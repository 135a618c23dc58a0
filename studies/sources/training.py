"""Recipe ``training``: the follow-up's pictures and animations, beside simulated matrices and the exact laws.

Of the demo the four checkpoints that are shipped are shown, and, moving, two runs of its recipe of 400 steps with two
seeds (:mod:`studies.sources.two_seeds`), which stand for the models trained on deduplicated and other data.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal
from scipy.stats import wasserstein_distance

from studies.sources import training_figures as figures
from studies.sources.course import PYTHIA_STEPS, Checkpoint, checkpoints_shown, is_pythia
from studies.sources.manifests import Needs
from studies.sources.recipe import Null, Result, Row, Run, null_of_draws
from studies.sources.spectra import COMPONENTS, Spectrum, all_spectra
from studies.sources.statements import verdict
from studies.sources.training_figures import NAMES, SOURCE, Course
from studies.sources.two_seeds import HELD, SEEDS
from studies.sources.verdicts import LEVEL, Claim, Kind, Side, beyond_draws, beyond_normal, corrected

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
SETTLED = 0.9
"""Margin of *largely consistent from then on*: more than this share of the way is gone by half of the steps."""
SIMILAR = 0.25
"""Margin of *extremely similar*: the runs are apart by less than this share of what training moved them."""
DRAWS = 199
"""Matrices with independent elements, of each shape, that a matrix is compared with."""
_SEED = 5


def rows_of(run: Run) -> list[Row]:
    """Every statement about values, of the run's models."""
    runs, last = courses(run), spectra_of(run, checkpoints_shown(run)[-1])
    return [*_of_last(run, last), *_references(last, run.quick), *_early(run, runs[0]), *_of_two(run, runs)]


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
    return Result(tuple(drawn), tuple(rows_of(run)))


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


@lru_cache(maxsize=16)
def independent_spectra(rows: int, columns: int) -> np.ndarray:
    """Draw singular values over their root mean square of Gaussian matrices, ascending, (draw, index).

    Those of an m × n matrix, m ≥ n, are those of the bidiagonal matrix with χ_m, …, χ_{m−n+1} on its diagonal and
    χ_{n−1}, …, χ_1 beside it (Dumitriu & Edelman 2002), which are the positive eigenvalues of a tridiagonal one.
    """
    large, small = max(rows, columns), min(rows, columns)
    rng = np.random.default_rng([_SEED, large, small])
    drawn = []
    for _ in range(DRAWS):
        beside = np.empty(2 * small - 1)
        beside[::2] = np.sqrt(rng.chisquare(large - np.arange(small)))
        beside[1::2] = np.sqrt(rng.chisquare(np.arange(small - 1, 0, -1)))
        values = np.abs(eigvalsh_tridiagonal(np.zeros(2 * small), beside)[small:])
        drawn.append(values / np.sqrt(np.mean(values**2)))
    return np.array(drawn)


@lru_cache(maxsize=16)
def chance_distances(rows: int, columns: int) -> np.ndarray:
    """Distances of the spectra of two matrices with independent elements, (draw,)."""
    drawn = independent_spectra(rows, columns)
    return np.array([wasserstein_distance(one, drawn[k - 1]) for k, one in enumerate(drawn)])


def _of_last(run: Run, spectra: Mapping[str, np.ndarray]) -> Iterator[Row]:
    """Singular values near zero, and the largest, of the middle layer at the end."""
    for number, name in enumerate(COMPONENTS, 1):
        one = figures.middle(spectra, name)
        if one is None:
            continue
        place, drawn = f"{SOURCE}, figure {number}", independent_spectra(one.rows, one.columns)
        of = f"independent elements, {one.rows} × {one.columns}"
        near_zero, own = np.mean(drawn < 0.1, axis=1), one.near_zero()
        yield Row(
            place, f"{NAMES[name]}: share of singular values below a tenth of their root mean square",
            "much higher than a Gaussian", own, null_of_draws(near_zero, of),
            verdict(run, beyond_draws(own, near_zero, Side.ABOVE), *MODELS), "s",
            "" if one.rows == one.columns else "a matrix that is not square has a gap there",
        )  # fmt: skip
        yield Row(
            place, f"{NAMES[name]}: largest singular value over their root mean square", "an extremely long tail",
            one.largest(), null_of_draws(drawn[:, -1], of),
            verdict(run, beyond_draws(one.largest(), drawn[:, -1], Side.ABOVE), *MODELS), "s",
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
        apart, Null(same, of="two halves of the Gaussian draws"), corrected("errata, 9"), "s",
        f"one law for both; the trained matrix is {trained:.2g} from either",
    )  # fmt: skip


def _early(run: Run, course: Course) -> Iterator[Row]:
    """Measure how much of its way the spectrum has gone by a tenth of the steps, and by half."""
    number, last = 1 + COMPONENTS.index("mlp_in"), figures.middle(course.spectra[-1], "mlp_in")
    for share, words in ((0.1, "forms rapidly at the beginning"), (0.5, "then is largely consistent")):
        gone = way_gone(course, share)
        if gone is None or last is None:
            return
        first = figures.middle(course.spectra[0], "mlp_in")
        assert first is not None  # way_gone has used it
        way, chance = _distance(first, last), chance_distances(last.rows, last.columns)
        error = float(chance.std()) / way
        moved = beyond_draws(way, chance, Side.ABOVE)
        if moved.p_value is None or moved.p_value > LEVEL:  # as far as two untrained matrices: there is no way
            claim = Claim(Kind.LEARNED, gone)
        elif share < 0.5:
            claim = beyond_normal(gone, share, error, Side.ABOVE)
        else:
            claim = Claim(Kind.EQUALITY, gone, low=SETTLED, error=error)
        quantity = f"way of MLP in's spectrum to its end by {100 * share:g} % of the steps"
        note = f"{course.name}; of Wasserstein's distance, shapes only"
        note += "" if share < 0.5 else f"; consistent: {SETTLED:g} or more"
        said, null = verdict(run, claim, *MODELS), Null(share, error, of="evenly")
        yield Row(f"{SOURCE}, figure {number}", quantity, words, gone, null, said, "s", note)


def _distance(one: Spectrum, other: Spectrum) -> float:
    return float(wasserstein_distance(one.values, other.values))


def way_gone(course: Course, share: float) -> float | None:
    """Share of its way to the end that MLP in's spectrum has gone by a share of the steps; None for too few steps."""
    spectra = [figures.middle(one, "mlp_in") for one in course.spectra]
    values = [one.values for one in spectra if one is not None]
    if len(values) < max(3, len(course.steps)):
        return None
    distance = np.array([wasserstein_distance(one, values[-1]) for one in values])
    if not distance[0] > 0:
        return None
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
        apart, moved = _distance(ends[0], ends[1]), _distance(ends[0], start)
        chance = chance_distances(start.rows, start.columns)
        mean, error = float(chance.mean()), float(chance.std())
        margin = SIMILAR * (moved - mean)
        claim = Claim(Kind.EQUALITY, apart - mean, high=margin, error=error)
        way = beyond_draws(moved, chance, Side.ABOVE).p_value
        if way is None or way > LEVEL:  # as far as two untrained matrices: there is nothing to be similar in
            claim = Claim(Kind.EQUALITY, None)
        yield Row(
            f"{SOURCE}, figure 7", f"{NAMES[name]}: distance of two runs at the end", "extremely similar", apart,
            null_of_draws(chance, "two untrained matrices"), verdict(run, claim, *MODELS), "s",
            f"training moved them by {moved:.2g}; similar: beyond chance they are less than {SIMILAR:g} of that apart",
        )  # fmt: skip
