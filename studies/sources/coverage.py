"""Every figure, table and animation of the sources, each once, with what makes it again: the coverage table.

A recipe's ``COVERS`` says for each of its places ``done`` (any model serves, or none), ``superseded: why``, or which
run of published models it :class:`~studies.sources.manifests.Needs`: done where a folder of results has that run.
"""

import json
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from studies.sources.manifests import COMMAND, Needs
from studies.sources.recipe import hub_id, read_results

STATUSES = ("done", "needs", "superseded")

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
    """A place, the recipes that make it again, and its status as ``COVERS`` has it."""

    place: str
    recipes: tuple[str, ...]
    status: str | Needs


class Shown(NamedTuple):
    """File that shows a place, by its path in the folder of all results; True if it is what the place needs."""

    file: str
    closes: bool


def covered(recipes: Iterable[str]) -> list[Covered]:
    """List what the existing recipes cover, each place once, in the order of the sources."""
    there = [name for name in recipes if find_spec(f"studies.sources.{name}") is not None]
    by_recipe: dict[str, Mapping[str, str | Needs]] = {
        name: import_module(f"studies.sources.{name}").COVERS for name in there
    }
    order = {place: number for number, place in enumerate(PLACES)}
    found = []
    for place in dict.fromkeys(place for covers in by_recipe.values() for place in covers):
        makers = tuple(name for name, covers in by_recipe.items() if place in covers)
        found.append(Covered(place, makers, by_recipe[makers[0]][place]))
    return sorted(found, key=lambda one: order.get(one.place, len(order)))


def is_closed(needs: Needs, held: Mapping[str, Any]) -> bool:
    """Return True if results are of the run that a place needs: not quick, of weights that came from the hub."""
    if held["quick"] or held["recipe"] != needs.recipe:
        return False
    of_hub = {hub_id(name.partition("@")[0]) for name, one in held.get("weights", {}).items() if "commit" in one}
    needed, models = [one.lower() for one in needs.models], [hub_id(one) for one in held["model"]]
    return of_hub.issuperset(needed) and (
        models[:1] == needed if len(needed) == 1 and needs.recipe != "weibull" else set(models).issuperset(needed)
    )


def shown(results: Path, found: Iterable[Covered]) -> dict[str, list[Shown]]:
    """Find the files that show each place, in all folders of results, those of the demo first."""
    by_place: dict[str, list[Shown]] = {one.place: [] for one in found}
    makers = {one.place: one.recipes for one in found}
    needs = {one.place: one.status for one in found if isinstance(one.status, Needs)}
    paths = sorted(results.glob("[!.]*/[!.]*/results.json"), key=lambda path: (path.parts[-3] != "demo", path))
    for path in paths:
        held, folder = read_results(path), path.parent.relative_to(results).as_posix()
        files: dict[str, list[str]] = {}
        for one in (*held["tables"], *held["rows"]):
            files.setdefault(one["place"], [])
        for one in held["figures"]:
            files.setdefault(one["place"], []).append(one["file"])
        for place, names in files.items():
            if held["recipe"] in makers.get(place, ()):
                closes = place in needs and is_closed(needs[place], held)
                by_place[place] += [Shown(f"{folder}/{name}", closes) for name in names or ["README.md"]]
    return by_place


def page(recipes: Iterable[str], results: Path) -> str:
    """Write the coverage table of all folders of results in Markdown, with paths from there."""
    found = covered(recipes)
    files = shown(results, found)
    status = {one.place: _status(one.status, files[one.place]) for one in found}
    counts = ", ".join(f"{sum(one.startswith(word) for one in status.values())} {word}" for word in STATUSES)
    lines = ["# What of the sources is made again", "", f"{len(PLACES)} places: {counts}.", ""]
    lines += [
        "Done: made as it is published, of the models that it is of, or of the demo where any model serves. Needs: not",
        "yet made of these models here; the command makes it. Superseded: by what the status says.",
        "",
        "| place | shows | status | command | files |",
        "|---|---|---|---|---|",
    ]
    for one in found:
        makers = (
            [one.status.command] if isinstance(one.status, Needs) else [f"{COMMAND} {name}" for name in one.recipes]
        )
        links = sorted(files[one.place], key=lambda file: not file.closes)
        cells = (
            one.place, PLACES.get(one.place, "?"), status[one.place], ", ".join(f"`{maker}`" for maker in makers),
            ", ".join(f"[{file.file.rpartition('/')[0]}]({file.file})" for file in links) or "–",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    missing = [place for place in PLACES if place not in status]
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


def _status(status: str | Needs, files: Iterable[Shown]) -> str:
    if not isinstance(status, Needs):
        return status
    if any(file.closes for file in files):
        return f"done, of {status.named or ', '.join(status.models)}"
    return f"needs {status.named or ', '.join(status.models)}; here {status.here}"
