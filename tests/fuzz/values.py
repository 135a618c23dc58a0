"""Nonsense in options, configurations and environment variables: every command ends with status 0 or 2.

    python tests/fuzz/values.py --cases 5000 --seed 1
    python tests/fuzz/values.py --replay "config:1:17"

A case is a function of its kind, the seed and its number. Each command runs in a forked child of its own, one whose
environment is nonsense in a fresh interpreter. Exit status 1 where a command ended otherwise, with a traceback, or
beyond a limit.
"""

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from sandbox import Ended, run_forked

SHARES = {"environment": 0.03, "options": 0.89, "config": 0.08}

TEXTS = (
    "", " ", "nan", "NaN", "inf", "-inf", "0", "-0", "-1", "1", "2", "3", "7", "1.5", "0.5", "-0.5", "1e-320",
    "1e-5", "1e-17", "1e308", "1e400", "-1e308", "1e30", "99999999999999999999", "0x10", "1_0", "1e", "+1", "1;2",
    "1 2", "1,2", "½", "٣", "１", "None", "null", "true", "[]", "{}", "a,b", ",", ",,", "*", "?", "[", "..", "~",
    "-", "--", "%s", "{0}", "$HOME", "\x1b[31m", "\n", "a\nb", "\t", "é", "e\u0301", "🙂", "\u202e", "x" * 3000, "'",
    '"', "\\", "\udcff", "qk", "ov", "none", "sqrt_d", "normal", "light", "spectra", "q,k", "gaussian", "analytic",
    "demo", "final", "weights", "config.json", "missing", "missing.nc", "scores.nc", "model", ".", "./", "1/0", "=",
    "--help", "-h", "--json", "-q", "-v", "--quiet",
)  # fmt: skip
NUMBERS = (
    None, True, False, 0, -0.0, 1, -1, 2, 3, 7, 0.5, -0.5, 1e-320, 1e-30, 1e30, 1e308, -1e308, float("nan"),
    float("inf"), float("-inf"), 10**20, -(10**20), "", "0", "8", "nan", "gelu", "x", "é", "\u202e", "x" * 300, [],
    [1], [None], [[]], {}, {"a": 1}, {"rope_type": "default"}, {"factor": float("nan")}, [8, 8], ["full_attention"],
    "float32", "auto",
)  # fmt: skip
ENVIRONMENT = {
    "JAX_PLATFORMS": ("cuda", "bogus", ",", "cpu,cuda", "rocm", "tpu"),
    "JAX_ENABLE_X64": ("maybe", "2", "TRUE"),
    "JAX_NUM_CPU_DEVICES": ("x", "0", "-3", "1e9"),
    "JAX_DEFAULT_MATMUL_PRECISION": ("bad", "tensorfloat32"),
    "JAX_RANDOM_SEED_OFFSET": ("a", "1e9"),
    "JAX_DEBUG_NANS": ("perhaps",),
    "JAX_THREEFRY_PARTITIONABLE": ("x", "0"),
    "JAX_DEFAULT_PRNG_IMPL": ("x", "rbg"),
    "JAX_COMPILATION_CACHE_DIR": ("/proc/none", "\x01"),
    "XLA_FLAGS": ("--bogus", "notaflag", "--xla_force_host_platform_device_count=abc"),
    "MPLBACKEND": ("nonsense", "TkAgg", "agg", "module://missing"),
    "MPLCONFIGDIR": ("/proc/none", "config.json"),
    "MATPLOTLIBRC": ("config.json", "/proc/none"),
    "SOURCE_DATE_EPOCH": ("abc", "-1", "1e9", "99999999999999999999", "½", "٣"),
    "RMTBASE_PROGRESS_SECONDS": ("x", "0", "-1", "nan", "1e400"),
    "RMTBASE_CACHE": ("/proc/none", "config.json", "~", "\udcff"),
    "RMTBASE_PROOF": ("x", "2", "no"),
    "COLUMNS": ("x", "0", "-1", "1", "99999999999"),
    "LINES": ("x", "-1"),
    "TERM": ("x", "dumb", "\x1b"),
    "NO_COLOR": ("x",),
    "LANG": ("xx_XX.bogus", "C"),
    "LC_ALL": ("xx_XX.bogus", "C"),
    "TZ": ("nowhere/nothing", ":"),
    "HOME": ("/proc/none", ""),
    "TMPDIR": ("/proc/none", "config.json"),
    "XDG_CACHE_HOME": ("/proc/none", "config.json"),
    "OMP_NUM_THREADS": ("x", "0", "-1"),
    "OPENBLAS_NUM_THREADS": ("x", "-1"),
    "HF_HUB_OFFLINE": ("perhaps", "0"),
    "HF_HUB_DOWNLOAD_TIMEOUT": ("x", "-1"),
    "HF_HOME": ("/proc/none", "config.json"),
    "HF_ENDPOINT": ("x", "http://"),
    "HDF5_USE_FILE_LOCKING": ("x",),
    "_RMTBASE_COMPLETE": ("x", "bash_source", "complete_bash", "fish_complete"),
}  # fmt: skip
IN_ANY_ENVIRONMENT = (
    ("baseline", "--d-model", "8", "--d-head", "2", "--draws", "4", "-o", "made.nc"),
    ("plot", "scores.nc", "-o", "figures", "--only", "z-score*"),
    ("score", "model", "--null", "analytic", "-o", "made.nc", "-o", "made.html"),
    ("law", "--d-model", "8", "--d-head", "2"),
)
COMMANDS: dict[str, tuple[str, ...]] = {
    "baseline": ("--d-model", "8", "--d-head", "2", "--draws", "4", "-o", "made.nc"),
    "score": ("model", "--null", "analytic", "-o", "made.nc"),
    "signal": ("model", "-o", "made.nc"),
    "compare": ("scores.nc", "scores.nc"),
    "inspect": ("model",),
    "depth": ("model", "--draws", "19", "--max-depth", "2", "-o", "made.nc"),
    "composition": ("model", "-o", "made.nc"),
    "diff": ("model", "model"),
    "law": ("--d-model", "8", "--d-head", "2"),
    "constants": ("product_upper_edge", "--d-model", "8", "--d-head", "2"),
    "cite": ("product_upper_edge",),
    "plot": ("scores.nc", "-o", "figures"),
    "export": ("scores.nc",),
    "trajectory": ("model", "-o", "made.nc"),
}
CHEAP = ("cite", "constants", "export", "inspect", "law")
WARM = (
    "jax", "matplotlib.figure", "pandas", "scipy.stats", "torch", "transformers", "rmtbase.constants", "rmtbase.laws",
    "rmtbase.results.comparison", "rmtbase.results.figures", "rmtbase.results.scores.page._page",
)  # fmt: skip
"""Modules that the commands import: imported once."""
SLOW = ("--workers", "--hours", "--install-completion", "--show-completion")  # other processes, or waiting


