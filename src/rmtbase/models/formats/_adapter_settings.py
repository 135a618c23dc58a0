"""Settings of a low-rank adapter of PEFT, and the tensors of its updates checked against them: docs/adapters.md."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial, reduce
from math import prod, sqrt
from pathlib import Path
from typing import Any, NamedTuple

from rmtbase.errors import CheckpointError, ParameterError, ShapeError
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.files._other_formats import MERGED, adapter_in_words
from rmtbase.reasons import packaged_texts
from rmtbase.shown import quoted, shown

# Function that maps the positions of a text at which a part of a pattern begins to those at which it ends.
_Ends = Callable[[str, frozenset[int]], frozenset[int]]

_LONGEST = 4_000  # characters of a pattern
_DEEPEST = 40  # levels of nested groups
_MOST_COPIES = 200  # counted repetitions
_ATOM = re.compile(
    r"\\[dDwWsSbBAZ]|\\[^A-Za-z0-9]|\\[tn]|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[\]()|*+?{}]|[\]{}]", re.DOTALL
)
_TIMES = re.compile(r"(?:[*+?]|\{(?P<least>\d{0,4})(?P<more>,(?P<most>\d{0,4}))?\})")
_GROUP = re.compile(r"\((?:\?(?::|P<\w+>|(?P<ahead>[=!])))?(?!\?)")


def matches(pattern: str, name: str) -> bool:
    return len(name) in _compiled(pattern)(name, frozenset((0,)))


def first_match(patterns: Iterable[str], module: str) -> str | None:
    """Return the first pattern that matches a module's whole name or its end after a dot, or None."""
    return next((pattern for pattern in patterns if matches(rf"(.*\.)?({pattern})", module)), None)


def is_targeted(settings: Mapping[str, Any], module: str) -> bool:
    """Return True if the settings of an adapter select a module, by name or because all linear maps are selected."""
    targets, excluded = settings.get("target_modules"), settings.get("exclude_modules")
    if isinstance(excluded, str) and excluded and matches(excluded, module):
        return False
    if isinstance(excluded, list) and _ends_with(module, excluded):
        return False
    saved = settings.get("modules_to_save")
    if isinstance(saved, list) and any(matches(rf"(.*\.)?({module_saved})(\..*)?", module) for module_saved in saved):
        return False
    if isinstance(targets, str):
        return targets.lower() == "all-linear" or matches(targets, module)
    if not isinstance(targets, list):
        return targets is not None or settings.get("target_parameters") is None
    if module in targets:
        return True
    return _ends_with(module, targets) and _is_of_layers(settings, module)


def _ends_with(module: str, names: Iterable[Any]) -> bool:
    return any(f".{module}".endswith(f".{ending}") for ending in names if isinstance(ending, str))


def _is_of_layers(settings: Mapping[str, Any], module: str) -> bool:
    layers, words = settings.get("layers_to_transform"), settings.get("layers_pattern")
    if layers is None or layers == []:
        return True
    if not words:
        found = re.match(r".*?\.[^.]*\.(\d+)\.", module)
        return found is not None and int(found[1]) in (layers if isinstance(layers, list) else [layers])
    for word in [words] if isinstance(words, str) else words:
        if "|" in re.sub(r"\(.*\)", "", word):  # PEFT does not group it, so that the alternatives split its own pattern
            raise ParameterError("layers_pattern", shown(word, 80), "words without alternatives")
        # The layer's number is the first one after the word.
        for number in re.finditer(r"\.(\d+)(?=\.)", module):
            if first_match([word], module[: number.start()]) is not None:
                return int(number[1]) in (layers if isinstance(layers, list) else [layers])
    return False


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> _Ends:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ParameterError("pattern", shown(pattern, 80), f"a regular expression ({error})") from error
    if len(pattern) > _LONGEST:
        raise ParameterError("pattern", shown(pattern, 80), f"one of at most {_LONGEST} characters")
    return _alternatives(pattern, 0, 0)[0]  # which ends with the pattern: its brackets are balanced


