"""Recipe ``claims``: every headline claim of the sources, with its null and a verdict.

``claims.json`` has the claims: place, words, the quantity, the null that it must be compared with, and what decides it:

* ``row``: recipe, place and quantity of a row that a recipe makes of the same model; the claim has its verdict.
  ``{model}`` in a quantity is the model's label;
* ``check``: a function of :mod:`studies.sources.claims_laws`, which needs no model, or of
  :mod:`studies.sources.claims_checks`; ``printed``: a number of the Weibull paper's text that follows from first
  principles;
* ``erratum``: its number in ``docs/errata.md``, whose tests, ``test`` among them, fail if we are wrong: *corrected*;
  ``reported``: the words are no quotation, because the text does not contain the claim; ``untested``: the basis of an
  erratum without a test. Beside a ``row`` it is only named;
* ``models`` and ``command``: a claim about checkpoints is *open* until a run has all of these (``posts`` or ``Weibull
  paper``: all models of that source); the command is such a run. Beside it stands what a model of another kind shows.

Whether a claim holds is decided by :func:`studies.sources.verdicts.decide`, here as in every recipe.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmtbase.errors import ParameterError
from studies.sources import cross, first, post1_rows, post2_rows, training, weibull
from studies.sources.claims_checks import CHECKS, Evidence
from studies.sources.claims_laws import LAWS, Found
from studies.sources.first_principles import checks
from studies.sources.manifests import cohort_name, models_of
from studies.sources.published import printed_interval, published_table
from studies.sources.recipe import Null, Result, Row, Run, Table, hub_id
from studies.sources.verdicts import Claim, Finding, Kind, Standing, Verdict, corrected, decided

COVERS: dict[str, str] = {}
HERE = Path(__file__).resolve().parent
CLAIMS = HERE / "claims.json"
ROOT = HERE.parents[1]
SOURCES = ("draft", "post 1", "post 2", "Weibull paper", "follow-up")
OF_SET = {
    **dict.fromkeys(("post1", "post2"), ("post 1", "post 2")),
    **dict.fromkeys(("weibull", "pythia"), ("Weibull paper",)),
}
"""Sources whose claims the sets that compare models close."""
Stated = Mapping[str, Any]
ROWS: Mapping[str, Callable[[Run], Sequence[Row]]] = {
    "first": first.rows_of,
    "post1": post1_rows.rows_of,
    "post2": post2_rows.rows_of,
    "cross": cross.rows_of,
    "weibull": weibull.rows_of,
    "training": training.rows_of,
}
"""Rows of each recipe whose verdicts claims have."""


def claims() -> list[Stated]:
    """Read all claims, in the order of the sources."""
    return json.loads(CLAIMS.read_text(encoding="utf-8"))


def make(run: Run) -> Result:
    rows = tuple(rows_of(run))
    return Result(rows=rows, tables=(_counts(rows),))


def rows_of(run: Run) -> list[Row]:
    """Every claim with its verdict."""
    gathered = _Gathered()
    return [_row(claim, run, gathered) for claim in claims()]


def needed(claim: Stated) -> tuple[str, ...]:
    """Hub ids of the models that a claim is about."""
    models = claim.get("models", ())
    return models_of(models) if isinstance(models, str) else tuple(models)


def closing(claim: Stated, run: Run) -> Run | None:
    """Run of exactly the models that a claim is about, in its order; None if the run lacks one of them.

    A comparison of the models of a source closes the claims of that source, and reads for no others.
    """
    cohort = cohort_name(run.models)
    if cohort is not None and not claim["place"].startswith(OF_SET[cohort]):
        return None
    of_run = {hub_id(model.partition("@")[0]): model for model in run.models or (run.model,)}
    wanted = [hub_id(model) for model in needed(claim)]
    if not wanted or not of_run.keys() >= {*wanted}:
        return None
    models = tuple(of_run[model] for model in wanted)
    return replace(run, model=models[0], models=models)


def reads(claim: Stated) -> str:
    """Recipe whose readings of a checkpoint decide a claim; "" if it needs none."""
    if "row" in claim:
        return claim["row"][0]
    return CHECKS[claim["check"]][0] if claim.get("check") in CHECKS else ""


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


class _Gathered:
    """Rows of recipes and evidence of models, each made once."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, tuple[str, ...]], list[Row]] = {}
        self._evidence: dict[tuple[str, ...], Evidence] = {}

    def row(self, claim: Stated, run: Run) -> Row | None:
        """Row of a recipe, on the claim's convention; None if the recipe does not make it of these models."""
        recipe, place, quantity = claim["row"]
        models = run.models or (run.model,)
        if (recipe, models) not in self._rows:
            self._rows[recipe, models] = list(ROWS[recipe](run))
        words = quantity.format(model=run.label)
        rows = [row for row in self._rows[recipe, models] if (row.place, row.quantity) == (place, words)]
        own = [row for row in rows if row.convention == claim.get("convention", row.convention)]
        return next(iter(own), None)

    def evidence(self, run: Run) -> Evidence:
        return self._evidence.setdefault(run.models or (run.model,), Evidence(run))


