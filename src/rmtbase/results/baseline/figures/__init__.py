"""Figures of baselines, spectra and elements of random matrices."""

from rmtbase.results.baseline.figures._baseline import ensemble_spectrum, figure_recipes
from rmtbase.results.baseline.figures._baseline_panels import eigenvalues_by_rank, element_laws, spectral_densities
from rmtbase.results.baseline.figures._element_tables import element_density, element_property

__all__ = [
    "eigenvalues_by_rank",
    "element_density",
    "element_laws",
    "element_property",
    "ensemble_spectrum",
    "figure_recipes",
    "spectral_densities",
]
