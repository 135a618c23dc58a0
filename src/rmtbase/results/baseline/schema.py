"""Schemas of tables of draws, which :mod:`rmtbase.tables` defines and registers."""

from rmtbase.tables import ATLAS_SCHEMA, BASELINE_SCHEMA, ELEMENTS_SCHEMA, SPECTRA_SCHEMA

__all__ = ["ATLAS_SCHEMA", "BASELINE_SCHEMA", "ELEMENTS_SCHEMA", "SPECTRA_SCHEMA"]
