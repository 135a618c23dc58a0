"""Nonsense in options, configurations and environment variables: every command ends with status 0 or 2.

    python tests/fuzz/values.py --cases 5000 --seed 1
    python tests/fuzz/values.py --kind environment --cases 100
    python tests/fuzz/values.py --replay "config:1:17"

A case is a function of its kind, the seed and its number. Commands run through the entry point of the program, in
children that are forked in groups; one whose environment is nonsense in a child of its own, before JAX, matplotlib and
torch are imported. Exit status 1 where a command ended otherwise, with a traceback, or took more than a minute of CPU.
"""

import argparse
import contextlib
import io
import itertools
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KINDS = ("environment", "options", "config")
SHARES = {"environment": 0.03, "options": 0.89, "config": 0.08}
TOGETHER = 40  # cases of one child
CPU = 60  # seconds that a case may take
RIGHT = (0, 2)
_SAID_EVERY = 250  # cases

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
SLOW = ("--workers", "--hours", "--install-completion", "--show-completion")  # other processes, or waiting


@dataclass(frozen=True)
class Case:
    """One command with nonsense in it.

    Attributes:
        name: kind, seed and number, of which it is a function.
        arguments: of the command line.
        settings: in the environment.
        config: (model type, path within its configuration, value), or None.
    """

    name: str
    arguments: tuple[str, ...]
    settings: dict[str, str] = field(default_factory=dict)
    config: tuple[str, tuple[str, ...], Any] | None = None

    @property
    def kind(self) -> str:
        return self.name.partition(":")[0]

    def __str__(self) -> str:
        said = " ".join(ascii(one)[1:-1][:60] for one in self.arguments)
        more = [f"{name}={value!a}" for name, value in self.settings.items()]
        more += [f"{self.config[0]}: {'.'.join(self.config[1])} = {self.config[2]!a}"] if self.config else []
        return f"{self.name}: rmtbase {said} {' '.join(more)}".strip()


@dataclass(frozen=True)
class Ended:
    """How a case ended: its status, the end of what it said, and seconds of CPU."""

    case: Case
    status: int
    said: str
    cpu: float

    @property
    def wrong(self) -> bool:
        return self.status not in RIGHT or "Traceback" in self.said or self.cpu > CPU


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
        of = chance.choice(sorted(configs))
        paths = list(_paths(configs[of]))
        command = chance.choice((("inspect", "model"), ("score", "model", "--null", "analytic", "-o", "made.nc")))
        return Case(name, command, {}, (of, chance.choice(paths), chance.choice(NUMBERS)))
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


