"""The study of heavy tails: what it claims is what its numbers say."""

import numpy as np
from study_files import held

results = held("heavy_tails")


def _called(truth, verdict):
    rows = [row for row in results["cases"] if row["truth"] == truth]
    known = sum(row["trials"] - row["refused"] for row in rows)
    return sum(row["verdicts"].get(verdict, 0) for row in rows) / known, known


def test_matrices_that_learned_nothing_are_called_noise_as_often_as_the_level_says():
    share, known = _called("noise", "noise")
    assert known >= 300
    assert 1.0 - share <= results["level"] + 2 * np.sqrt(results["level"] * (1 - results["level"]) / known)
    for verdict in ("spikes", "power law", "effective depth"):
        assert _called("noise", verdict)[0] <= results["level"]


def test_every_candidate_is_called_another_rarely():
    for truth in ("spikes", "power law", "effective depth"):
        for verdict in {"spikes", "power law", "effective depth"} - {truth}:
            share, known = _called(truth, verdict)
            # A true candidate is ruled out at the level, and another one stands then as well or not.
            assert share <= results["level"] + 2 * np.sqrt(results["level"] * (1 - results["level"]) / known)


def test_every_verdict_is_one_of_a_matrix_that_was_drawn():
    for row in results["cases"]:
        assert sum(row["verdicts"].values()) == row["trials"] - row["refused"]