def _unread(pattern: str, position: int) -> ParameterError:
    part = shown(pattern[position : position + 12], 12)
    return ParameterError("pattern", shown(pattern, 80), f"one without {part}, which is not read")


def _alternatives(pattern: str, position: int, depth: int) -> tuple[_Ends, int]:
    if depth > _DEEPEST:
        raise ParameterError("pattern", shown(pattern, 80), f"one of at most {_DEEPEST} groups within each other")
    alternatives: list[list[_Ends]] = [[]]
    while position < len(pattern) and pattern[position] != ")":
        if pattern[position] == "|":
            alternatives.append([])
            position += 1
            continue
        part, position = _part(pattern, position, depth)
        alternatives[-1].append(part)

    def ends(text: str, starts: frozenset[int]) -> frozenset[int]:
        in_turn = (reduce(lambda reached, part: part(text, reached), parts, starts) for parts in alternatives)
        return frozenset().union(*in_turn)

    return ends, position


def _part(pattern: str, position: int, depth: int) -> tuple[_Ends, int]:
    is_group = pattern[position] == "("
    begun = (_GROUP if is_group else _ATOM).match(pattern, position)
    if begun is None:
        raise _unread(pattern, position)
    if is_group:
        inner, position = _alternatives(pattern, begun.end(), depth + 1)
        part = partial(_ahead, inner, begun["ahead"] == "=") if begun["ahead"] else inner
        position += 1
    else:
        part, position = partial(_atom, re.compile(begun[0])), begun.end()
    times = _TIMES.match(pattern, position)
    if times is None or times[0] == "{}":
        return part, position
    if pattern[times.end() : times.end() + 1] == "+":
        raise _unread(pattern, position)
    position = times.end() + (pattern[times.end() : times.end() + 1] == "?")  # lazy ones have the same ends
    least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(times[0], (None, None))
    if least is None:
        least = int(times["least"] or 0)
        most = (int(times["most"]) if times["most"] else None) if times["more"] else least
    if max(least, most or 0) > _MOST_COPIES:
        raise ParameterError("pattern", shown(pattern, 80), f"one that repeats nothing more than {_MOST_COPIES} times")
    return partial(_repeated, part, least, most), position


def _atom(compiled: re.Pattern[str], text: str, starts: frozenset[int]) -> frozenset[int]:
    return frozenset(match.end() for start in starts if (match := compiled.match(text, start)))


def _ahead(inner: _Ends, is_positive: bool, text: str, starts: frozenset[int]) -> frozenset[int]:
    return frozenset(start for start in starts if bool(inner(text, frozenset((start,)))) == is_positive)


def _repeated(part: _Ends, least: int, most: int | None, text: str, starts: frozenset[int]) -> frozenset[int]:
    for _ in range(least):
        before, starts = starts, part(text, starts)
        if starts == before:
            break
    ends = reached = starts
    for _ in range(len(text) + 1 if most is None else most - least):
        reached = part(text, reached) - ends
        if not reached:
            break
        ends |= reached
    return ends


_BASE = "the base model alone"
_LORA = "adapters of peft_type LORA"
_INITIALISED = ("true", "false", "none", "gaussian", "eva", "orthogonal", "mica")  # these do not change the base
_CHANGE_THE_BASE = re.compile(r"pissa(_niter_\d+)?|olora|corda|loftq|lora_ga")


