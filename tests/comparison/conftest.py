"""Scores of small models that were drawn at random, or have learned something."""

import pytest
from matrices_group import random_scores


@pytest.fixture(scope="session")
def scored():
    """Scores of models whose weights are drawn, not to be changed."""
    return random_scores
