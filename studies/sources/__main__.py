"""Command line of all recipes.

    python -m studies.sources [RECIPE] --model MODEL [--model MODEL ...] [--quick] [--out DIR] [--store DIR]
    python -m studies.sources [RECIPE] --model set:post1|set:post2|set:weibull|set:pythia|set:training|all
    python -m studies.sources figure NAME [--model MODEL] [--quick] [--out DIR]
    python -m studies.sources list
    python -m studies.sources pages [--out DIR]

RECIPE is one of those below, or ``all``, which may be left out. MODEL is ``demo``, a folder, or a model of the hub,
followed by ``@REVISION`` for another revision than the default. A set makes every place of a source again of the
models that it is of: it says first what it takes to fetch and what is refused, fetches one checkpoint at a time, and
goes on where it was killed. Scores are kept in the store; fetched weights are deleted. Results of one model go to
DIR/MODEL/RECIPE. ``figure`` makes one figure or table by its name in the sources: ``post1-3``, ``post2-12``,
``weibull-8``, ``weibull-table-2``, ``followup-5``; by default into build/figures. ``list`` prints the checkpoints of
the sources, with their sizes. ``pages`` writes the pages again from the results.json of each recipe, without a model.
"""

import argparse
import hashlib
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rmtbase.errors import CheckpointError, ParameterError, RmtbaseError, TableError
from studies.sources.coverage import covered, items_page
from studies.sources.coverage import page as coverage_page
from studies.sources.manifests import COMMAND, checkpoints_of, cohort_name, listing, sets
from studies.sources.recipe import Fetched, Result, Run, discard_left, label, read_results, usual_name
from studies.sources.sets import fetching, readings, report
from studies.sources.store import is_url, write_index
from studies.sources.writing import index, page, restore, write

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
_LONGEST = 80  # letters of the name of a folder of results
STORE = Path("build/sources")
FIGURES = Path("build/figures")
SOURCES = {"post1": "post 1", "post2": "post 2", "weibull": "Weibull paper", "followup": "follow-up"}
"""The sources by the names that ``figure`` takes."""
_NAME = re.compile(f"(?P<source>{'|'.join(SOURCES)})-((?P<kind>figure|table)-)?0*(?P<number>[0-9]+)")
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


def folder_of(models: Sequence[str], of_set: str = "") -> str:
    """Name of the folder of results of one model, of the models of a set (the running one, if any), or of several."""
    if (cohort := cohort_name(models, of_set)) is not None:
        return cohort
    name = "+".join(re.sub(r"[^\w.@-]+", "--", label(one)) for one in models)
    if len(name) > _LONGEST:
        name = f"{name[: _LONGEST - 9].rstrip('.+-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    taken = name in ("", ".", "..", *sets()) or name.startswith(".") or (name == "demo" and models[0] != "demo")
    return f"folder-{name}" if taken else name


def run_recipe(name: str, models: Sequence[str], run: Run, of_set: str = "") -> Path:
    """Run one recipe of the models, below the folder of all results, and write its files; returns their folder."""
    folder = folder_of(models, of_set)
    own = replace(run, model=models[0], models=tuple(models), out=run.out / folder / name, scored={})
    restore(own.out)
    return write(name, recipe(name).make(own), own, _command([name], own, of_set))


def _command(words: Sequence[str], run: Run, of_set: str = "") -> str:
    """Return the command line of a run, as its results record it; a comparison of a set's models names the set."""
    cohort = cohort_name(run.models, of_set) if of_set else None
    names = [f"set:{cohort}"] if cohort else [label(one) for one in run.models]
    models = (f"--model {shlex.quote(name)}" for name in names)
    return " ".join([COMMAND, *words, *models, *["--quick"] * run.quick])


def run_models(recipes: Sequence[str], models: Sequence[str], run: Run) -> list[str]:
    """Run recipes of the same models; returns what went wrong, in words."""
    missing: list[str] = []
    for name in recipes:
        try:
            _run_told(name, models, run)
        except (CheckpointError, TableError, OSError) as error:
            notes = [f"{one.known.hub_id}: {one.licence}" for one in checkpoints_of(models) if one.gated != "no"]
            return [*missing, f"{name}: {error}", *dict.fromkeys(notes)]
        except RmtbaseError as error:  # of this recipe alone: the others go on
            missing.append(f"{name}: {error}")
    return missing


def run_set(name: str, recipes: Sequence[str], run: Run) -> list[str]:
    """Run the recipes of a set; returns what is missing at the end, in words.

    All checkpoints are scored first, one after the other: what several recipes read is fetched once.
    """
    planned = [one for one in sets()[name] if one.recipe in recipes]
    every = readings(run, planned)
    models = fetching(every)
    print(report(name, models), flush=True)
    refused = {one.model: one.refused for one in models if one.refused}
    for model, why in refused.items():
        (known, *_) = checkpoints_of([model])
        print(f"{model}: {why} ({known.licence})", file=sys.stderr, flush=True)
    for one in every:
        if one.model not in refused and not one.is_kept():
            try:
                one.make()
            except (RmtbaseError, OSError) as error:
                refused[one.model] = f"{one.what}: {error}"
                print(f"{one.model}: {refused[one.model]}", file=sys.stderr, flush=True)
    missing = []
    for one in planned:
        if lacking := [model for model in one.models if model in refused]:
            missing.append(f"{one.recipe} of {folder_of(one.models, name)}: not run without {', '.join(lacking)}")
            continue
        try:
            _run_told(one.recipe, one.models or ("demo",), run, name)
        except (RmtbaseError, OSError) as error:
            missing.append(f"{one.recipe} of {folder_of(one.models or ('demo',), name)}: {error}")
    return missing


