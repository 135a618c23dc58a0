import json
import sys
from pathlib import Path

import pytest

import rmtbase
from rmtbase.report import render

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "plots"))  # the tiny model is drawn there, read here
from scored_model import D_HEAD, D_MODEL, write_checkpoint

HOSTILE = 'evil"/><img src=x onerror=alert(1)></title><script>window.hacked = 1</script>&amp;\N{RIGHT-TO-LEFT OVERRIDE}'


@pytest.fixture(scope="session")
def baseline():
    return rmtbase.baseline(D_MODEL, D_HEAD, draws=2000)


@pytest.fixture(scope="session")
def tree(tmp_path_factory, baseline):
    """Scores of a model that learned something, its names and notes made hostile."""
    folder = write_checkpoint(tmp_path_factory.mktemp("models") / "learned", learned=True)
    tree = rmtbase.score(folder, baseline, matrices="spectra")
    warnings = json.loads(tree.attrs["warnings"])
    tree.attrs |= {
        "model": HOSTILE,
        "revision": HOSTILE,
        "family": HOSTILE,
        "table": HOSTILE,
        "notes": json.dumps([HOSTILE]),
        "warnings": json.dumps([*warnings, HOSTILE]),
        "provenance": json.dumps({"model": HOSTILE}),
    }
    return tree


@pytest.fixture(scope="session")
def page(tree):
    return render(tree)


@pytest.fixture(scope="session")
def analytic_tree(tmp_path_factory):
    """Scores of the same model against the analytic null."""
    return rmtbase.score(write_checkpoint(tmp_path_factory.mktemp("models") / "learned", learned=True), "analytic")


@pytest.fixture(scope="session", params=["permutation", "haar"])
def resampled_tree(request, tmp_path_factory):
    """Scores of the same model against nulls made of the heads' own matrices."""
    folder = write_checkpoint(tmp_path_factory.mktemp("models") / "learned", learned=True)
    return rmtbase.score(folder, null=request.param, draws=499)