def make_originals(root: Path, kinds: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The files that commands are given: models, a baseline and scores; the configurations of the models."""
    from rmtbase.cli._app import run

    def made() -> None:
        import torch
        import transformers

        torch.manual_seed(0)
        for name, own in CONFIGS.items():
            known = own if name in ("gpt2", "t5") else COMMON | own
            config = transformers.AutoConfig.for_model(name, **({"vocab_size": 32} | known))
            transformers.AutoModel.from_config(config).save_pretrained(root / f"model-{name}")

    _in_child(made)
    shutil.copytree(root / "model-llama", root / "model")

    def scored() -> None:
        os.chdir(root)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            status = run(["score", "model", "--null", "analytic", "-o", "scores.nc"])
        if status:
            raise SystemExit(said.getvalue())

    _in_child(scored)
    return {name: json.loads((root / f"model-{name}" / "config.json").read_text()) for name in CONFIGS}


def _in_child(work: Callable[[], object]) -> None:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise SystemExit("the originals cannot be made")


def run_together(root: Path, cases: Sequence[Case]) -> Iterator[Ended]:
    """Run cases one after the other in a child, and again in another from the one after that which ended it."""
    left = list(cases)
    while left:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _run_in_child(root, left, writing)
        os.close(writing)
        with open(reading, encoding="utf-8") as lines:  # noqa: PTH123  # a descriptor
            found = [json.loads(line) for line in lines]
        raw = os.waitpid(pid, 0)[1]
        for case, (status, said, cpu) in zip(left, found, strict=False):
            yield Ended(case, status, said, cpu)
        left = left[len(found) :]
        if left:
            yield Ended(left.pop(0), os.waitstatus_to_exitcode(raw), "it ended the process", 0.0)


def _run_in_child(root: Path, cases: Sequence[Case], writing: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    used = 0.0
    try:
        for case in cases:
            folder = Path(tempfile.mkdtemp(prefix="values-", dir=root))
            _lay_out(root, folder, case)
            os.chdir(folder)
            resource.setrlimit(resource.RLIMIT_CPU, (int(used) + CPU + 30, int(used) + CPU + 35))
            status, said = _status_of(case)
            now = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
            os.write(writing, (json.dumps([status, said, now - used]) + "\n").encode())
            used = now
            os.chdir(root)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os._exit(0)


def _lay_out(root: Path, folder: Path, case: Case) -> None:
    of = case.config[0] if case.config else "llama"
    shutil.copytree(root / f"model-{of}", folder / "model")
    shutil.copy(root / "scores.nc", folder / "scores.nc")
    shutil.copy(root / "model-llama" / "config.json", folder / "config.json")
    if case.config:
        file = folder / "model" / "config.json"
        config = json.loads(file.read_text())
        *inner, last = case.config[1]
        place = config
        for name in inner:
            place = place[name]
        place[last] = case.config[2]
        file.write_text(json.dumps(config))


def _status_of(case: Case) -> tuple[int, str]:
    os.environ.update(case.settings)
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace"), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            from rmtbase.cli._app import run

            status = run(list(case.arguments))
    except BaseException as error:
        return 1, f"{type(error).__name__}: {error}\n{''.join(traceback.format_tb(error.__traceback__)[-3:])}"
    return status, err.getvalue()[-600:] if status not in RIGHT or "Traceback" in err.getvalue() else ""


def warm() -> None:
    """Import what the commands take in, so that their children have it."""
    for name in (
        "jax",
        "matplotlib.figure",
        "torch",
        "transformers",
        "rmtbase.results.scores",
        "rmtbase.results.figures",
        "rmtbase.results.scores.page",
    ):
        __import__(name)


def cases_of(kinds: Sequence[str], count: int, seed: int, configs: dict[str, dict[str, Any]]) -> list[Case]:
    """So many cases, of each kind its share."""
    whole = sum(SHARES[kind] for kind in kinds)
    return [
        case_of(kind, seed, number, configs) for kind in kinds for number in range(round(count * SHARES[kind] / whole))
    ]


def run_all(root: Path, cases: Sequence[Case]) -> Iterator[Ended]:
    """Those with an environment first, each alone; then the others in groups."""
    alone = [case for case in cases if case.settings]
    for case in alone:
        yield from run_together(root, [case])
    others = [case for case in cases if not case.settings]
    if others:
        warm()
    for group in itertools.batched(others, TOGETHER) if sys.version_info >= (3, 12) else _batched(others):
        yield from run_together(root, group)


def _batched(cases: Sequence[Case]) -> Iterator[Sequence[Case]]:
    for start in range(0, len(cases), TOGETHER):
        yield cases[start : start + TOGETHER]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases, print the counts and what is wrong, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", choices=KINDS, default=[])
    parser.add_argument("--replay", action="append", default=[], help="KIND:SEED:NUMBER")
    parser.add_argument("--json", type=Path, help="where the record of every case is written")
    given = parser.parse_args(arguments)
    began, ended, kinds = time.monotonic(), [], given.kind or list(KINDS)
    with tempfile.TemporaryDirectory(prefix="values-") as folder:
        root = Path(folder)
        configs = make_originals(root, kinds)
        cases = [
            case_of(kind, int(seed), int(number), configs)
            for kind, seed, number in (r.split(":") for r in given.replay)
        ]
        for one in run_all(root, cases or cases_of(kinds, given.cases, given.seed, configs)):
            ended.append(one)
            if len(ended) % _SAID_EVERY == 0:
                print(f"{len(ended)} cases, {sum(each.wrong for each in ended)} wrong", file=sys.stderr, flush=True)
            if one.wrong:
                print(f"wrong [{one.status}, {one.cpu:.0f} s] {one.case}\n    {one.said.strip()[-500:]}", flush=True)
    for kind in dict.fromkeys(one.case.kind for one in ended):
        of = [one for one in ended if one.case.kind == kind]
        count = Counter(one.status for one in of)
        wrong, slowest = sum(one.wrong for one in of), max(one.cpu for one in of)
        print(
            f"{kind:<12}{len(of):>6} cases: {count[0]} status 0, {count[2]} status 2, {wrong} wrong; "
            f"{slowest:.1f} s of CPU at most"
        )
    print(f"{len(ended)} cases in {time.monotonic() - began:.0f} s")
    if given.json:
        given.json.write_text(json.dumps([[str(one.case), one.status, one.said, one.cpu] for one in ended]))
    return int(any(one.wrong for one in ended))


if __name__ == "__main__":
    sys.exit(main())