@dataclass(frozen=True)
class Case:
    """One command with nonsense in its arguments, its environment, or at a path in a model type's configuration."""

    name: str
    arguments: tuple[str, ...]
    settings: dict[str, str] = field(default_factory=dict)
    config: tuple[str, tuple[str, ...], Any] | None = None

    def __str__(self) -> str:
        words = " ".join(ascii(argument)[1:-1][:60] for argument in self.arguments)
        return f"{self.name}: rmtbase {words} {self.settings or ''} {self.config or ''}".strip()


def case_of(kind: str, seed: int, number: int, configs: dict[str, dict[str, Any]]) -> Case:
    """The case of a kind, seed and number."""
    name = f"{kind}:{seed}:{number}"
    chance = random.Random(name)
    if kind == "environment":
        every = [(variable, value) for variable, values in ENVIRONMENT.items() for value in values]
        variable, value = every[number % len(every)] if number < len(every) else chance.choice(every)
        if number >= len(every):
            value = chance.choice([value, *(text for text in TEXTS if "\0" not in text)])
        command = chance.choice(IN_ANY_ENVIRONMENT)
        if variable.startswith(("JAX", "XLA")):
            command = IN_ANY_ENVIRONMENT[0]
        elif variable.startswith(("MPL", "MAT")):
            command = IN_ANY_ENVIRONMENT[1]
        elif variable == "SOURCE_DATE_EPOCH":
            command = IN_ANY_ENVIRONMENT[2]
        return Case(name, command, {variable: value})
    if kind == "config":
        model = chance.choice(sorted(configs))
        paths = list(_paths(configs[model]))
        command = chance.choice((("inspect", "model"), ("score", "model", "--null", "analytic", "-o", "made.nc")))
        return Case(name, command, {}, (model, chance.choice(paths), chance.choice(NUMBERS)))
    command = chance.choice(sorted(COMMANDS) if chance.random() < 0.06 else CHEAP)
    return Case(name, (command, *_nonsense(command, chance)))


