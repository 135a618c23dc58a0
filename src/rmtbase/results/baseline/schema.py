"""Schemas of tables of draws, which are registered where draws are made: in :mod:`rmtbase.tables`."""

from rmtbase.tables import ATLAS_SCHEMA, BASELINE_SCHEMA, ELEMENTS_SCHEMA, SPECTRA_SCHEMA

__all__ = ["ATLAS_SCHEMA", "BASELINE_SCHEMA", "ELEMENTS_SCHEMA", "SPECTRA_SCHEMA"]
