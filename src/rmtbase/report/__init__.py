"""Report of a result: sentences and tables in one order, for the terminal and for an HTML page."""

from rmtbase.arguments import check_public
from rmtbase.report._glossary import glossary
from rmtbase.report._rows import DETAILS, UNTESTED, Column, Heading, Item, Rows, Verbatim, print_report

__all__ = ["Column", "Heading", "Item", "Rows"]

check_public(globals())
