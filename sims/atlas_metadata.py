"""Title, creator and citation of the atlas, in one place for its attributes and for DataCite."""

import json
from collections.abc import Mapping
from typing import Any

ATLAS_METADATA: Mapping[str, Any] = {
    "title": "Atlas of attention heads that have learned nothing: the null of W_QK for the shapes of published models",
    "description": (
        "Monte Carlo null distributions of 16 spectral statistics of W_QK = W_Q^T W_K with independent Gaussian "
        "factors of shape (d_head, d_model), for the head shapes of published transformers and a regular grid. Each "
        "has means, standard deviations and quantiles, with sigma known and with each draw at its own estimate of it; "
        "order statistics from which two-sided p-values follow, valid and within 3 percent of the full sample's; the "
        "joint null of all statistics; the ordered eigenvalues and the density of the spectrum."
    ),
    "creator": "The rmtbase developers",
    "publisher": "The rmtbase developers",
    "publication_year": 2026,
    "version": "1.0",
    "resource_type": "Monte Carlo null distributions",
    "formats": ["application/x-netcdf"],
    "license": "BSD-3-Clause",
    "language": "en",
    "keywords": (
        "random matrix theory",
        "transformers",
        "attention heads",
        "interpretability",
        "null distribution",
        "Monte Carlo",
        "free probability",
        "Marchenko-Pastur law",
    ),
    "references": (
        "Dupic and Perez Castillo (2014), Spectral density of products of Wishart dilute random matrices, "
        "arXiv:1401.7802",
        "Phipson and Smyth (2010), Permutation p-values should never be zero, doi:10.2202/1544-6115.1585",
    ),
    "related_identifiers": (
        {"relatedIdentifier": "10.2202/1544-6115.1585", "relatedIdentifierType": "DOI", "relationType": "References"},
        {"relatedIdentifier": "arXiv:1401.7802", "relatedIdentifierType": "arXiv", "relationType": "References"},
    ),
}


def citation() -> str:
    """Return the citation of the atlas, in one line."""
    one = ATLAS_METADATA
    return f"{one['creator']} ({one['publication_year']}): {one['title']}. Version {one['version']}. Dataset."


def atlas_attributes() -> dict[str, str]:
    """Return the metadata as netCDF attributes, under CF and ACDD names where those exist."""
    one = ATLAS_METADATA
    return {
        "title": one["title"],
        "summary": one["description"],
        "creator": one["creator"],
        "publisher": one["publisher"],
        "publication_year": str(one["publication_year"]),
        "version": one["version"],
        "license": one["license"],
        "keywords": ", ".join(one["keywords"]),
        "references": "; ".join(one["references"]),
        "citation": citation(),
        "Conventions": "ACDD-1.3",
    }


def datacite(one: Mapping[str, Any] = ATLAS_METADATA) -> str:
    """Metadata of a data set as DataCite JSON: all that its schema 4 demands but the DOI, which a deposit gets."""
    record = {
        "schemaVersion": "http://datacite.org/schema/kernel-4",
        "types": {"resourceTypeGeneral": "Dataset", "resourceType": one["resource_type"]},
        "creators": [{"name": one["creator"], "nameType": "Organizational"}],
        "titles": [{"title": one["title"]}],
        "publisher": {"name": one["publisher"]},
        "publicationYear": str(one["publication_year"]),
        "subjects": [{"subject": word} for word in one["keywords"]],
        "language": one["language"],
        "version": one["version"],
        "formats": one["formats"],
        "rightsList": [
            {
                "rights": 'BSD 3-Clause "New" or "Revised" License',
                "rightsIdentifier": one["license"],
                "rightsIdentifierScheme": "SPDX",
                "rightsUri": f"https://spdx.org/licenses/{one['license']}.html",
            }
        ],
        "descriptions": [{"description": one["description"], "descriptionType": "Abstract"}],
        "relatedIdentifiers": list(one["related_identifiers"]),
    }
    if "issued" in one:
        record["dates"] = [{"date": one["issued"], "dateType": "Issued"}]
    return json.dumps(record, indent=2) + "\n"