def _run_told(name: str, models: Sequence[str], run: Run, of_set: str = "") -> None:
    begun = time.perf_counter()
    folder = run_recipe(name, models, run, of_set)
    print(f"{name}: {folder} ({time.perf_counter() - begun:.0f} s)", flush=True)


def run_place(name: str, models: Sequence[str], run: Run) -> Path:
    """Make one figure or table of the sources, with its rows, by its name; returns the folder of its files.

    Raises:
        ParameterError: no place has that name, or the recipe shows nothing there of these models.
    """
    named = _NAME.fullmatch(name)
    place = f"{SOURCES[named['source']]}, {named['kind'] or 'figure'} {named['number']}" if named else ""
    makers = next((one.recipes for one in covered(RECIPES) if one.place == place), ())
    if not makers:
        raise ParameterError("figure", name, "post1-1 to post1-20, post2-1, ..., weibull-table-6, ..., followup-10")
    maker = "cross" if len(models) > 1 and "cross" in makers else makers[0]
    own = replace(run, model=models[0], models=tuple(models), out=run.out / name, scored={})
    restore(own.out)
    made = recipe(maker).make(own)
    parts = [tuple(one for one in each if one.place == place) for each in (made.figures, made.rows, made.tables)]
    if not any(parts):
        raise ParameterError("figure", name, f"one that {maker} makes of {', '.join(map(label, models))}")
    return write(maker, Result(*parts), own, _command(["figure", name], own))


def write_pages(results: Path) -> None:
    """Write every page of all folders of results: of each recipe, of each folder, and the table of coverage."""
    for folder in sorted({path.parent.parent for path in results.glob("[!.]*/[!.]*/results.json")}):
        for path in sorted(folder.glob("[!.]*/results.json")):
            (path.parent / "README.md").write_text(page(read_results(path)), encoding="utf-8")
        (folder / "README.md").write_text(index(folder, RECIPES), encoding="utf-8")
    (results / "COVERAGE.md").write_text(coverage_page(RECIPES, results), encoding="utf-8")
    if results.resolve().is_relative_to(HERE):
        (HERE / "ITEMS.md").write_text(items_page(), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.epilog = "\n".join(f"{name:10}{what}" for name, what in RECIPES.items())
    names = (*RECIPES, "all", "figure", "list", "pages")
    parser.add_argument("recipe", choices=names, metavar="RECIPE", nargs="?", default="all")
    parser.add_argument("figure", nargs="?", metavar="NAME", help="of a figure or table, after figure")
    parser.add_argument("--model", action="append", help="may be given several times, or several with commas; or a set")
    parser.add_argument("--quick", action="store_true", help="fewer draws")
    parser.add_argument("--out", type=Path, help="folder of all results, instead of that of the tree")
    parser.add_argument(
        "--store",
        default=str(STORE),
        help=f"folder of scores that are kept ({STORE}), or the URL of a published store, which is read beside it",
    )
    args = parser.parse_args(arguments)
    if args.recipe == "list":
        print(listing())
        return 0
    if (args.recipe == "figure") != (args.figure is not None):
        parser.error("figure NAME: expected both, such as figure post1-3")
    results = args.out or (FIGURES if args.figure else RESULTS)
    if args.recipe == "pages" and not any(results.glob("[!.]*/[!.]*/results.json")):
        parser.error(f"{results} has no results of a recipe; run one first")
    models = [usual_name(one.strip()) for given in args.model or ["demo"] for one in given.split(",") if one.strip()]
    if not models:
        parser.error("--model: nothing is named; expected demo, a folder, a model of the hub, or a set")
    called = [label(one) for one in models]
    if twice := sorted({one for one in called if called.count(one) > 1}):
        parser.error(f"--model: two are called {', '.join(twice)}; name each once, folders by different names")
    of_set = [one.removeprefix("set:") for one in models if one.startswith("set:") or one == "all"]
    if args.figure and of_set:
        parser.error("figure NAME: --model names models, not a set")
    if of_set and (len(models) > 1 or of_set[0] not in sets()):
        parser.error(f"--model: expected one set alone, of {', '.join(f'set:{name}' for name in sets())}")
    recipes = {"all": list(RECIPES), "pages": []}.get(args.recipe, [args.recipe])
    if of_set and recipes and not any(one.recipe in recipes for one in sets()[of_set[0]]):
        parser.error(f"{args.recipe} is no recipe of set:{of_set[0]}")
    fetched, is_web = Fetched(), is_url(args.store)
    store = STORE if is_web else Path(args.store)
    run = Run(models[0], args.quick, results, store, tuple(models), args.store if is_web else "", fetched=fetched)
    missing: list[str] = []
    try:
        if args.figure:
            print(run_place(args.figure, models, run))
            return 0
        missing += run_set(of_set[0], recipes, run) if of_set else run_models(recipes, models, run)
        if any(results.glob("[!.]*/[!.]*/results.json")):
            write_pages(results)
        if any(store.glob("*.json")):
            write_index(store)
    except (RmtbaseError, OSError) as error:
        missing.append(f"{args.recipe}: {error}")
    finally:
        fetched.discard()
    print("\n".join(missing), end="\n" * bool(missing), file=sys.stderr)
    return 2 if missing else 0


def _stop(number: int, _: object) -> None:
    """Delete what is fetched and end at once: a download in another thread would be waited for."""
    discard_left(os.getpid())
    print("stopped; what was scored is kept", file=sys.stderr, flush=True)
    os._exit(128 + number)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    raise SystemExit(main())
