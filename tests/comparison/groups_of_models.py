"""Tests of groups of models by the measures that all of them have, with a number for each measure as an attribute."""

from types import SimpleNamespace

import numpy as np

from rmtbase.results.comparison._groups import GroupTest, between_of, contrast_of, measures_of


def _columns(models):
    """The measures that all models have, and their values and errors in each model."""
    each = [measures_of(scores) for scores in models]
    names = tuple(name for name in each[0] if all(name in measured for measured in each))
    return names, *(np.array([[measured[name][k] for name in names] for measured in each]) for k in (0, 1))


def compare_groups(first, second, permutations=9_999, seed=0, paired=False):
    """Two groups of models."""
    names, values, errors = _columns([*first, *second])
    tested = contrast_of(values, (len(first), len(second)), GroupTest(paired, permutations, seed))
    head_error = np.sqrt((errors**2).mean(axis=0))
    return SimpleNamespace(measures=names, paired=paired, head_error=head_error, **tested)


def between_groups(groups, permutations=9_999, seed=0, paired=False):
    """Several groups of models, by name."""
    names, values, _ = _columns([scores for members in groups.values() for scores in members])
    sizes = tuple(map(len, groups.values()))
    return SimpleNamespace(measures=names, **between_of(values, sizes, GroupTest(paired, permutations, seed)))