def _row(claim: Stated, run: Run, gathered: _Gathered) -> Row:
    words = f"({claim['words']})" if "reported" in claim else f"“{claim['words']}”"
    own = closing(claim, run)
    shows = own or (run if _is_beside(claim, run) else None)
    found, standing = Found(), None
    if "row" in claim and shows is not None:
        row = gathered.row(claim, shows)
        if row is not None:
            found, standing = Found(row.observed, row.null, None, row.note), row.verdict
        else:
            found, standing = Found(note=f"the recipe {claim['row'][0]} does not show it"), _cannot_tell()
    elif "check" in claim and (claim["check"] in LAWS or shows is not None):
        check = claim["check"]
        found = LAWS[check]() if check in LAWS else CHECKS[check][1](gathered.evidence(shows or run))
        standing = decided(found.claim) if found.claim is not None else _cannot_tell()
    elif "printed" in claim:
        found = _printed(claim["printed"])
        assert found.claim is not None  # it is a number
        standing = decided(found.claim)
    note = _with_erratum(claim, found.note)
    if "row" not in claim and "erratum" in claim:
        said = corrected(f"errata, {claim['erratum']}")
    elif "models" in claim and own is None:
        finding, kind = (None, None) if standing is None else (standing.finding, standing.kind)
        said = Verdict(Standing.OPEN, finding, kind, f"`{claim['command']}`")
    else:
        assert standing is not None  # a claim without models needs none
        said = corrected(standing.detail) if standing.standing is Standing.CORRECTED else _settled(standing)
    null = found.null or Null(of=claim["null"])
    convention = claim.get("convention", "")
    return Row(claim["place"], claim["quantity"], words, found.observed, null, said, convention, note)


def _is_beside(claim: Stated, run: Run) -> bool:
    """Return True if a run that lacks the claim's models shows it of its own: the demo, or a folder.

    Of the hub's models only what closes a claim is read, so that nothing is fetched for show.
    """
    return "models" not in claim or all(run.is_here(model) for model in run.models or (run.model,))


def _cannot_tell() -> Verdict:
    return Verdict(Standing.DECIDED, Finding.CANNOT_TELL)


def _settled(verdict: Verdict) -> Verdict:
    """Verdict of the model that a claim is about, or of none: what a recipe says needs more models is decided here."""
    return Verdict(Standing.DECIDED, verdict.finding or Finding.CANNOT_TELL, verdict.kind)


def _with_erratum(claim: Stated, note: str) -> str:
    """Add an erratum with its test to a note."""
    if "erratum" not in claim:
        return note
    ((file, names),) = erratum_tests(claim["erratum"]).items()
    name = claim.get("test", names[0] if names else "")
    shown = f"tests/errata/{file}{': ' + name if name else ''}"
    if "untested" in claim:
        shown = f"{claim['untested']}, which no test shows"
    if "row" in claim:
        shown = f"errata, {claim['erratum']}: {shown}"
    return f"{note}; {shown}" if note else shown


def _printed(row: str) -> Found:
    """Compare a printed number with what follows from first principles, up to the rounding of both."""
    check = next(check for check in checks(published_table("weibull-text")) if check.row == row)
    expected, printed = check.expected.interval, printed_interval(check.printed)
    assert printed is not None  # it is a number
    half = 0.5 * (expected.high - expected.low) + 1e-12 * max(map(abs, (*expected, *printed)))
    claim = Claim(Kind.LAW, expected.middle, low=printed.low - half, high=printed.high + half)
    return Found(check.printed, Null(expected.middle, of="exact"), claim, check.expected.basis)


def _counts(rows: tuple[Row, ...]) -> Table:
    """Count the claims of each source by verdict."""
    columns = (*(finding.value for finding in Finding), Standing.CORRECTED.value, Standing.OPEN.value)
    counts = {source: [0] * len(columns) for source in SOURCES}
    for row in rows:
        source = next(source for source in SOURCES if row.place.startswith(source))
        is_decided = row.verdict.standing is Standing.DECIDED and row.verdict.finding is not None
        counted = row.verdict.finding.value if is_decided else row.verdict.standing.value
        counts[source][columns.index(counted)] += 1
    total = [sum(column) for column in zip(*counts.values(), strict=True)]
    cells = [(source, *values, sum(values)) for source, values in counts.items()]
    return Table(
        "claims", ("source", *columns, "all"), (*cells, ("all", *total, sum(total))),
        "*Agrees*: learned structure lies beyond its null, an equality within its margin. *Differs*: the computation "
        "beside it says otherwise. *Cannot tell*: neither. *Corrected*: an erratum whose test fails if we are wrong, "
        "but where it is said that none shows it. *Open*: about checkpoints that are not here; the command decides it.",
        "all sources",
    )  # fmt: skip
