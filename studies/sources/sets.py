"""Checkpoints of a set of runs: what recipes read of each, what it takes to fetch them, and which the hub refuses."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import NamedTuple

from rmtbase.errors import CheckpointError
from rmtbase.models.files._hub import OTHER_COPIES, SAFETENSORS, TORCH, explain
from studies.sources import first
from studies.sources.claims import claims, closing, reads
from studies.sources.claims_checks import nearest_depths
from studies.sources.course import PYTHIA_REVISIONS, checkpoints_pooled, checkpoints_shown, is_pythia, transmission
from studies.sources.heads import scoring
from studies.sources.manifests import Planned, checkpoints_of
from studies.sources.recipe import Run
from studies.sources.training import points_of, spectra_of


class Reading(NamedTuple):
    """Scores or arrays of one checkpoint that a recipe reads.

    Attributes:
        model: hub id.
        revision: of it; None for the usual one.
        what: name of what is read.
        is_kept: True if the store has it.
        make: makes and keeps it.
    """

    model: str
    revision: str | None
    what: str
    is_kept: Callable[[], bool]
    make: Callable[[], object]


def readings(run: Run, planned: Iterable[Planned]) -> list[Reading]:
    """List what the runs of a set read of the hub, each once, one checkpoint after the other."""
    found = {
        (one.model, one.revision, one.what): one
        for each in planned
        for model in each.models
        for recipe in _recipes(run, each, model)
        for one in _of_model(replace(run, model=model, models=(model,)), recipe)
    }
    order = {model: number for number, model in enumerate(dict.fromkeys(model for model, *_ in found))}
    return sorted(found.values(), key=lambda one: (order[one.model], _step(one.revision)))


def _step(revision: str | None) -> int:
    return -1 if revision is None else int(revision.removeprefix("step"))


def _recipes(run: Run, planned: Planned, model: str) -> list[str]:
    """Recipes whose readings of one model a run needs: its own, or of ``claims`` those of the claims that it closes."""
    if planned.recipe != "claims":
        return [planned.recipe]
    own = replace(run, model=planned.models[0], models=planned.models)
    closed = [(claim, closing(claim, own)) for claim in claims()]
    needed = {reads(claim) for claim, members in closed if members is not None and model in members.models}
    return sorted(needed - {""})


def _of_model(run: Run, recipe: str) -> Iterator[Reading]:
    model = run.model
    if recipe in ("post1", "post2", "cross"):
        yield _scores(run, "scores of heads", scoring(run))
    if recipe == "first":
        yield _scores(run, "scores of spectra", first.OPTIONS)
        kept = partial(run.is_kept, "condition")
        yield Reading(model, None, "condition numbers", kept, partial(first.condition_spectra, run))
    if recipe == "depth":
        kept, make = partial(run.is_kept, "depth"), partial(run.arrays, "depth", nearest_depths)
        yield Reading(model, None, "depths", kept, make)
    if recipe == "weibull":
        for at in dict.fromkeys((*checkpoints_shown(run), *checkpoints_pooled(run))):
            kept = partial(run.is_kept, "transmission", at.revision)
            yield Reading(model, at.revision, "transmission", kept, partial(transmission, run, at))
        if is_pythia(model):
            yield from (_step_of_course(run, revision) for revision in PYTHIA_REVISIONS)
        else:
            yield _scores(run, "scores of matrices", {})
    if recipe == "training":
        for at in points_of(run):
            kept = partial(run.is_kept, "spectra", at.revision)
            yield Reading(model, at.revision, "spectra", kept, partial(spectra_of, run, at))


def _scores(run: Run, what: str, options: Mapping[str, object]) -> Reading:
    return Reading(run.model, None, what, partial(run.is_kept, "scores", **options), partial(run.scores, **options))


def _step_of_course(run: Run, revision: str) -> Reading:
    make = partial(run.trajectory, revisions=PYTHIA_REVISIONS, until=(revision,))
    return Reading(run.model, revision, "trajectory", lambda: revision in run.steps_kept(PYTHIA_REVISIONS), make)


class Fetching(NamedTuple):
    """Download that a model of a set takes.

    Attributes:
        model: hub id.
        revisions: how many of it are read.
        left: how many of them are not in the store yet.
        bytes_each: of one revision.
        estimated: True if the hub did not say how many bytes.
        gated: ``yes`` if access must be asked for; ``no``; of what the hub was not asked, as the manifest has it.
        refused: why its files cannot be fetched; "" if they can.
    """

    model: str
    revisions: int
    left: int
    bytes_each: int
    estimated: bool
    gated: str
    refused: str


def fetching(every: Iterable[Reading]) -> list[Fetching]:
    """Ask store and hub what is left to fetch of each model."""
    found = []
    for model, of_model in groupby(every, key=lambda one: one.model):
        read: dict[str | None, bool] = {}
        for one in of_model:
            read[one.revision] = read.get(one.revision, True) and one.is_kept()
        missing = [revision for revision, kept in read.items() if not kept]
        found.append(_fetching(model, len(read), missing))
    return found


def fetch_size(model: str, revision: str | None) -> tuple[int | None, bool]:
    """Ask the hub for the bytes that opening a model downloads, and whether access to the model is gated."""
    from huggingface_hub import HfApi
    from huggingface_hub.utils import filter_repo_objects

    try:
        info = HfApi().model_info(model, revision=revision, files_metadata=True)
    except Exception as error:
        raise CheckpointError(model, explain(error, revision)) from error
    sizes = {file.rfilename: file.size for file in info.siblings or ()}
    for patterns in (SAFETENSORS, TORCH):
        names = [*filter_repo_objects(sizes, allow_patterns=patterns, ignore_patterns=OTHER_COPIES)]
        if any(name.endswith((".safetensors", ".bin")) for name in names):
            file_sizes = [sizes[name] for name in names]
            return (None if None in file_sizes else sum(size or 0 for size in file_sizes)), bool(info.gated)
    return None, bool(info.gated)


def require_access(model: str) -> None:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    try:
        get_hf_file_metadata(hf_hub_url(model, "config.json"))
    except Exception as error:
        raise CheckpointError(model, explain(error, None)) from error


def _fetching(model: str, revisions: int, missing: list[str | None]) -> Fetching:
    (known, *_) = checkpoints_of([model])
    size, gated, refused = None, known.gated, ""
    if missing:
        try:
            size, is_gated = fetch_size(model, missing[0])
            gated = "yes" if is_gated else "no"
            require_access(model)
        except CheckpointError as error:
            refused = str(error)
    return Fetching(model, revisions, len(missing), size or known.bytes_each, size is None, gated, refused)


def report(name: str, every: Iterable[Fetching]) -> str:
    """Format what a set takes to fetch as a table, before anything is fetched."""
    every = list(every)
    heads = ("model", "checkpoints", "in the store", "to fetch, GB", "gated", "")
    rows = [
        (
            one.model, str(one.revisions), str(one.revisions - one.left),
            f"{one.left * one.bytes_each / 1e9:.2f}{'*' * (one.estimated and one.left > 0)}",
            one.gated, f"refused: {one.refused}" if one.refused else "",
        )
        for one in every
    ]  # fmt: skip
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (heads, *rows)]
    total = sum(one.left * one.bytes_each for one in every) / 1e9
    left, largest = sum(one.left for one in every), max((one.bytes_each for one in every if one.left), default=0) / 1e9
    return "\n".join(
        [
            *(line.rstrip() for line in lines),
            "",
            f"set:{name}: {left} checkpoints, {total:.2f} GB to fetch; one at a time is on the disk, {largest:.2f} GB "
            "at most, and deleted once scored. A run that is killed goes on from there when it is started again.",
            *(["* estimated; the hub did not say"] if any(one.estimated and one.left for one in every) else []),
        ]
    )
