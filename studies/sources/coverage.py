"""Every figure, table and animation of the sources, each once, with what makes it again: the coverage table.

A recipe's ``COVERS`` says for each of its places ``done``, ``needs CHECKPOINT …`` (drawn of another model until then),
or ``superseded: why``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from string import ascii_uppercase
from typing import NamedTuple

from studies.sources.recipe import read_results

STATUSES = ("done", "needs", "superseded")
COMMAND = "python -m studies.sources"

_POST_1 = (
    "full-rank random matrices", "low-rank products at d = 1000, d_h = 500", "effect of d_h", "width, entropy and KL",
    "W_Q of layer 0", "W_Q of layer 0, logarithmic, with normal fits", "W_Q of all heads, heat map",
    "σ and entropy of W_Q, GPT-2", "σ and entropy of W_Q, GPT-2 XL", "W_QK of layer 0", "W_QK of all heads, heat map",
    "σ of W_Q by layer, all models", "σ of W_QK by layer, all models", "entropy against σ",
    "entropy residual against σ",
    "σ_fit and KL of W_Q", "σ_fit and KL of W_QK", "σ_fit against σ", "KL against σ", "corner plot of moments",
)  # fmt: skip
_POST_2 = (
    "null of GPT-2's heads", "two heads' spectra", "eigenvalues, heat map", "eigenvalue density, heat map",
    "eigenvalues of layer 0", "eigenvalue densities of layer 0", "leading eigenvalue", "NPR", "spectral entropy",
    "condition number", "entropy against NPR", "eigenvalue statistics against σ", "leading eigenvalue, several models",
    "NPR, several models", "spectral entropy, several models", "condition number, several models",
)  # fmt: skip
_WEIBULL = (
    "diagram of the framework", "noise of a point of the Weibull plot", "body fit and tail along training",
    "drift of k, 12 models", "body-tail ablation", "magnitudes by layer, OLMo-1", "with and without QK norm",
    "fused W_QKV along training", "k of W_Q and W_K by attention", "λ of four components along training",
    "mean λ along training", "k and λ by block", "λ against √(η/λ_wd)", "k and λ along training, 14 checkpoints",
)  # fmt: skip
_WEIBULL_TABLES = (
    "body-tail ablation", "super-weights", "growth of λ of W_O", "λ and √(η/λ_wd), 12 models",
    "ratios of initial scales", "the eight functions",
)  # fmt: skip
_FOLLOW_UP = (
    "animation: singular values of W_QKV, 800m", "animation: of the attention output, 800m",
    "animation: of MLP in, 800m",
    "animation: of MLP out, 800m", "toy model of the residual stream at several depths",
    "singular values by depth in the network, 1.3b", "animation: W_QKV, deduplicated and not, 800m",
    "norms of W_QKV by block, deduplicated and not, 1.3b", "norms of MLP in, likewise", "norms of MLP out, likewise",
)  # fmt: skip


def _places(source: str, kind: str, titles: Iterable[str]) -> dict[str, str]:
    return {f"{source}, {kind} {number}": title for number, title in enumerate(titles, 1)}


PLACES: dict[str, str] = {
    **_places("post 1", "figure", _POST_1),
    "post 1, table 1": "the 14 models",
    **_places("post 2", "figure", _POST_2),
    **_places("Weibull paper", "figure", _WEIBULL),
    **_places("Weibull paper", "table", _WEIBULL_TABLES),
    "Weibull paper, text": "numbers of the text and of figures",
    **_places("follow-up", "figure", _FOLLOW_UP),
}
"""What each place of the sources shows; the follow-up's pictures have no numbers, and are counted in their order."""


class Covered(NamedTuple):
    """A place, the recipes that make it again, and how far: in the words of that which has a command, if one has."""

    place: str
    recipes: tuple[str, ...]
    status: str


def covered(recipes: Iterable[str]) -> list[Covered]:
    """List what the existing recipes cover, each place once, in the order of the sources."""
    there = [name for name in recipes if find_spec(f"studies.sources.{name}") is not None]
    by_recipe: dict[str, Mapping[str, str]] = {name: import_module(f"studies.sources.{name}").COVERS for name in there}
    order = {place: number for number, place in enumerate(PLACES)}
    found = []
    for place in dict.fromkeys(place for covers in by_recipe.values() for place in covers):
        makers = tuple(name for name, covers in by_recipe.items() if place in covers)
        statuses = sorted((by_recipe[name][place] for name in makers), key=lambda status: COMMAND not in status)
        found.append(Covered(place, makers, statuses[0]))
    return sorted(found, key=lambda one: order.get(one.place, len(order)))


