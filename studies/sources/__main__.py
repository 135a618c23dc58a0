"""Command line of all recipes.

    python -m studies.sources RECIPE --model MODEL [--model MODEL ...] [--quick] [--out DIR] [--store DIR]
    python -m studies.sources list
    python -m studies.sources pages [--model MODEL] [--out DIR]

RECIPE is one of those below, or ``all``. ``list`` prints the checkpoints of the sources, with their sizes. ``pages``
writes the pages again from the results.json of each recipe, without a model. MODEL is ``demo``, a folder, or a model of
the hub, followed by ``@REVISION`` for another revision than the default. Scores are kept in the store; fetched weights
are deleted.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rmtbase.errors import CheckpointError, RmtbaseError, TableError
from studies.sources.coverage import items_page
from studies.sources.coverage import page as coverage_page
from studies.sources.manifests import checkpoints_of, listing
from studies.sources.recipe import Fetched, Run, discard_left, label, read_results
from studies.sources.writing import index, page, write

HERE = Path(__file__).resolve().parent
STORE = Path("build/sources")
RECIPES = {
    "first": "what a reader of the posts asks first: one null for one convention; κ; which heads",
    "null": "post 1, figures 1-4; post 2, figure 1",
    "post1": "post 1, figures 5-11 and 14-20, table 1",
    "post2": "post 2, figures 2-12",
    "cross": "post 1, figures 12-15 and 18-20; post 2, figures 12-16",
    "weibull": "the Weibull paper's tables and figures 2-14",
    "training": "the follow-up's pictures and animations",
    "claims": "every headline claim, its null, and our verdict",
}
"""The recipes, each a module of its name with ``make(run) -> Result`` and ``COVERS``, a status for each place."""


def recipe(name: str) -> ModuleType:
    """Import the module of a recipe."""
    return import_module(f"studies.sources.{name}")


def results_of(models: Sequence[str]) -> Path:
    """Default folder of the results of one or several models; results of the demo are part of the tree."""
    if len(models) > 1:
        return HERE / "results" / "several"
    name = re.sub(r"[^\w.@-]+", "--", label(models[0]))
    taken = name in ("", ".", "..", "several") or (name == "demo" and models[0] != "demo")
    return HERE / "results" / (f"folder-{name}" if taken else name)


def run_recipe(name: str, models: Sequence[str], quick: bool, out: Path, store: Path, fetched: Fetched) -> Path:
    """Run one recipe and write its files into a folder of its name; returns that."""
    run = Run(models[0], quick, out / name, store, tuple(models), fetched=fetched)
    module = recipe(name)
    command = " ".join(["python -m studies.sources", name, *(f"--model {shlex.quote(label(one))}" for one in models)])
    return write(name, module.make(run), module.COVERS, run, command + (" --quick" if quick else ""))


def write_pages(results: Path) -> None:
    """Write every page of a folder of results: of each recipe, of all, and the table of coverage."""
    for path in sorted(results.glob("*/results.json")):
        held = read_results(path)
        (path.parent / "README.md").write_text(page(held), encoding="utf-8")
    (results / "README.md").write_text(index(results, RECIPES), encoding="utf-8")
    (results / "COVERAGE.md").write_text(coverage_page(RECIPES, results), encoding="utf-8")
    if results.resolve().is_relative_to(HERE):
        (HERE / "ITEMS.md").write_text(items_page(), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m studies.sources", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.epilog = "\n".join(f"{name:10}{what}" for name, what in RECIPES.items())
    parser.add_argument("recipe", choices=(*RECIPES, "all", "list", "pages"), metavar="RECIPE")
    parser.add_argument("--model", action="append", help="may be given several times, or several with commas")
    parser.add_argument("--quick", action="store_true", help="fewer draws")
    parser.add_argument("--out", type=Path, help="folder of the results; a folder within it for each recipe")
    parser.add_argument("--store", type=Path, default=STORE, help=f"folder of scores that are kept ({STORE})")
    args = parser.parse_args(arguments)
    if args.recipe == "list":
        print(listing())
        return 0
    models = [one.strip() for given in args.model or ["demo"] for one in given.split(",") if one.strip()]
    if not models:
        parser.error("--model: nothing is named; expected demo, a folder, or a model of the hub")
    called = [label(one) for one in models]
    if twice := sorted({one for one in called if called.count(one) > 1}):
        parser.error(f"--model: two are called {', '.join(twice)}; name each once, folders by different names")
    results = results_of(models) if args.out is None else args.out
    if args.recipe == "pages" and not any(results.glob("*/results.json")):
        parser.error(f"{results} has no results of a recipe; run one first")
    named = {"all": list(RECIPES), "pages": []}.get(args.recipe, [args.recipe])
    fetched, name = Fetched(), args.recipe
    refused = []
    try:
        for name in named:
            begun = time.perf_counter()
            try:
                folder = run_recipe(name, models, args.quick, results, args.store, fetched)
            except (CheckpointError, TableError, OSError):
                raise
            except RmtbaseError as error:  # of this recipe alone: the others go on
                refused.append(f"{name}: {error}")
                continue
            print(f"{name}: {folder} ({time.perf_counter() - begun:.0f} s)")
        if any(results.glob("*/results.json")):
            write_pages(results)
    except (RmtbaseError, OSError) as error:
        notes = [f"{one.known.hub_id}: {one.licence}" for one in checkpoints_of(models) if one.gated != "no"]
        print("\n".join([f"{name}: {error}", *dict.fromkeys(notes)]), file=sys.stderr)
        return 2
    finally:
        fetched.discard()
    print("\n".join(refused), end="\n" * bool(refused), file=sys.stderr)
    return 2 if refused else 0


def _stop(number: int, _: object) -> None:
    """Delete what is fetched and end at once: a download in another thread would be waited for."""
    discard_left(os.getpid())
    print("stopped; what was scored is kept", file=sys.stderr, flush=True)
    os._exit(128 + number)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    raise SystemExit(main())
