"""Values that once ended in an internal error, each refused in one line that says what was found and expected."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from exhaustive import mostly_exhaustive
from rmtbase.errors import CheckpointError, ParameterError
from rmtbase.models import open_model

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaModel"], "hidden_size": 16, "num_hidden_layers": 1, "vocab_size": 32,
    "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 16,
}  # fmt: skip
GEMMA2 = LLAMA | {"model_type": "gemma2", "architectures": ["Gemma2Model"], "head_dim": 8, "query_pre_attn_scalar": 8}
T5 = {"model_type": "t5", "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 32}


def save(config, folder):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch").manual_seed(0)
    transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**config)).save_pretrained(folder)


def test_configuration_with_a_byte_order_mark_is_read(tmp_path):
    save(LLAMA, tmp_path)
    before = open_model(tmp_path).matrix(0, "attention_query")
    file = tmp_path / "config.json"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    np.testing.assert_array_equal(open_model(tmp_path).matrix(0, "attention_query"), before)


@pytest.mark.parametrize(
    ("config", "name", "values"),
    [
        (LLAMA, "initializer_range", (-1.0, float("nan"), None, "x")),
        (GEMMA2, "query_pre_attn_scalar", (0, float("nan"), -4, None)),
        (T5, "initializer_factor", (None, float("nan"))),
    ],
    ids=["llama", "gemma2", "t5"],
)
def test_configuration_whose_network_cannot_be_built_is_read_or_refused(config, name, values, tmp_path, monkeypatch):
    monkeypatch.delenv("RMTBASE_PROOF", raising=False)
    save(config, tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    stored = json.loads(file.read_text())
    for value in values:
        file.write_text(json.dumps(stored | {name: value}))
        try:
            open_model(tmp_path / "model").prove()
        except (CheckpointError, ParameterError) as error:
            assert str(error)


def test_nested_tensors_are_named():
    torch = pytest.importorskip("torch")
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged)
    with pytest.raises(ParameterError, match=r"a nested tensor under 'w'.*unbind"):
        open_model({"w": nested}, family="gpt2", config={"n_head": 12})


@pytest.mark.parametrize("epoch", ["abc", "-1e9", "99999999999999999999", "½"])
def test_date_of_a_page_that_is_none(epoch, monkeypatch, run):
    from rmtbase.terminal.environment import page_date

    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    with pytest.raises(ParameterError, match=r"SOURCE_DATE_EPOCH = .*seconds since 1970"):
        page_date()
    ran = run("law", "--d-model", 16, "--d-head", 4)
    assert ran.status == 2 and "seconds since 1970" in ran.err


@pytest.mark.parametrize("value", ["x", "", "bash_source", "complete_bash"])
def test_nonsense_where_a_shell_asks_for_completion_is_named(value, run, monkeypatch):
    monkeypatch.setenv("_RMTBASE_COMPLETE", value)
    monkeypatch.delenv("COMP_WORDS", raising=False)
    ran = run("law", "--d-model", 8, "--d-head", 2)
    assert ran.status == 2 and "_RMTBASE_COMPLETE" in ran.err


UNSUITABLE = [
    ("JAX_PLATFORMS", "cuda", "jax does not start (it finds no such device) with JAX_PLATFORMS='cuda' in"),
    ("JAX_NUM_CPU_DEVICES", "99999999", "expected from 1 to 1024 devices"),
    ("XLA_FLAGS", "--xla_force_host_platform_device_count=99999999999", "expected from 1 to 1024 devices"),
    ("XLA_FLAGS", "--xla_force_host_platform_device_count=0", "expected from 1 to 1024 devices"),
    ("XLA_FLAGS", "--xla_cpu_max_isa=FOO", "Unknown CPU ISA: FOO"),
    ("PYTHONOPTIMIZE", "2", "expected 0 or 1 (-O)"),
    ("JAX_ENABLE_X64", "maybe", "jax does not start"),
    ("XLA_FLAGS", "--bogus", "XLA_FLAGS = '--bogus': expected options that this XLA knows and can follow"),
    ("MPLBACKEND", "nonsense", "matplotlib does not start"),
]


@pytest.mark.parametrize(
    ("name", "value", "said"), mostly_exhaustive(UNSUITABLE, always=[*UNSUITABLE[1:3], UNSUITABLE[5]])
)
def test_environment_with_which_a_library_does_not_start_is_named(name, value, said, tmp_path, null_file):
    command = ["plot", str(null_file), "-o", "figures"] if name == "MPLBACKEND" else ["doctor"]
    judged = ("JAX_", "XLA_", "TPU_", "MPLBACKEND")
    environment = {key: one for key, one in os.environ.items() if not key.startswith(judged)}
    ran = process([sys.executable, "-m", "rmtbase", *command], environment | {name: value}, tmp_path)
    assert ran.returncode == 2, ran.stderr
    assert said in ran.stderr and value in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


GUARDS = [
    ("JAX_TRANSFER_GUARD", "disallow"),
    ("JAX_TRANSFER_GUARD", "disallow_explicit"),
    ("JAX_NO_TRACING", "1"),
    ("JAX_CHECK_TRACER_LEAKS", "1"),
]


@pytest.mark.parametrize(("name", "value"), mostly_exhaustive(GUARDS, always=1))
def test_a_guard_of_jax_against_what_a_command_does_is_lifted_for_its_draws(name, value, tmp_path):
    command = ["baseline", "--d-model", "8", "--d-head", "2", "--draws", "4", "-o", "made.nc"]
    ran = process([sys.executable, "-m", "rmtbase", *command], os.environ | {name: value}, tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "rmtbase: wrote made.nc\n")


BASELINE = "baseline --d-model 8 --d-head 2 --draws 4 -o made.nc"
GONE = "mkdir gone; cd gone; rmdir ../gone"
LIMITED = [
    ("ulimit -v 1500000", BASELINE, "address space = '"),
    ("export OPENBLAS_NUM_THREADS=1; ulimit -v 210000", BASELINE, "a library cannot be loaded ("),
    (GONE, 'score "$OLDPWD/model"', "the working directory cannot be used (No such file or directory)"),
    (GONE, "score .", "the working directory cannot be used (No such file or directory)"),
    ("ulimit -n 8", "score demo", "Too many open files"),
    ("exec >&-", "constants", "stdout is closed: what was to be written there is lost"),
]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have other limits")
@pytest.mark.parametrize(("before", "command", "said"), mostly_exhaustive(LIMITED, always=[LIMITED[0], LIMITED[2]]))
def test_what_a_process_may_not_have_is_one_line(before, command, said, tmp_path):
    if "OLDPWD/model" in command:  # which PyTorch proves, and PyTorch needs a working directory
        save(LLAMA, tmp_path / "model")
    line = f"{before}; exec {sys.executable} -m rmtbase {command}"
    environment = {name: value for name, value in os.environ.items() if name != "RMTBASE_PROOF"}
    environment["RMTBASE_CACHE"] = str(tmp_path / "cache")  # no proof of an earlier run
    ran = process(["bash", "-c", line], environment, tmp_path)
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.startswith("rmtbase: error: ") and said in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert not (tmp_path / "made.nc").exists()


def process(command, environment, folder):
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.exhaustive
def test_a_model_that_comes_with_its_proofs_needs_no_working_directory(tmp_path):
    line = f"{GONE}; exec {sys.executable} -m rmtbase score demo --quiet"
    ran = process(["bash", "-c", line], os.environ, tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