class Update(NamedTuple):
    weight: str  # the name of the weight in the model
    a: str  # the name of A (r, d_in) in the adapter's file; of a convolution, d_in has the kernel's places in it
    b: str  # the name of B (d_out, r)
    scale: float  # s
    magnitude: str | None  # for DoRA, the name of m (d_out); otherwise None
    bias: str | None  # the name of b (d_out) where s b is added to the module's bias; otherwise None
    of_parameter: bool  # whether the weight was targeted as a parameter, so that ΔW has the shape in which it is stored
    of_map: bool  # whether the module is a linear map, neither a convolution nor an embedding
    is_targeted: bool  # whether the settings target the module or the parameter

    @property
    def may_lack(self) -> bool:
        return self.of_parameter or is_outside(self.weight)

    def is_turned(self, adapter: Checkpoint, base: Checkpoint, name: str) -> bool | None:
        """Return whether the base stores (d_in, d_out), judged by the shape; None for a square weight."""
        d_out, d_in = adapter.shape(self.b)[0], prod(adapter.shape(self.a)[1:])
        shape = base.shape(name)
        flat = (*shape[:1], prod(shape[1:]))
        if flat not in (((d_out, d_in),) if self.of_parameter else ((d_out, d_in), (d_in, d_out))):
            raise ShapeError(base.file(name), name, shape, (d_out, d_in), f"of the adapter {adapter.path.name}")
        of_embedding = ".lora_embedding_" in self.a
        if of_embedding or self.of_parameter:
            return of_embedding
        return None if d_out == d_in else flat != (d_out, d_in)


def require_plain(config: Mapping[str, Any], path: Path) -> None:
    kind = config.get("peft_type")
    table = packaged_texts("rmtbase.models.formats", "adapters.toml")
    if kind != "LORA":
        reason = table["reasons"].get(table["not_in_weights"].get(kind) if isinstance(kind, str) else None)
        why = f", which {reason}; expected" if reason else f"; only {_LORA} are read; expected one, {MERGED}, or"
        raise CheckpointError(path.parent, f"holds {adapter_in_words(config)}{why} {_BASE}")
    unmerged, merged = table["settings"]["never_merged"], table["settings"]["merged_by_peft"]
    for key, value in config.items():
        if value and key not in table["settings"]["known"]:
            reason = {**unmerged, **merged}.get(key, "is not known here")
            advice = _BASE if key in unmerged else f"{MERGED}, or {_BASE}"
            raise CheckpointError(path, f"{shown(key, 60)} is set: the adapter {reason}; expected {advice}")
    start = shown(config.get("init_lora_weights", True), 60)
    if start.lower() not in _INITIALISED:
        changes = _CHANGE_THE_BASE.fullmatch(start.lower()) is not None
        raise CheckpointError(
            path,
            f"init_lora_weights is {start}, which {'changes the base as well' if changes else 'is not known here'}; "
            f"expected an adapter that was saved with path_initial_model_for_weight_conversion, or {MERGED}",
        )


def is_outside(module: str) -> bool:
    return re.search(r"(^|\.)\d+(\.|$)", module) is None


def is_saved_outside(config: Mapping[str, Any], name: str) -> bool:
    listed = config.get("modules_to_save")
    endings = tuple(ending for ending in listed if isinstance(ending, str)) if isinstance(listed, list) else ()
    parts = name.split(".")[:-1]
    modules = (".".join(parts[: stop + 1]) for stop in range(len(parts)))
    return is_outside(next((module for module in modules if module.endswith(endings)), ".".join(parts)))


def rows_of_tokens(config: Mapping[str, Any], module: str, shape: tuple[int, ...], path: Path) -> list[int]:
    """Read the numbers of the tokens whose rows of an embedding are replaced by a tensor of this shape."""
    rows = config.get("trainable_token_indices")
    if isinstance(rows, dict):
        rows = next((tokens for ending, tokens in rows.items() if module.endswith(ending)), None)
    listed = rows if isinstance(rows, list) else []
    if not all(type(row) is int and row >= 0 for row in listed) or shape[:1] != (len(listed),):
        problem = f"trainable_token_indices has {quoted(rows, 80)} for {quoted(module)}"
        expected = f"the numbers of as many tokens as its tensor {shape} has rows, or {MERGED}"
        raise CheckpointError(path, f"{problem}; expected {expected}")
    return listed