def _paths(config: dict[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in config.items():
        yield (*before, name)
        if isinstance(value, dict):
            yield from _paths(value, (*before, name))


def _nonsense(command: str, chance: random.Random) -> list[str]:
    """The arguments of a command with one to three of them given nonsense, lost, or added."""
    from rmtbase.cli._app import _built, app

    options = [one for one in _built(app).commands[command].params if one.param_type_name == "option"]
    arguments = list(COMMANDS[command])
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        way = chance.random()
        if way < 0.72 and options:
            option = chance.choice(options)
            if any(name in SLOW for name in option.opts):
                continue
            name = chance.choice([*option.opts, *option.secondary_opts])
            arguments = _without(arguments, option.opts)
            arguments += [name] if option.is_flag else [name, chance.choice(TEXTS)]
        elif way < 0.85 and arguments:
            arguments[chance.randrange(len(arguments))] = chance.choice(TEXTS)
        elif way < 0.93 and arguments:
            arguments.pop(chance.randrange(len(arguments)))
        else:
            arguments.insert(chance.randrange(len(arguments) + 1), chance.choice(TEXTS))
    return arguments


def _without(arguments: list[str], names: Sequence[str]) -> list[str]:
    for name in names:
        if name in arguments:
            place = arguments.index(name)
            return arguments[:place] + arguments[place + 2 :]
    return arguments


CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    "gemma2": {"num_key_value_heads": 1, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8},
    "gpt2": {"n_embd": 16, "n_head": 2, "n_layer": 1, "n_positions": 16, "n_inner": 16},
    "bert": {"type_vocab_size": 2, "max_position_embeddings": 16},
    "t5": {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "initializer_factor": 1.0},
}
COMMON = {
    "vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "initializer_range": 0.02,
}  # fmt: skip


def make_originals(root: Path) -> dict[str, dict[str, Any]]:
    """The files that commands are given: models, a baseline and scores; the configurations of the models."""

    def make_models() -> None:
        import torch
        import transformers

        torch.manual_seed(0)
        for name, own in CONFIGS.items():
            settings = own if name in ("gpt2", "t5") else COMMON | own
            config = transformers.AutoConfig.for_model(name, **({"vocab_size": 32} | settings))
            transformers.AutoModel.from_config(config).save_pretrained(root / f"model-{name}")

    def score() -> None:
        shutil.copytree("model-llama", "model")
        _run(("score", "model", "--null", "analytic", "-o", "scores.nc"))

    for make in (make_models, score):
        ended = run_forked(make, root)
        assert ended.status == 0, ended.last_words()
    return {name: json.loads((root / f"model-{name}" / "config.json").read_text()) for name in CONFIGS}


def _run(arguments: Sequence[str]) -> None:
    from rmtbase.cli._app import run

    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")):
        status = run(list(arguments))
    sys.exit(status)


def run_case(root: Path, case: Case) -> Ended:
    """Run a case in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="values-", dir=root) as name:
        folder, model = Path(name), case.config[0] if case.config else "llama"
        shutil.copytree(root / f"model-{model}", folder / "model")
        shutil.copy(root / "scores.nc", folder)
        shutil.copy(root / "model-llama" / "config.json", folder)
        if case.config:
            file = folder / "model" / "config.json"
            config = place = json.loads(file.read_text())
            *inner, last = case.config[1]
            for key in inner:
                place = place[key]
            place[last] = case.config[2]
            file.write_text(json.dumps(config))

        def work() -> None:
            if case.settings:
                command = (sys.executable, "-m", "rmtbase", *case.arguments)
                os.execve(sys.executable, command, os.environ | case.settings)
            _run(case.arguments)

        return run_forked(work, folder)


def is_wrong(ended: Ended) -> bool:
    return ended.status not in (0, 2) or bool(ended.limit) or b"Traceback" in ended.err


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases, print the counts and what is wrong, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", action="append", default=[], help="KIND:SEED:NUMBER")
    parser.add_argument("--json", type=Path, help="where the record of every case is written")
    options, record = parser.parse_args(arguments), []
    for name in WARM:
        import_module(name)
    with tempfile.TemporaryDirectory(prefix="values-") as folder:
        configs = make_originals(Path(folder))
        numbers = [name.split(":") for name in options.replay] or [
            (kind, options.seed, number)
            for kind, share in SHARES.items()
            for number in range(round(options.cases * share))
        ]
        cases = [case_of(kind, int(seed), int(number), configs) for kind, seed, number in numbers]
        for case in cases:
            ended = run_case(Path(folder), case)
            record.append([str(case), ended.status, is_wrong(ended), ended.last_words()])
            if is_wrong(ended):
                print(f"wrong [{ended.status} {ended.limit}] {case}\n    {ended.last_words()}", flush=True)
    for status, count in Counter(status for _, status, _, _ in record).items():
        print(f"{count} cases of {len(record)} ended with status {status}")
    if options.json:
        options.json.write_text(json.dumps(record))
    return int(any(wrong for _, _, wrong, _ in record))


if __name__ == "__main__":
    sys.exit(main())
