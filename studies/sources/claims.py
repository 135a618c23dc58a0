"""Recipe ``claims``: every headline claim of the sources, with its null and a verdict.

``claims.json`` has the claims: place, words, the quantity, the null that it must be compared with, and what decides it:

* ``erratum``: its number in ``docs/errata.md``, whose tests, ``test`` among them, fail if we are wrong: *corrected*;
  ``largest``: recipe, place and quantity of a value of the run's model to be shown beside it; ``reported``: the words
  are no quotation, because the text does not contain the claim; ``untested``: the basis of an erratum without a test;
* ``check``: a function of :mod:`studies.sources.claims_checks`; ``printed``: a number of the Weibull paper's text that
  follows from first principles: *agrees* or *differs*;
* ``row``: recipe, place and quantity of a row of another recipe for the same model, which says whether it holds, or is
  beyond its null;
* ``models`` and ``command``: a claim about checkpoints, *open* until the command has run on one of them; beside it
  stands what the run's model shows, or the erratum that says what is needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmtbase.errors import ParameterError
from studies.sources.claims_checks import CHECKS, Evidence, Found
from studies.sources.first import MILLION
from studies.sources.first_principles import checks
from studies.sources.published import published_table
from studies.sources.recipe import Null, Result, Row, Run, Table, read_results

COVERS: dict[str, str] = {}
HERE = Path(__file__).resolve().parent
CLAIMS = HERE / "claims.json"
ROOT = HERE.parents[1]
SOURCES = ("draft", "post 1", "post 2", "Weibull paper", "follow-up")
Claim = Mapping[str, Any]


def claims() -> list[Claim]:
    """Read all claims, in the order of the sources."""
    return json.loads(CLAIMS.read_text(encoding="utf-8"))


def make(run: Run) -> Result:
    evidence = Evidence(run)
    rows = tuple(_row(claim, evidence) for claim in claims())
    return Result(rows=rows, tables=(_counts(rows),))


def erratum_tests(number: int) -> dict[str, tuple[str, ...]]:
    """Find the tests of an erratum by file; an empty tuple stands for the whole file.

    Raises:
        ParameterError: the page has no such erratum, or it names no test.
    """
    page = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    section = re.search(rf"^#{{2,3}} {number}\. .*?(?=^##|\Z)", page, flags=re.MULTILINE | re.DOTALL)
    tests = section and re.search(r"^\| Test \| (.*) \|$", section[0], flags=re.MULTILINE)
    if not tests:
        raise ParameterError("erratum", number, "one of docs/errata.md, with its tests")
    file, *names = re.findall(r"`(test_\w+(?:\.py)?)`", tests[1])
    return {file: tuple(names)}


def verdict(claim: Claim, found: Found, run: Run) -> str:
    """Decide on a claim from what was found."""
    if "models" in claim and not any(run.is_of(one) for one in claim["models"]):
        return f"open: `{claim['command']}`"
    if "largest" in claim and found.holds is not False:
        return f"open: `{claim['command']}`" if found.holds is None else "agrees: reproduced"
    if "erratum" in claim:
        return f"corrected: errata, {claim['erratum']}"
    if found.holds is None:
        return f"open: `{claim['command']}`" if "command" in claim else "open"
    return "agrees: reproduced" if found.holds else "differs"


def _row(claim: Claim, evidence: Evidence) -> Row:
    found = _found(claim, evidence)
    said, note = verdict(claim, found, evidence.run), found.note
    if said.startswith("open") and found.holds is not None:
        seen = "so it is" if found.holds else "not so"
        note = f"{seen} in {evidence.run.label}" + (f"; {note}" if note else "")
    null = found.null or Null(of=claim["null"])
    words = f"({claim['words']})" if "reported" in claim else f"“{claim['words']}”"
    return Row(claim["place"], claim["quantity"], words, found.observed, null, said,
               claim.get("convention", ""), note)  # fmt: skip


def _found(claim: Claim, evidence: Evidence) -> Found:
    if "erratum" in claim:
        ((file, names),) = erratum_tests(claim["erratum"]).items()
        name = claim.get("test", names[0] if names else "")
        seen, holds = _largest(claim["largest"], evidence.run) if "largest" in claim else ("", None)
        whose = f"errata, {claim['erratum']}: " if "models" in claim else ""
        if "untested" in claim:
            return Found(note=f"{whose}{claim['untested']}, which no test shows")
        return Found(holds=holds, note=f"{whose}tests/errata/{file}{': ' + name if name else ''}{seen}")
    if "check" in claim:
        return CHECKS[claim["check"]](evidence)
    if "printed" in claim:
        one = next(one for one in checks(published_table("weibull-text")) if one.row == claim["printed"])
        expected = one.expected.interval
        return Found(one.printed, Null(expected.middle, of="exact"), one.agrees, one.expected.basis)
    if "row" not in claim:
        return Found()
    recipe, place, quantity = claim["row"]
    return _found_by_recipe(recipe, place, quantity, evidence.run)


def _largest(where: tuple[str, str, str], run: Run) -> tuple[str, bool | None]:
    """Largest values that another recipe found for the run's own model, on each convention; empty if it was not run.

    The second value is True if one of them is a million or more; None if the recipe was not run.
    """
    recipe, place, quantity = where
    rows = _rows_of(recipe, run)
    found = [one for one in rows or () if one["place"] == place and quantity in one["quantity"]]
    if not found:
        return "", None
    observed = (f"{one['observed']:.4g} of {one['convention']}" for one in found)
    return f"; {quantity} of {run.label}: {', '.join(observed)}", any(one["observed"] >= MILLION for one in found)


def _rows_of(recipe: str, run: Run) -> list[dict[str, Any]] | None:
    path = run.out.parent / recipe / "results.json"
    return read_results(path)["rows"] if path.is_file() else None


def _found_by_recipe(recipe: str, place: str, quantity: str, run: Run) -> Found:
    """Read what another recipe has written for the same model, beside this one's folder."""
    rows = _rows_of(recipe, run)
    if rows is None:
        return Found(None, note=f"run the recipe {recipe} first")
    row = next((one for one in rows if (one["place"], one["quantity"]) == (place, quantity)), None)
    if row is None:
        return Found(None, note=f"the recipe {recipe} did not find it")
    null = None if row["null"] is None else Null(**row["null"])
    said, holds = row["verdict"], None
    if null is not None and null.high is not None and row["observed"] is not None:
        holds = row["observed"] > null.high
    elif said.startswith(("agrees", "differs")) or said.endswith(("it holds", "it does not hold")):
        holds = said.startswith("agrees") or said.endswith("it holds")
    return Found(row["observed"], null, holds, f"recipe {recipe}")


def _counts(rows: tuple[Row, ...]) -> Table:
    """Count the claims of each source by verdict."""
    verdicts = ("agrees", "differs", "corrected", "open")
    counts = {source: [0] * len(verdicts) for source in SOURCES}
    for row in rows:
        source = next(one for one in SOURCES if row.place.startswith(one))
        counts[source][next(k for k, one in enumerate(verdicts) if row.verdict.startswith(one))] += 1
    total = [sum(column) for column in zip(*counts.values(), strict=True)]
    cells = [(source, *values, sum(values)) for source, values in counts.items()]
    return Table(
        "claims", ("source", *verdicts, "all"), (*cells, ("all", *total, sum(total))),
        "*Agrees*: reproduced. *Differs*: the computation beside it says otherwise. *Corrected*: an erratum whose test "
        "fails if we are wrong, but where it is said that none shows it. *Open*: about checkpoints that are not here; "
        "the command decides it.", "all sources",
    )  # fmt: skip
