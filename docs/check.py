"""Check the built site: ``python docs/check.py build/site``, with ``--browser`` also each page in Chromium.

Completeness: every public name, command, option, variable of a file and constant has its place.

Links: every link within the site, and every anchor, leads to something. In Chromium, for each page: no request to
another host, no error on the console, every formula typeset, no sideways scroll at 360 px and at 1600 px, contrast of
text by WCAG 2 (4.5, for large letters 3) in light and in dark, and by the Tab key only a visible focus that moves down
the page. ``--json FILE`` keeps what was measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from _complete import missing


class _Page(HTMLParser):
    """The links of a page, and what links can lead to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what the tag links to and what it is called."""
        for name, value in attrs:
            if value and (name == "id" or (name == "name" and tag == "a")):
                self.anchors.add(value)
            elif value and name in ("href", "src"):
                self.links.append(value)


def pages_of(site: Path) -> list[str]:
    """Every page, by its path within the site."""
    return sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if "_static" not in path.parts)


def dead_links(site: Path) -> tuple[list[str], set[str]]:
    """List dead links, each with its page, and return the links to other hosts."""
    pages = {name: _Page((site / name).read_text(encoding="utf-8")) for name in pages_of(site)}
    dead, foreign = [], set()
    for name, page in pages.items():
        for link in page.links:
            if urlsplit(link).scheme in ("http", "https", "mailto"):
                foreign.add(link)
                continue
            if urlsplit(link).scheme == "data":
                continue
            target, anchor = urldefrag(urljoin(name, link))
            target = unquote(urlsplit(target).path)
            if not (site / target).is_file():
                dead.append(f"{name}: {link}: no such file")
            elif (
                anchor and target in pages and unquote(anchor) not in pages[target].anchors and target != "search.html"
            ):
                dead.append(f"{name}: {link}: no such anchor")
    return dead, foreign


def main() -> int:
    """Run the command line; return 1 if a fault was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--browser", action="store_true", help="also open every page in Chromium")
    parser.add_argument("--json", type=Path, help="where to keep what was measured")
    options = parser.parse_args()
    faults, foreign = dead_links(options.site)
    faults += missing(options.site)
    print(f"{len(pages_of(options.site))} pages; links to other hosts: {len(foreign)}", *sorted(foreign), sep="\n  ")
    if options.browser:
        from _browser import examine

        measured = asyncio.run(examine(options.site, pages_of(options.site)))
        faults += [fault for page in measured["pages"].values() for fault in page["faults"]]
        print(measured["summary"])
        if options.json:
            options.json.write_text(json.dumps(measured, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(*faults, f"{len(faults)} faults", sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
