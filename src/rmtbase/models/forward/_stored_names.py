"""Expression of a network's parameters over the tensors in a checkpoint, by the renaming rules of ``transformers``.

To follow its splits, concatenations and permutations, these are applied to row numbers in place of weights.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor as TorchTensor
from torch import nn
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    dot_natural_key,
    rename_source_key,
    revert_weight_conversion,
)

from rmtbase.errors import CheckpointError
from rmtbase.models.forward._probe_places import module_of
from rmtbase.models.layouts._expressions import Expression, Stacked, Tensor, take_rows
from rmtbase.models.layouts._sites import NORM_FIELDS, Norm, Site, common_module
from rmtbase.shown import quoted

_SHIFT = 2**32


def stored_parameters(
    network: nn.Module, stored: Mapping[str, tuple[int, ...]], needed: Iterable[str]
) -> dict[str, Expression]:
    if not isinstance(network, transformers.PreTrainedModel):
        return {name: Tensor(name) for name in needed if name in stored}
    transforms = get_model_conversion_mapping(network)
    renamings = [rule for rule in transforms if isinstance(rule, WeightRenaming)]
    converters = [rule for rule in transforms if isinstance(rule, WeightConverter)]
    state = network.state_dict()
    plain: dict[str, Expression] = {}
    converted: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name in sorted(stored, key=dot_natural_key):
        renamed, pattern = rename_source_key(name, renamings, converters, network.base_model_prefix, state)
        if renamed not in state and name in state:
            renamed, pattern = rename_source_key(name, [], [], network.base_model_prefix, state)
        if pattern is None:
            plain.setdefault(renamed, Tensor(name))
        else:
            converted[renamed].append((name, pattern))
    aliases = defaultdict(list)
    for name, parameter in network.named_parameters(remove_duplicate=False):
        aliases[id(parameter)].append(name)
    shared = {name: names_shared for names_shared in aliases.values() for name in names_shared}
    result: dict[str, Expression] = {}
    for name in needed:
        aliases_of = shared.get(name, [name])
        expression = next((plain[alias] for alias in aliases_of if alias in plain), None)
        expression = expression or _converted(network, name, converted, converters, stored)
        if expression is not None:
            result[name] = expression
    return result


def names_in_modules(network: nn.Module, stored: Iterable[str]) -> dict[str, str]:
    if not isinstance(network, transformers.PreTrainedModel):
        return {}
    renamings = [rule for rule in get_model_conversion_mapping(network) if isinstance(rule, WeightRenaming)]
    prefix, state = network.base_model_prefix, network.state_dict()
    return {rename_source_key(name, renamings, [], prefix, state)[0]: name for name in stored}


def as_saved(network: nn.Module, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return a module's tensors as ``transformers`` saves them: without aliases, under other names, in other pieces."""
    if not isinstance(network, transformers.PreTrainedModel):
        return dict(tensors)
    tied = getattr(network, "all_tied_weights_keys", {})
    pairs = [(alias, name) for alias, name in tied.items() if alias in tensors and name in tensors]
    aliases = {alias for alias, name in pairs if tensors[alias].data_ptr() == tensors[name].data_ptr()}
    tensors = {name: tensor for name, tensor in tensors.items() if name not in aliases}
    shapes = {name: torch.empty(tensor.shape, dtype=tensor.dtype, device="meta") for name, tensor in tensors.items()}
    try:
        saved = {id(shape): name for name, shape in revert_weight_conversion(network, dict(shapes)).items()}
        renamed = {name: saved[id(shape)] for name, shape in shapes.items() if id(shape) in saved}
        in_pieces = {name: tensor for name, tensor in tensors.items() if name not in renamed and tensor.ndim < 3}
        rearranged = revert_weight_conversion(network, in_pieces) if in_pieces else {}
    except Exception:  # a quantiser's conversion may have no inverse, or need values
        return dict(tensors)
    return rearranged | {renamed.get(name, name): tensor for name, tensor in tensors.items() if name not in in_pieces}


