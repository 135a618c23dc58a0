"""Heads with a long row: for the terminal, for JSON and for the page."""

from operator import itemgetter

from rmtbase.results.row_norms.schema import ROW_NORMS_SCHEMA

from rmtbase.report import Column, Heading, Rows
from rmtbase.tables import rows_of
from rmtbase.words import of_tested

_FORMS = {"layer": "", "component": "", "head": "", "largest_share": ".2g", "p_value": ".2g", "q_value": ".2g"}


def report(table):
    """Yield how many heads have a long row, and the heads with the longest ones."""
    rows = [row for row in rows_of(table, ROW_NORMS_SCHEMA, "layer", "component", "head") if row["p_value"] <= 1]
    long = sum(row["q_value"] < 0.05 for row in rows)
    yield Heading.of_model(table.attrs)
    yield f"{of_tested(long, len(rows), [], 'matrix', 'of heads have a row longer than chance makes it')} (FDR 5 %)."
    columns = [Column(name.replace("_", " "), form=form, cell=itemgetter(name)) for name, form in _FORMS.items()]
    longest = sorted(rows, key=itemgetter("p_value"))[:5]
    yield Rows.of(longest, *columns, named=3, title="Heads with the longest rows")
