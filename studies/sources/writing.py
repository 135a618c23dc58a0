"""The files of a recipe: its figures, ``results.json`` with every row, and ``README.md`` made of it."""

import json
import math
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmtbase.drawing.figure import save
from rmtbase.results.trajectory.figures._animation import Animation, save_animation
from rmtbase.tables import software_versions, write_bytes
from studies.sources.recipe import Figure, Null, Result, Row, Run, Table, label, read_results
from studies.sources.verdicts import Finding, Standing, Verdict, unresolved, words

DPI = 80
DIGITS = 6
"""Significant digits of numbers in results.json: enough to compare, few enough to be the same on other machines."""
_NAN = re.compile(r"\bnan\b")
PACKAGES = ("rmtbase", "numpy", "scipy", "jax", "matplotlib")


def write(recipe: str, result: Result, run: Run, command: str) -> Path:
    """Write all files of a recipe, in place of the folder of the run with all that it had; returns the folder.

    They are written beside it first, so that a run that is killed leaves either the former files or the new ones.
    """
    new, old = (run.out.with_name(f".{run.out.name}.{state}") for state in ("new", "old"))
    run.out.parent.mkdir(parents=True, exist_ok=True)
    restore(run.out)
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    files = {figure.name: write_figure(figure, new) for figure in result.figures}
    results = as_json(recipe, result, run, command, files)
    text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
    write_bytes(f"{text}\n".encode(), new / "results.json")
    (new / "README.md").write_text(page(results), encoding="utf-8")
    if run.out.exists():
        run.out.rename(old)
    new.rename(run.out)
    shutil.rmtree(old, ignore_errors=True)
    return run.out


def restore(folder: Path) -> None:
    """Put a folder back if a run was killed between taking it away and putting the new one there."""
    old = folder.with_name(f".{folder.name}.old")
    if old.exists() and not folder.exists():
        old.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def as_json(recipe: str, result: Result, run: Run, command: str, files: Mapping[str, str]) -> dict[str, Any]:
    """Everything that a recipe found, as plain values."""
    return {
        "recipe": recipe,
        "command": command,
        "model": [label(model) for model in run.models or (run.model,)],
        **({"weights": dict(sorted(run.scored.items()))} if run.scored else {}),
        "quick": run.quick,
        "conventions": {"λ": "eigenvalues λ = s² of W_QKᵀ W_QK", "s": "singular values of W_QK"},
        "software": software_versions(*PACKAGES),
        **({"summary": list(result.summary)} if result.summary else {}),
        "rows": [_row(row) for row in result.rows],
        "figures": [
            {"name": one.name, "file": files[one.name], "place": one.place, "caption": one.caption}
            for one in result.figures
        ],
        "tables": [_table(one) for one in result.tables],
    }


def page(results: Mapping[str, Any]) -> str:
    """Write the page of a recipe in Markdown, from nothing but its ``results.json``."""
    lines = [f"# {results['recipe']}: {', '.join(results['model'])}", "", "Written by"]
    lines += ["", f"    {results['command']}", ""]
    lines += [line for paragraph in results.get("summary", ()) for line in (paragraph, "")]
    if results["rows"]:
        lines += ["## Published, observed, null", ""]
        lines += ["λ: of eigenvalues λ = s². s: of singular values. A null is of weights that learned nothing.", ""]
        heads = ("place", "quantity", "", "published", "observed", "null", "verdict")
        lines += _markdown(heads, [_cells(row) for row in results["rows"]])
    for table in results["tables"]:
        lines += ["", f"## {table['place']}", "", table["caption"], ""]
        lines += _markdown(table["columns"], [[_shown(cell) for cell in row] for row in table["rows"]])
    if results["figures"]:
        lines += ["", "## Figures"]
        for figure in results["figures"]:
            lines += ["", f"**{figure['place']}.** {figure['caption']}", "", f"![{figure['place']}]({figure['file']})"]
    return "\n".join(lines) + "\n"