def parameters_of(
    network: nn.Module, stored: Mapping[str, tuple[int, ...]], sites: Iterable[frozenset[str]]
) -> dict[str, Expression]:
    """Express the parameters that contain stored tensors of the sites; only the sites' own modules are searched."""
    sites = list(sites)
    modules = tuple({common_module(names) for names in sites})
    near = {name: shape for name, shape in stored.items() if name.startswith(modules)}
    needed = frozenset().union(*sites)
    expressions = stored_parameters(network, near, [name for name, _ in network.named_parameters()])
    return {name: expression for name, expression in expressions.items() if not needed.isdisjoint(expression.tensors())}


def _converted(
    network: transformers.PreTrainedModel,
    name: str,
    converted: Mapping[str, list[tuple[str, str]]],
    converters: list[WeightConverter],
    stored: Mapping[str, tuple[int, ...]],
) -> Expression | None:
    parent = name.rsplit(".", 2)[0]
    for target, sources in converted.items():
        if not target.startswith(parent) or any(len(stored[source]) != 2 for source, _ in sources):
            continue
        converter = deepcopy(next(candidate for candidate in converters if sources[0][1] in candidate.source_patterns))
        for number, (source, pattern) in enumerate(sources):
            rows = number * _SHIFT + torch.arange(stored[source][0])[:, None].expand(-1, 2) * 2 + torch.arange(2)
            converter.add_tensor(target, source, pattern, rows)  # pyright: ignore[reportArgumentType]
        made = converter.convert(target, model=network, config=network.config)
        if name in made:
            return _rows(made[name], [source for source, _ in sources], stored)
    return None


def _rows(made: TorchTensor | list[TorchTensor], sources: list[str], stored: Mapping[str, Any]) -> Expression | None:
    numbers = made[0] if isinstance(made, list) else made
    if numbers.ndim != 2 or numbers.shape[1] != 2 or not torch.equal(numbers[:, 1], numbers[:, 0] + 1):
        return None
    stacked = Stacked(tuple(Tensor(source) for source in sources)) if len(sources) > 1 else Tensor(sources[0])
    before = [sum(stored[source][0] for source in sources[:place]) for place in range(len(sources))]
    rows = [before[number // _SHIFT] + number % _SHIFT // 2 for number in numbers[:, 0].tolist()]
    return stacked if rows == list(range(len(rows))) and len(sources) > 1 else take_rows(stacked, rows)


def as_stored(site: Site, parameters: Mapping[str, Expression], path: Path) -> Site:
    def of(value: Any) -> Any:
        if isinstance(value, Tensor):
            if value.name not in parameters:
                problem = f"no stored tensor belongs to the network's {quoted(value.name)}"
                raise CheckpointError(path, f"{problem}; expected it for {site.place}")
            stored = parameters[value.name]
            if isinstance(stored, Tensor):
                return replace(value, name=stored.name)
            if value != Tensor(value.name):
                raise CheckpointError(path, f"{quoted(value.name)} is made of several stored tensors; expected one")
            return stored
        if isinstance(value, tuple):
            return tuple(map(of, value))
        if isinstance(value, Expression) and is_dataclass(value):
            return replace(value, **{field_.name: of(getattr(value, field_.name)) for field_ in fields(value)})
        return value

    matrices = {name: of(getattr(site, name)) for name in ("query", "key", "value", "output")}
    names = {side: () if matrix is None else matrix.tensors() for side, matrix in matrices.items()}
    module = module_of(names["query"], names["key"], (*names["value"], *names["output"]))
    norms = {name: _norm(getattr(site, name), parameters) for name in NORM_FIELDS}
    return replace(site, **matrices, **norms, module=module)


def _norm(norm: Norm | None, parameters: Mapping[str, Expression]) -> Norm | None:
    if norm is None:
        return None
    names: list[str | None] = []
    for name in (norm.gain, norm.bias):
        stored = None if name is None else parameters.get(name)
        if name is not None and not isinstance(stored, Tensor):
            return None
        names.append(stored.name if isinstance(stored, Tensor) else None)
    return norm._replace(gain=names[0], bias=names[1])