def update_of(
    module: str, parts: Mapping[str, str], checkpoint: Checkpoint, config: Mapping[str, Any], path: Path
) -> Update | None:
    """Check the tensors of one update against each other and the settings; None if it is of several experts."""
    owner, *_ = module.split(".base_layer")  # the module that was targeted: torch's attention has its output inside
    try:
        is_plain = is_targeted(config, owner)
    except ParameterError as error:
        raise CheckpointError(path, f"target_modules, or what restricts them: {error}, or {MERGED}") from error
    parameters = []
    if not is_plain and isinstance(targets := config.get("target_parameters"), list):
        targeted = [str(target).rpartition(".") for target in targets]
        of_module = [name for ending, _, name in targeted if ending and f".{owner}".endswith(f".{ending}")]
        parameters = of_module or [name for ending, _, name in targeted if not ending]
    is_tied = bool(config.get("ensure_weight_tying")) and is_outside(module)
    of_embedding = any(part.startswith("lora_embedding") for part in parts)
    name_a, name_b = ("lora_embedding_A", "lora_embedding_B") if of_embedding else ("lora_A", "lora_B")
    expected = {name_a, name_b}
    expected |= {"lora_magnitude_vector"} if config.get("use_dora") else set()
    expected |= {"lora_B.bias"} if config.get("lora_bias") and not of_embedding else set()
    if parts.keys() != expected:
        problem = f"module {quoted(module)} has {', '.join(sorted(parts))}; expected {', '.join(sorted(expected))}"
        raise CheckpointError(path, problem)
    a, b = parts[name_a], parts[name_b]
    magnitude, bias = parts.get("lora_magnitude_vector"), parts.get("lora_B.bias")
    weight = f"{module.replace('.base_layer', '')}.{parameters[0] if parameters else 'weight'}"
    rank = _of_pattern(config, "rank_pattern", "r", weight if parameters else owner, path)
    alpha = _of_pattern(config, "alpha_pattern", "lora_alpha", weight if parameters else owner, path)
    shape_a, shape_b = checkpoint.shape(a), checkpoint.shape(b)
    if len(parameters) > 1 or (parameters and shape_a[:1] != (rank,)):
        return None
    if len(shape_a) < 2 or shape_a[0] != rank:
        raise ShapeError(checkpoint.file(a), a, shape_a, (int(rank), *shape_a[1:2]), f"{path.name}: r = {rank:g}")
    if len(shape_b) != len(shape_a) or shape_b[1:] != (rank, *[1] * (len(shape_b) - 2)):
        raise ShapeError(checkpoint.file(b), b, shape_b, (*shape_b[:1], int(rank)), f"{path.name}: r = {rank:g}")
    for name in (magnitude, bias):
        if name is not None and prod(checkpoint.shape(name)) != shape_b[0]:
            raise ShapeError(checkpoint.file(name), name, checkpoint.shape(name), shape_b[:1], "one for each output")
    scale = alpha / (sqrt(rank) if config.get("use_rslora") else rank)
    if module.endswith(".base_layer.out_proj"):
        scale *= 2  # the output of torch's attention: PEFT's forward pass and its merge add this update twice
    of_map = len(shape_a) == 2 and not of_embedding
    is_of_settings = is_plain or is_tied or bool(parameters)
    return Update(weight, a, b, scale, magnitude, bias, bool(parameters), of_map, is_of_settings)


def _of_pattern(config: Mapping[str, Any], pattern: str, otherwise: str, module: str, path: Path) -> float:
    """Return the value of the first pattern that matches the end of the module's name, or else the common setting."""
    patterns = config.get(pattern) or {}
    if not isinstance(patterns, Mapping):
        raise CheckpointError(path, f"{pattern} is no table of names of modules; expected one, or {MERGED}")
    try:
        key = first_match(patterns, module)
    except ParameterError as error:
        raise CheckpointError(path, f"{pattern}: {error}, or {MERGED}") from error
    value = config.get(otherwise) if key is None else patterns[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
        raise CheckpointError(path, f"{otherwise} is {shown(value, 60)}; expected a positive number")
    return value