def files_of(place: str, recipe: str, results: Path) -> list[str]:
    """List the files, within the folder of results, in which a recipe shows a place."""
    path = results / recipe / "results.json"
    if not path.is_file():
        return []
    held = read_results(path)
    files = [f"{recipe}/{one['file']}" for one in held["figures"] if one["place"] == place]
    tables = [one for one in (*held["tables"], *held["rows"]) if one["place"] == place]
    return files or ([f"{recipe}/README.md"] if tables else [])


def page(recipes: Iterable[str], results: Path) -> str:
    """Write the coverage table in Markdown, with paths from the folder of results."""
    found = covered(recipes)
    counts = ", ".join(f"{sum(one.status.startswith(word) for one in found)} {word}" for word in STATUSES)
    whose = "the demo" if results.name == "demo" else results.name
    lines = ["# What of the sources is made again", "", f"{len(PLACES)} places: {counts}.", ""]
    lines += [
        f"Done: made as it is published, or of the demo model where any model serves. Needs: made here of {whose}, and",
        "of the published model by the command of its letter. Superseded: by what the status says.",
        "",
    ]
    needed = dict.fromkeys(one.status for one in found if one.status.startswith("needs"))
    letters = dict(zip(needed, ascii_uppercase, strict=False))  # of more than these the whole text stands in its rows
    for status, letter in letters.items():
        what, _, command = status.removeprefix("needs ").partition(f": {COMMAND}")
        command, _, further = command.partition(", and ")
        lines.append(
            f"* **{letter}**: {what}" + f": `{COMMAND}{command}`" * bool(command) + f", and {further}" * bool(further)
        )
    lines += [
        "",
        f"| place | shows | status | command | of {whose} |",
        "|---|---|---|---|---|",
    ]
    for one in found:
        files = [file for recipe in one.recipes for file in files_of(one.place, recipe, results)]
        links = ", ".join(f"[{Path(file).name}]({file})" for file in dict.fromkeys(files))
        commands = ", ".join(f"`{COMMAND} {recipe}`" for recipe in one.recipes)
        status = f"needs {letters[one.status]}" if one.status in letters else one.status
        lines.append(f"| {one.place} | {PLACES.get(one.place, '?')} | {status} | {commands} | {links or '–'} |")
    missing = [place for place in PLACES if place not in {one.place for one in found}]
    lines += [f"| {place} | {PLACES[place]} | not yet | – | – |" for place in missing]
    return "\n".join(lines) + "\n"


ITEMS = Path(__file__).with_name("items.json")


def items_page() -> str:
    """Write ITEMS.md: every item that the texts of the sources have or promise, from items.json."""
    held = json.loads(ITEMS.read_text(encoding="utf-8"))
    items, letters = held["items"], dict(zip(held["commands"], range(1, len(held["commands"]) + 1), strict=True))
    states = [one["state"].partition(" ")[0] for one in items]
    counts = ", ".join(f"{states.count(word)} {word}" for word in ("done", "needs", "partly", "not"))
    lines = ["# Every item of the sources", "", f"{len(items)} items: {counts}.", "", _COUNTED, "", "## Commands", ""]
    lines += [f"{letters[name]}. `{command}`" for name, command in held["commands"].items()]
    lines += ["", "## Items", "", "| place | what | state | command | |", "|---|---|---|---|---|"]
    for one in items:
        command = letters.get(one["command"], "–")
        lines.append(f"| {one['place']} | {one['what']} | {one['state']} | {command} | {one['why']} |")
    return "\n".join(lines) + "\n"


_COUNTED = (
    "An item is a figure, a table or an animation, a notebook, a data set or a program, a formula, or a quantity or "
    "study that a text states or promises; quotations that are claims are in `claims.json`. *Done*: of any model, or "
    "without one. *Needs*: the command does it for the models named, which are not here. *Partly*, *not*: what is "
    "missing is said. Where one item ends is for whoever counts: an earlier count, whose list was not kept, had 161."
)
