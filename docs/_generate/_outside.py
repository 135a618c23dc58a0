"""Pages of the repository beside docs (studies, benchmarks, examples) that pages link to: as pages of the site, too."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _generate import FOLDER, HERE, write_page

_ROOT = HERE.parent
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")
_CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def write_outside() -> None:
    """Write a copy of each such page, and of those that it links to."""
    todo = [page for path in HERE.rglob("*.md") if FOLDER not in path.parents for page in _linked(path)]
    done: set[Path] = set()
    while todo:
        path = todo.pop()
        if path not in done:
            done.add(path)
            todo += _linked(path)
            copy = _copy_of(path)
            text = _with_links(path.read_text(encoding="utf-8"), path.parent, copy.parent)
            write_page(copy.relative_to(FOLDER).as_posix(), f"---\norphan: true\n---\n\n{text}")


def link_to_copies(app: Any, docname: str, source: list[str]) -> None:
    """Redirect links that leave ``docs`` from a page of ``docs`` to the copies."""
    path = Path(app.env.doc2path(docname))
    if path.suffix == ".md" and FOLDER not in path.parents:
        source[0] = _with_links(source[0], path.parent, path.parent)


def _linked(path: Path) -> list[Path]:
    found = [(path.parent / link[2]).resolve() for link in _LINK.findall(path.read_text(encoding="utf-8"))]
    return [page for page in found if page.suffix == ".md" and page.is_file() and HERE not in page.parents]


def _copy_of(path: Path) -> Path:
    return FOLDER / "outside" / path.relative_to(_ROOT)


def _with_links(text: str, here: Path, place: Path) -> str:
    """Rewrite the links of a text that stands in one folder, for a page in another."""
    parts = _CODE.split(text)
    parts[::2] = [_LINK.sub(_moved(here, place), part) for part in parts[::2]]
    return "".join(parts)


def _moved(here: Path, place: Path) -> Callable[[re.Match[str]], str]:
    def moved(link: re.Match[str]) -> str:
        image, words, target, part = link[1], link[2], link[3], link[4] or ""
        path = (here / target).resolve()
        if "://" in target or not path.exists() or (here == place and HERE in path.parents):
            return link[0]
        if path.suffix == ".md" and HERE not in path.parents:
            path = _copy_of(path)
        elif path.suffix == ".ipynb":
            path = FOLDER / "tutorials" / path.name
        elif path.is_dir():
            return words
        return f"{image}[{words}]({Path(os.path.relpath(path, place)).as_posix()}{part})"

    return moved