def index(folder: Path, recipes: Mapping[str, str]) -> str:
    """Write the page of all results of a model in Markdown: first answers, then each recipe with its verdicts."""
    held = {
        name: read_results(folder / name / "results.json")
        for name in recipes
        if (folder / name / "results.json").is_file()
    }
    lines = ["# The sources made again: results", ""]
    for paragraph in held.get("first", {}).get("summary", ()):
        lines += [paragraph, ""]
    columns = verdict_columns()
    heads = ("recipe", "what", "model", "figures", "tables", *columns)
    rows = []
    for name, results in held.items():
        counted = [_column(row) for row in results["rows"]]
        counts = [
            str(len(results["figures"])),
            str(len(results["tables"])),
            *(str(counted.count(one)) for one in columns),
        ]
        rows.append([f"[{name}]({name}/README.md)", recipes[name], ", ".join(results["model"]), *counts])
    return "\n".join([*lines, *_markdown(heads, rows)]) + "\n"


def verdict_columns() -> tuple[str, ...]:
    """Headings of the counts of verdicts: the findings of what is decided, then the other standings."""
    return (*(one.value for one in Finding), *(one.value for one in Standing if one is not Standing.DECIDED))


def _column(row: Mapping[str, Any]) -> str:
    """Heading under which a row is counted."""
    return row["finding"] if row["standing"] == Standing.DECIDED.value else row["standing"]


def write_figure(figure: Figure, folder: Path) -> str:
    """Write a figure or an animation into a folder, over a file of its name; returns that."""
    name = f"{figure.name}{'.gif' if isinstance(figure.figure, Animation) else '.png'}"
    if isinstance(figure.figure, Animation):
        save_animation(figure.figure, folder / name, overwrite=True)
    else:
        save(figure.figure, folder / name, dpi=DPI, overwrite=True)
    return name


def _row(row: Row) -> dict[str, Any]:
    """Convert a row to plain values; if nothing could be computed, nothing is said to agree or to differ."""
    unknown = row.observed is not None and _plain(row.observed) is None
    verdict = _of_nothing(row.verdict) if unknown else row.verdict
    return {
        "place": row.place,
        "quantity": row.quantity,
        "convention": row.convention,
        "published": _plain(row.published),
        "observed": _plain(row.observed),
        "null": None if row.null is None else _null(row.null),
        "verdict": words(verdict),
        **_verdict(verdict),
        "note": _NAN.sub("–", row.note),
    }


def _of_nothing(verdict: Verdict) -> Verdict:
    """Verdict of a row whose number is not to be computed."""
    if verdict.standing is Standing.CORRECTED:
        return unresolved("not to be computed of this model")
    return replace(verdict, finding=verdict.finding and Finding.CANNOT_TELL)


def _verdict(verdict: Verdict) -> dict[str, str | None]:
    """Convert a verdict to plain values, beside its words."""
    return {
        "standing": verdict.standing.value,
        "finding": verdict.finding and verdict.finding.value,
        "kind": verdict.kind and verdict.kind.value,
    }


def _null(null: Null) -> dict[str, Any]:
    return {name: _plain(value) for name, value in null._asdict().items() if value not in (None, "")}


def _table(table: Table) -> dict[str, Any]:
    rows = [[_plain(cell) for cell in row] for row in table.rows]
    return table._asdict() | {"columns": list(table.columns), "rows": rows}


def _plain(value: Any) -> float | int | str | None:
    """Round a number, and keep words; None if it is not finite."""
    if isinstance(value, str):
        return None if _NAN.search(value) else value
    if value is None or isinstance(value, bool):
        return value
    number = float(value)
    if not math.isfinite(number):
        return None
    return int(number) if number == int(number) and abs(number) < 1e15 else float(f"{number:.{DIGITS}g}")


def _cells(row: Mapping[str, Any]) -> list[str]:
    note = f": {row['note']}" if row["note"] else ""
    null = "–" if row["null"] is None else _null_words(row["null"])
    values = [_shown(row[name]) for name in ("published", "observed")]
    return [row["place"], row["quantity"], row["convention"], *values, null, f"**{row['verdict']}**{note}"]


def _null_words(null: Mapping[str, Any]) -> str:
    words = _shown(null["mean"]) if "mean" in null else ""
    words += f" ± {_shown(null['sd'], 2)}" if "sd" in null else ""
    if "low" in null and "high" in null:
        words += f" [{_shown(null['low'])}, {_shown(null['high'])}]"
    return f"{words} ({null['of']})".strip() if "of" in null else words.strip()


def _shown(value: Any, digits: int = 4) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return f"{value:.{digits}g}" if isinstance(value, float) or abs(value) >= 10**7 else str(value)


def _markdown(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    heads = list(heads)
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
