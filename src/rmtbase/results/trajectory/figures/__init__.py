"""Figures and animations of a training run along its steps."""

from rmtbase.results.trajectory.figures._along_steps import (
    departures,
    figure_recipes,
    spectra_along_steps,
    statistic_along_steps,
    step_axis,
)
from rmtbase.results.trajectory.figures._animation import (
    ANIMATION_FORMATS,
    Animation,
    animation,
    animation_of,
    save_animation,
)

__all__ = [
    "ANIMATION_FORMATS",
    "Animation",
    "animation",
    "animation_of",
    "departures",
    "figure_recipes",
    "save_animation",
    "spectra_along_steps",
    "statistic_along_steps",
    "step_axis",
]
