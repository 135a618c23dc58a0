"""Make the metadata with which the software, the atlas and the constants are deposited, each from one source.

    python sims/make_metadata.py            write
    python sims/make_metadata.py --check    tell what has parted from its source

``CITATION.cff`` is the source of ``.zenodo.json`` (Zenodo's, read when it archives a release); the atlas and the
constants have theirs in ``atlas_metadata.py`` and here, and become DataCite JSON. None holds a DOI: the repository that
takes the deposit gives it. ``docs/constants-releases.md`` says where it is then written.
"""

import argparse
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from atlas_metadata import ATLAS_METADATA, datacite

from rmtbase.constants import ConstantSet, bibliography, sets
from rmtbase.tables import write_bytes

ROOT = Path(__file__).parents[1]
_PACKAGE = ROOT / "src" / "rmtbase"


def constants_metadata(of_set: ConstantSet) -> dict[str, Any]:
    """Metadata of a released set, with the keys of ``ATLAS_METADATA``; counts and date come from the record."""
    numbers, functions = len(of_set.record["constants"]), len(of_set.record["functions"])
    enclosed = sum("enclosure" in one for one in of_set.record["constants"].values())
    cited = {key for one in (*of_set.constants(), *of_set.functions()) for key in one.references}
    literature = [one for key, one in bibliography().items() if key in cited]
    return {
        **{name: ATLAS_METADATA[name] for name in ("creator", "publisher", "license", "language")},
        "title": f"Constants of random matrices that have learned nothing: {of_set.name}",
        "description": (
            f"{numbers} constants of random-matrix baselines for transformer weights, each with identifier, "
            f"definition, conditions, uncertainty and up to 100 digits, {enclosed} of them with a lower and an upper "
            f"bound proved in ball arithmetic; and {functions} functions of the shape of an attention head "
            f"with values at two shapes. Released on {of_set.date}; "
            f"SHA-256 of the record without its bounds: {of_set.sha256}."
        ),
        "publication_year": int(of_set.date[:4]),
        "issued": of_set.date,
        "version": of_set.name,
        "resource_type": "Mathematical constants",
        "formats": ["application/json"],
        "keywords": (
            "random matrix theory",
            "mathematical constants",
            "Tracy-Widom law",
            "Marchenko-Pastur law",
            "Weibull law",
            "transformers",
            "interval arithmetic",
        ),
        "related_identifiers": tuple(
            {
                "relatedIdentifier": one.fields.get("doi") or f"arXiv:{one.fields['eprint']}",
                "relatedIdentifierType": "DOI" if "doi" in one.fields else "arXiv",
                "relationType": "References",
            }
            for one in literature
            if one.link
        ),
    }


def zenodo() -> str:
    """``.zenodo.json`` of ``CITATION.cff`` and the version of ``pyproject.toml``."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    record: Mapping[str, Any] = {
        "title": citation["title"],
        "upload_type": "software",
        "description": citation["abstract"],
        "creators": [{"name": _name(author)} for author in citation["authors"]],
        "version": project["version"],
        "license": citation["license"],
        "access_right": "open",
        "language": "eng",
        "keywords": citation["keywords"],
    }
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def _name(author: Mapping[str, str]) -> str:
    return author.get("name") or f"{author['family-names']}, {author['given-names']}"


def every_file() -> dict[Path, str]:
    """Content that each file should have."""
    made = {ROOT / ".zenodo.json": zenodo(), _PACKAGE / "nulls" / "atlas" / "datacite.json": datacite()}
    for name, one in sets().items():
        made[_PACKAGE / "constants" / f"{name}.datacite.json"] = datacite(constants_metadata(one))
    return made


def parted() -> list[str]:
    """Names of files that do not hold what their source says."""
    return [
        str(path.relative_to(ROOT))
        for path, text in every_file().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]


def main() -> None:
    """Parse the command line; write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file has parted")
    options = parser.parse_args()
    if options.check:
        if names := parted():
            raise SystemExit(f"parted from their source: {', '.join(names)}; run sims/make_metadata.py")
        return
    for path, text in every_file().items():
        write_bytes(text.encode(), path)
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
