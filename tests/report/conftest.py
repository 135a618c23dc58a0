import json

import pytest

import rmtbase
from plots.scored_model import D_HEAD, D_MODEL, write_checkpoint
from rmtbase.nulls import Table, find_null
from rmtbase.results.scores import render
from rmtbase.shown import shown

HOSTILE = (
    'evil"/><meta http-equiv=refresh content="0;url=about:blank"><img src=x onerror=alert(1)></title>'
    "<script>window.hacked = 1</script>&amp;{}$\\frac$^$\N{RIGHT-TO-LEFT OVERRIDE}\x1b]8;;\udcff"
)


@pytest.fixture(scope="session")
def baseline():
    return rmtbase.baseline(D_MODEL, D_HEAD, draws=2000)


@pytest.fixture(scope="session")
def tree(tmp_path_factory, baseline):
    """Scores of a model that learned something, every text in them made hostile: names, notes, coordinates."""
    folder = write_checkpoint(tmp_path_factory.mktemp("models") / "learned", learned=True)
    tree = rmtbase.score(folder, Table(baseline), matrices="spectra")
    warnings = json.loads(tree.attrs["warnings"])
    matrices = tree["matrices"].to_dataset()
    names = [*matrices["statistic"].values.tolist(), HOSTILE]
    matrices = matrices.isel(statistic=[*range(len(names) - 1), 0]).assign_coords(statistic=names)
    tree["matrices"] = matrices.assign_coords(
        {name: [f"{HOSTILE}_{k}" for k in range(matrices.sizes[name])] for name in ("layer", "component")}
    )
    texts = ("null", "rmtbase_version", "schema_version", "normalization", "model", "revision", "family", "table")
    tree.attrs |= dict.fromkeys(texts, HOSTILE) | {
        "notes": json.dumps([HOSTILE]),
        "warnings": json.dumps([*warnings, HOSTILE]),
        "provenance": json.dumps({"model": HOSTILE}),
    }
    return tree


@pytest.fixture(scope="session")
def harmless():
    """How the hostile text is shown: as it is, but for what cannot be printed."""
    return shown(HOSTILE)


@pytest.fixture(scope="session")
def page(tree):
    return render(tree)


@pytest.fixture(scope="session")
def analytic_tree(tmp_path_factory):
    """Scores of the same model against the analytic null."""
    return rmtbase.score(write_checkpoint(tmp_path_factory.mktemp("models") / "learned", learned=True), "analytic")


@pytest.fixture(scope="session", params=["signs", "axes"])
def resampled_tree(request, tmp_path_factory):
    """Scores of the same model against nulls made of the heads' own matrices."""
    folder = write_checkpoint(tmp_path_factory.mktemp("models") / "learned", learned=True)
    return rmtbase.score(folder, find_null(request.param, draws=499))
