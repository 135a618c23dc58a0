"""How a command line is read: counts, options given twice, names meant, how much is told, and completion."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase.models import demo_revisions
from rmtbase.tables import open_table

# Counts


@pytest.mark.parametrize("text", ["20", "2_0", "2e1", "0.02k", "2.0e+1"])
def test_count_is_read_as_people_write_it(text, run, shape, tmp_path):
    path = tmp_path / "table.nc"
    assert run("baseline", *shape, "--draws", text, "-o", path).status == 0
    assert open_table(path, "baseline").sizes["draw"] == 20


def test_whole_numbers_are_read_as_people_write_them(run):
    assert run("law", "--d-model", "1e3", "--d-head", "1_0").out == run("law", "--d-model", 1000, "--d-head", 10).out


@pytest.mark.parametrize("place", mostly_exhaustive([0, 1, 4], always=1))
@pytest.mark.parametrize("flag", ["-q", "--quiet"])
def test_quiet_tells_the_result_alone(flag, place, run, shape, tmp_path):
    command = ["baseline", *shape, "--draws", 5, "-o", tmp_path / "table.nc"]
    loud = run(*command)
    assert loud.err == f"rmtbase: wrote {tmp_path / 'table.nc'}\n"
    ran = run(*command[: 2 * place + 1 if place else 0], flag, *command[2 * place + 1 if place else 0 :])
    assert (ran.status, ran.err) == (0, "")
    assert ran.out == loud.out


@pytest.mark.parametrize("place", [0, 2])
def test_verbose_tells_the_source_of_the_null_and_the_times(place, run, model_folder, null_file):
    command = ["score", model_folder, "--null", null_file]
    ran = run(*command[:place], "-v", *command[place:])
    assert ran.status == 0 and f"simulated; from {null_file}" in " ".join(ran.out.split())
    assert "rmtbase: reading layers: 2 of 2 in " in ran.err
    last = ran.err.splitlines()[-1]
    assert last.startswith("rmtbase: took ")
    assert f"rmtbase {rmtbase.__version__}" in last
    assert "took" not in run(*command).err


def test_quiet_and_verbose_exclude_each_other(run):
    for command in (["-q", "-v", "doctor"], ["-q", "doctor", "-v"]):
        ran = run(*command)
        assert (ran.status, ran.out) == (2, "") and "one of --quiet and --verbose" in ran.err


def test_the_module_and_the_script_are_one_program_with_a_version_and_a_help(run, run_process):
    script = [Path(sys.executable).with_name("rmtbase"), "score"]
    ended = subprocess.run(script, capture_output=True, text=True, check=False)
    module = run_process("score")
    assert (module.status, module.out, module.err) == (ended.returncode, ended.stdout, ended.stderr)
    for flag in ("-V", "--version"):
        ran = run(flag)
        assert (ran.status, ran.out, ran.err) == (0, f"{rmtbase.__version__}\n", "")
    ran = run()
    assert ran.status == 2 and "baseline" in ran.out + ran.err and "error" not in ran.err


@pytest.fixture
def completed(run, monkeypatch):
    """What the words of a command line may become, as the shell's script asks for it."""

    def ask(words):
        asked = {"_RMTBASE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        for name, value in asked.items():
            monkeypatch.setenv(name, value)
        ran = run()
        assert (ran.status, ran.err) == (0, "")
        return ran.out.split()

    return ask


@pytest.mark.parametrize(
    ("words", "some"),
    [
        ("rmtbase ba", {"baseline"}),
        ("rmtbase score pythia-7", {"pythia-70m"}),
        ("rmtbase score dem", {"demo"}),
        ("rmtbase score demo --null a", {"axes"}),
        ("rmtbase score demo --init", {"--initialization"}),
        ("rmtbase score demo@", {f"demo@{revision}" for revision in demo_revisions()}),
        ("rmtbase depth demo --component mlp_i", {"mlp_in"}),
        ("rmtbase baseline gpt2", {"gpt2", "gpt2-xl"}),
        ("rmtbase constants tracy_widom_1_m", {"tracy_widom_1_mean"}),
        ("rmtbase cite product_up", {"product_upper_edge"}),
        ("rmtbase constants --format late", {"latex", "latex-rows"}),
        ("rmtbase constants --normalization ", {"sqrt_d", "none"}),
        ("rmtbase plot --format ", {"pdf", "svg", "png"}),
        ("rmtbase plot --theme ", {"light", "dark", "print"}),
    ],
)
def test_shell_completes_names(words, some, completed):
    assert some <= set(completed(words))


def test_completion_is_fast_and_imports_no_jax():
    code = (
        "import sys; sys.argv = ['rmtbase']\n"
        "from rmtbase.cli import main\n"
        "try: main()\n"
        "finally: print({'jax', 'matplotlib', 'torch', 'scipy'} & set(sys.modules), file=sys.stderr)"
    )
    words = {"_RMTBASE_COMPLETE": "complete_bash", "COMP_WORDS": "rmtbase score pyth", "COMP_CWORD": "2"}
    begin = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | words, check=False
    )
    assert "pythia-70m" in ran.stdout.split()
    assert ran.stderr == "set()\n"
    assert time.monotonic() - begin < 10  # well under one second where nothing else runs


def test_bash_completes_by_the_script_that_is_shown(run_process, tmp_path):
    shown = run_process("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="True")
    assert (shown.status, shown.err) == (0, "")
    assert shown.out.split() == run_process(_RMTBASE_COMPLETE="source_bash").out.split()
    words = 'COMP_WORDS=(rmtbase plot --the); COMP_CWORD=2; _rmtbase_completion rmtbase; echo "${COMPREPLY[@]}"'
    (tmp_path / "completion.sh").write_text(f"{shown.out}\n{words}\n")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", tmp_path / "completion.sh"]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "--theme\n", "")
