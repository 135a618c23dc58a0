"""HTML page of a result: its sentences, figures and tables in one file that needs no network."""

import base64
import datetime
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any

import xarray as xr
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rmtbase.drawing.layout import FigureRecipe
from rmtbase.drawing.svg import css_values, inline_figures
from rmtbase.drawing.theme import DARK, LIGHT
from rmtbase.report._glossary import Glossary
from rmtbase.report._rows import DETAILS, Heading, Item, Rows, Verbatim
from rmtbase.shown import shown
from rmtbase.terminal.environment import page_date

_LONGEST = 100_000  # largest number of characters in one text


def render_page(
    table: xr.Dataset | xr.DataTree,
    items: Iterable[Item],
    recipes: Callable[[Any], Mapping[str, FigureRecipe]] | None = None,
    *,
    date: datetime.date | None = None,
) -> str:
    """Render a result as one HTML page: its first sentence, its figures, then its other sentences and its tables."""
    listed = list(items)
    title = next((item for item in listed if isinstance(item, Heading)), Heading(table.attrs["kind"]))
    rest = [item for item in listed if item is not title]
    end = next((place for place, item in enumerate(rest) if item is DETAILS), 0)
    answer, details = rest[:end], rest[end + 1 :] if end else rest
    lead = next((item for item in rest if type(item) is str), "")
    kinds = {Rows: "rows", Heading: "heading", Verbatim: "verbatim"}
    answer, details = (
        [(kinds.get(type(item), "sentence"), item) for item in items if item is not lead] for items in (answer, details)
    )
    svgs = {} if recipes is None else inline_figures(recipes(table), _in_words)
    return (
        environment()
        .get_template("report.html")
        .render(
            **frame(date),
            attrs=table.attrs,
            title=title,
            kicker=_in_words(str(table.attrs["kind"])),
            lead=lead,
            answer=answer,
            details=details,
            figures=[{"name": name, "title": _in_words(name), "svg": svg} for name, svg in svgs.items()],
            warnings=json.loads(table.attrs.get("warnings", "[]")),
        )
    )


def frame(date: datetime.date | None = None, script: str = "") -> dict[str, Any]:
    """Return the variables of ``base.html``, which every page extends: date, styles, and a script with its digest."""
    return {
        "date": (date or page_date()).isoformat(),
        "light": css_values(LIGHT),
        "dark": css_values(DARK),
        "n_colours": len(LIGHT.diverging),
        "css": Markup(files("rmtbase.report").joinpath("templates", "page.css").read_text(encoding="utf-8")),
        "script": Markup(script),
        "script_digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }


def environment(package: str | None = None) -> Environment:
    """Return an environment with the templates of every page, and of a package; inserted text is made harmless."""
    loaders = [PackageLoader(name) for name in (package, "rmtbase.report") if name is not None]
    made = Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else shown(value, _LONGEST),
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False, "ensure_ascii": False}
    made.filters["shown"] = shown
    made.globals["glossary"] = glossary = Glossary()
    made.filters["terms"] = glossary.link
    return made


def _in_words(name: str) -> str:
    words = name.replace("-", " ").replace("_", " ")
    return words[:1].upper() + words[1:]
