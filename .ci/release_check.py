"""Check that every file states the same version, and print its changes; run by the tests and before a release.

python .ci/release_check.py                 pyproject.toml, CITATION.cff and the recipe say one version
python .ci/release_check.py v0.2.0          and it is that of the tag, with a dated heading in CHANGELOG.md
python .ci/release_check.py v0.2.0 --notes  the changes of that version, as CHANGELOG.md has them
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_TAG = re.compile(r"v(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)", re.ASCII)
_HEADING = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d{2}-\d{2}))?$", re.MULTILINE)


def versions(root: Path = ROOT) -> dict[str, str]:
    """Version stated in each file, by file name."""
    found = {"pyproject.toml": tomllib.loads(_text(root, "pyproject.toml"))["project"]["version"]}
    for name, pattern in (
        ("CITATION.cff", r"^version: (\S+)$"),
        ("conda/recipe/recipe.yaml", r"^  version: \"?([^\s\"]+)\"?$"),
    ):
        said = re.findall(pattern, _text(root, name), flags=re.MULTILINE)
        found[name] = said[0] if len(said) == 1 else f"{len(said)} versions"
    return found


def changes(root: Path = ROOT) -> dict[str, tuple[str, str]]:
    """Date ("" if undated) and changes of each version of the changelog, in its order."""
    text = _text(root, "CHANGELOG.md")
    headings = list(_HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    return {
        heading[1]: (heading[2] or "", text[heading.end() : end].strip())
        for heading, end in zip(headings, ends, strict=True)
    }


def faults(tag: str | None = None, root: Path = ROOT) -> list[str]:
    """List what prevents a release with that tag; without a tag, list what does not agree."""
    said, logged = versions(root), changes(root)
    version = said["pyproject.toml"]
    found = [f"{name} says {other}, pyproject.toml {version}" for name, other in said.items() if other != version]
    if version not in logged:
        found.append(f"CHANGELOG.md has no heading ## [{version}]")
    headed = [heading[1] for heading in _HEADING.finditer(_text(root, "CHANGELOG.md"))]
    found += [f"CHANGELOG.md has ## [{one}] {headed.count(one)} times" for one in logged if headed.count(one) > 1]
    if list(logged) != list(dict.fromkeys(["Unreleased", *logged])):
        found.append("CHANGELOG.md does not begin with ## [Unreleased]")
    if tag is None:
        return found
    wanted = _TAG.fullmatch(tag)
    if wanted is None:
        return [*found, f"the tag is {tag}; expected vX.Y.Z"]
    if wanted[1] != version:
        found.append(f"the tag is {tag}, pyproject.toml says {version}")
    date, text = logged.get(wanted[1], ("", ""))
    if not date:
        found.append(f"CHANGELOG.md has no dated heading ## [{wanted[1]}] - YYYY-MM-DD")
    if not text:
        found.append(f"CHANGELOG.md says nothing of {wanted[1]}")
    if logged.get("Unreleased", ("", ""))[1]:
        found.append(f"changes of CHANGELOG.md are under Unreleased still: move them to {wanted[1]}")
    return found


def _text(root: Path, name: str) -> str:
    return (root / name).read_text(encoding="utf-8")


def main() -> int:
    """Print the faults, or the changes; the status to leave with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tag", nargs="?")
    parser.add_argument("--notes", action="store_true")
    arguments = parser.parse_args()
    if arguments.notes and arguments.tag is None:
        parser.error("--notes are of a tag: name it")
    found = faults(arguments.tag)
    for fault in found:
        print(f"release_check: {fault}", file=sys.stderr)
    if not found and arguments.notes:
        print(changes()[arguments.tag.removeprefix("v")][1])
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
