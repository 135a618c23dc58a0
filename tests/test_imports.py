"""What importing takes in, what the low rooms can do alone, who may import whom, and what a forked process may do."""

import subprocess
import sys
from pathlib import Path

import pytest

import rmtbase


def python(code: str, folder: Path) -> str:
    """What a fresh interpreter prints, started outside the source tree."""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


HEAVY = ("jax", "torch", "transformers", "matplotlib", "xarray", "scipy", "netCDF4", "huggingface_hub", "safetensors")


def test_importing_the_package_takes_in_nothing_heavy(tmp_path):
    found = python(f"import sys, rmtbase; print([m for m in {HEAVY} if m in sys.modules])", tmp_path)
    assert found == "[]"


def test_importing_the_command_line_takes_in_nothing_heavy(tmp_path):
    found = python(f"import sys, rmtbase.cli; print([m for m in {HEAVY[:4]} if m in sys.modules])", tmp_path)
    assert found == "[]"


def test_numpy_rooms_import_no_jax_torch_or_matplotlib(tmp_path):
    rooms = (
        "laws", "tables", "statistics", "nulls", "models", "heads", "results.scores", "results.trajectory", "watch",
    )  # fmt: skip
    code = (
        f"import importlib, sys\nfor room in {rooms}:\n    importlib.import_module('rmtbase.' + room)\n"
        f"    print(room, [m for m in {HEAVY[:4]} if m in sys.modules])"
    )
    assert python(code, tmp_path).splitlines() == [f"{room} []" for room in rooms]


def test_scoring_against_what_is_not_simulated_imports_no_jax_and_without_a_page_nothing_that_draws(tmp_path):
    code = (
        "import contextlib, sys\nfrom rmtbase.cli import main\nfor null in ('analytic', 'gaussian'):\n"
        "    with contextlib.suppress(SystemExit):\n     main(['score', 'demo', '--null', null, '-o', null + '.nc'])\n"
        "print([module for module in ('jax', 'matplotlib') if module in sys.modules])"
    )
    assert python(code, tmp_path).splitlines()[-1] == "[]"
    methods = {
        null: rmtbase.open_table(tmp_path / f"{null}.nc").attrs["null_method"] for null in ("analytic", "gaussian")
    }
    assert methods == {"analytic": "analytic", "gaussian": "simulated"}


def test_laws_work_where_jax_cannot_be_imported(tmp_path):
    code = (
        "import sys; sys.modules['jax'] = sys.modules['jaxlib'] = None\n"
        "from rmtbase.laws import low_rank_product\n"
        "law = low_rank_product(768, 64)\n"
        "low, high = law.support\n"
        "print(law.pdf(0.5 * (low + high)) > 0, round(float(law.cdf(high)), 9))"
    )
    assert python(code, tmp_path) == "True 1.0"


def test_the_public_names_are_there():
    for name in rmtbase.__all__:
        assert getattr(rmtbase, name) is not None
    assert set(rmtbase.__all__) <= set(dir(rmtbase))
    assert {"baseline", "open_model", "open_table", "score", "score_heads", "laws", "models"} <= set(dir(rmtbase))
    assert {"signal", "composition", "depth", "diff", "compare", "trajectory", "plot", "export"} <= set(dir(rmtbase))


@pytest.mark.parametrize("room", sorted(set(dir(rmtbase)) - set(rmtbase.__all__)))
def test_every_room_that_dir_lists_imports_and_has_what_it_exports(room):
    module = getattr(rmtbase, room)
    for name in getattr(module, "__all__", ()):
        assert hasattr(module, name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'basline'"):
        _ = rmtbase.basline


def test_the_version_is_that_of_the_installed_package(tmp_path):
    said = python("import rmtbase; print(rmtbase.__version__)", tmp_path)
    assert said == rmtbase.__version__


def test_the_rooms_keep_to_their_contracts():
    root = Path(__file__).parents[1]
    command = (
        "import sys; from importlinter.cli import lint_imports\n"
        "sys.exit(lint_imports(config_filename='pyproject.toml', no_cache=True))"
    )
    ended = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, cwd=root, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


SCRIPT = """
import multiprocessing, os, warnings
warnings.filterwarnings("ignore", "os.fork|This process", category=Warning)
import rmtbase.montecarlo
from rmtbase.errors import ForkedProcessError

def said(call):
    try:
        call()
    except ForkedProcessError as error:
        return str(error)
    return "done"

def draw():
    rmtbase.montecarlo.simulate_gaussian_matrix(4, 2, 2)

def score():
    import numpy as np
    heads = np.random.default_rng(0).standard_normal((2, 64, 768))
    rmtbase.score_heads(heads, heads[::-1])

def law():
    rmtbase.laws.low_rank_product(768, 64).cdf(1.0)

def in_child(*calls):
    if os.fork() == 0:
        for call in calls:
            print(said(call), flush=True)
        os._exit(0)
    os.wait()

in_child(draw)
import jax
jax.numpy.ones(3)  # the user's own
in_child(draw)
print(said(draw), flush=True)  # or the child would print it again
in_child(score, law)
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(said(lambda: pool.apply(draw)))
"""


@pytest.mark.exhaustive
def test_child_of_a_process_that_has_used_jax_refuses_to_draw_and_still_scores():
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    early_child, child, parent, score, law, worker = ended.stdout.splitlines()
    assert (early_child, parent, score, law) == ("done", "done", "done", "done")
    for refused in (child, worker):
        assert "forked from one that had used JAX" in refused
        assert "multiprocessing.get_context('spawn')" in refused
