"""Recipe ``weibull``: the Weibull paper's tables and figures, beside the run's model, first principles and the null."""

from collections.abc import Iterator, Sequence

import xarray as xr

from studies.sources import weibull_scales as scales
from studies.sources import weibull_shapes as shapes
from studies.sources import weibull_tables as tables
from studies.sources.course import Member, cohort, members
from studies.sources.manifests import Needs, models_of
from studies.sources.recipe import Figure, Result, Row, Run
from studies.sources.weibull_shapes import PAPER

_CONTRAST = ("OLMo-1-7B", "Qwen2.5-14B", "Qwen3-8B")
_TWELVE = Needs(
    "weibull",
    models_of("Weibull paper"),
    "the twelve models of its table 4",
    "of the demo and the twins",
    "set:weibull",
)
_PYTHIA = tuple(one for one in models_of("Weibull paper") if "/pythia" in one)
_OF_FIVE = Needs("weibull", _PYTHIA, "the five Pythia sizes", "of the demo's training")
_OLMO, _QWENS = "allenai/OLMo-7B-hf", ("Qwen/Qwen2.5-14B", "Qwen/Qwen3-8B")
COVERS = {
    f"{PAPER}, figure 1": "superseded: a diagram of the framework; docs/architecture.md draws the rooms",
    f"{PAPER}, figure 2": "done",
    f"{PAPER}, figure 13": "done",
    **{
        f"{PAPER}, figure {number}": Needs("weibull", (f"EleutherAI/pythia-{size}",), here="of the demo's training")
        for number, size in ((3, "70m"), (12, "410m"), (14, "70m"))
    },
    **{f"{PAPER}, figure {number}": _TWELVE for number in (4, 5, 9)},
    f"{PAPER}, figure 6": Needs("weibull", (_OLMO,), here="of the demo"),
    f"{PAPER}, figure 7": Needs(
        "weibull", (_OLMO, *_QWENS), "OLMo-1 7B, Qwen2.5 14B and Qwen3 8B", "of the twins, which differ in nothing else"
    ),
    f"{PAPER}, figure 8": _OF_FIVE._replace(models=tuple(one for one in _PYTHIA if "-1b" not in one), named=""),
    **{f"{PAPER}, {place}": _OF_FIVE for place in ("figure 10", "figure 11", "table 3", "table 5")},
    **{f"{PAPER}, table {number}": _TWELVE for number in (1, 4)},
    f"{PAPER}, table 2": _TWELVE._replace(
        models=tuple(one for one in (*_PYTHIA, _OLMO, *_QWENS)), named="the eight models of its table 2"
    ),
    f"{PAPER}, table 6": "done",
    f"{PAPER}, text": _TWELVE._replace(here="what follows from first principles"),
}


def make(run: Run) -> Result:
    found = members(run)
    beside = cohort(found)
    return Result(
        tuple(_figures(found, beside)),
        tuple(tables.rows(found, beside)),
        tuple([*tables.printed(), tables.functions(found, beside)]),
    )


def rows_of(run: Run) -> list[Row]:
    """Every statement about values, of the run's models."""
    found = members(run)
    return list(tables.rows(found, cohort(found)))


def _figures(found: Sequence[Member], beside: xr.DataTree) -> Iterator[Figure]:
    several = len(found) > 1
    twins = None if several else beside
    courses = [one for one in found if one.along is not None]
    left_out = [one.label for one in found if one.along is None] if courses else []
    without = f" Without {', '.join(left_out)}, of which one checkpoint is known." if left_out else ""

    def of(label: str) -> tuple[Member, str]:
        """Return the model that the paper shows, or the first one; and its name, where the run has several."""
        one = next((one for one in found if one.run.is_of(tables.HUB[label])), found[0])
        return one, f" Of {one.label}." if several else ""

    yield shapes.noise()
    one, named = of("Pythia-70m")
    yield _with(shapes.body_and_tail(one.named), named)
    if several:
        yield _with(shapes.drift_of_models(courses, beside), without.replace(" Without", " Panel A is without"))
    elif courses:
        yield shapes.drift(courses[0], beside)
    yield shapes.ablation([(one.label, one.last) for one in found] if several else found[0].named, twins)
    one, named = of("OLMo-1-7B")
    yield _with(shapes.magnitudes(one.scores), named)
    yield shapes.maps_of_models(_contrasted(found)) if several else shapes.norm_contrast(beside)
    if courses:
        yield _with(shapes.by_step(courses), without)
    yield shapes.attention(beside)
    lines = [*map(scales.line_of, courses), *(scales.lines_of(twins) if twins is not None else [])]
    if lines:
        yield _with(scales.kinds_along(lines), without)
        yield _with(scales.mean_along(lines), without)
    one, named = of("Pythia-410m")
    yield _with(scales.blocks(one.last), named)
    yield scales.scaling(tables.known_scales(found, beside))
    if courses:
        yield _with(scales.shape_and_scale_along(courses), without)


def _with(figure: Figure, words: str) -> Figure:
    return figure._replace(caption=figure.caption + words)


def _contrasted(found: Sequence[Member]) -> list[Member]:
    """Choose the three models of the paper's figure 7; without these, up to four with the same matrices in figure 7."""
    three = [one for name in _CONTRAST for one in found if one.run.is_of(tables.HUB[name])]
    if len(three) == len(_CONTRAST):
        return three
    kinds = [shapes.selection_of(one.scores) for one in found]
    kind = next((one for one in kinds if len(one) > 1), kinds[0])
    return [one for one, own in zip(found, kinds, strict=True) if own == kind][:4]
