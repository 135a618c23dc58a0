"""Proof of attention sites with a model's real weights: q·k in its own forward pass equals xᵀ W_QK x′ for each head.

The two sides of each product are decided by interventions, not by the trace that found the site: another query at one
token changes whole rows of the logits, while another key changes one entry of many rows. Code of a module in memory
that cannot be traced, or that must not run just for a proof, is a reason not to prove it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
import transformers
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rmtbase.errors import CheckpointError
from rmtbase.models.forward._probe_events import Laid, Numbers, Origin, PassKind, noise
from rmtbase.models.forward._probe_forward import run
from rmtbase.models.forward._probe_network import Part, written_out
from rmtbase.models.forward._probe_places import Met
from rmtbase.models.layouts._expressions import Expression, Product, Read, Rows, Scaled, Stacked
from rmtbase.models.layouts._sites import Disproved, Site, common_module
from rmtbase.shown import quoted

TOLERANCE = 1e-9  # largest accepted deviation of q·k, relative to the head's largest |xᵀ W_QK x′|


def prove_parts(
    sites: Sequence[Site],
    parts: Sequence[Part],
    stored: Mapping[str, Expression],
    read: Read,
    path: Path,
    own_parameters: Mapping[str, nn.Parameter] | None = None,
) -> tuple[Site, ...]:

    def weight(name: str) -> Tensor:
        if own_parameters is not None:
            return own_parameters[name].detach().cpu().float().double()
        matrix = stored[name].evaluate(read)  # a stored tensor or rows of it, in its own precision
        return torch.from_numpy(np.ascontiguousarray(matrix, dtype=np.float64))

    proved: set[Site] = set()
    for part in parts:
        chosen: dict[str, _Pair] = {}
        for softmax, met in part.met.items():
            queries, both = (
                {name for one in names if one in stored for name in stored[one].tensors()}
                for names in (met.site.query.tensors() if met.site.query else (), met.site.query_key_tensors())
            )
            left = [site for site in sites if site not in proved and {*site.query_key_tensors()} == both]
            left.sort(key=lambda site: site.query is not None and {*site.query.tensors()} != queries)
            if left:  # two sites have the same tensors if each attends to the other
                proved.add(left[0])
                chosen[softmax] = met, left[0]
        if not chosen:
            continue
        proof = _Proof(chosen.values(), weight, read, path)
        with written_out(part.module):
            decided = _queries_move_rows(part, {softmax: met for softmax, (met, _) in chosen.items()})
            for softmax, (met, site) in chosen.items():
                if softmax not in decided:
                    raise CheckpointError(path, f"{site.place}: its softmax was not met again")
                moves = decided[softmax]
                if moves or met.site.query == met.site.key:
                    continue
                names = [", ".join(dict.fromkeys(side.tensors())) for side in (met.site.query, met.site.key) if side]
                if moves is None:
                    described = f"{site.place}: the queries of {names[0]} are not told from the keys of {names[1]}"
                    why = "not just one of them changes rows of the logits as a whole"
                    raise CheckpointError(path, f"{described}: {why}")
                described = f"{site.place}: one token of {names[1]} changes rows of the logits as a whole"
                raise Disproved(path, f"{described}, as queries do; expected that of {names[0]}")
            run(part.module, part.inputs, Numbers(), PassKind(real=proof), part.prefix)
        for (_, site), *_ in proof.left.values():
            raise CheckpointError(path, f"{site.place}: its product of queries and keys was not met again")
    return tuple(site for site in sites if site in proved)


_Pair = tuple[Met, Site]  # a site as it was traced, and as it is read
_Starts = tuple[str, Int[np.ndarray, " row"]]  # a parameter, and where the rows of a map start in it
_MOST_TOKENS = 2**62
_TOKENS = (5, 2, 1, 0)
"""Tokens that are changed, until one shows the sides: behind a causal mask, the first sees only one key."""


def _queries_move_rows(part: Part, mets: Mapping[str, Met]) -> dict[str, bool | None]:
    """Decide for each site, by the key of its softmax, whether its traced queries are the queries of its logits."""
    of_sides = attrgetter("query"), attrgetter("key")
    sides = [{key: _starts(of_side(met.site), part) for key, met in mets.items()} for of_side in of_sides]
    maps = frozenset(name for side in sides for starts in side.values() for name, _ in starts)
    before = _MadeUp(part, maps, [], range(0))
    met_again = [key for key in mets if key in before.scores]
    decided: dict[str, bool | None] = dict.fromkeys(met_again)
    for together in (met_again, *([key] for key in met_again)):
        left = [key for key in together if not decided[key]]
        decided |= dict.fromkeys(left)
        queries, keys = ([starts for key in left for starts in side[key]] for side in sides)
        everywhere = _MadeUp(part, maps, queries, range(_MOST_TOKENS)) if left else before
        for token in _TOKENS:
            left = [key for key in left if decided[key] is None]
            if left:
                passes = [_MadeUp(part, maps, side, range(token, token + 1)) for side in (queries, keys)]
                decided |= {key: _moves_rows(key, mets[key], before, everywhere, *passes) for key in left}
    return decided


def _starts(matrix: Expression | None, part: Part) -> list[_Starts]:
    match matrix:
        case Product((outermost, *_)) | Scaled(outermost, _) | Rows(Product() | Stacked() | Scaled() as outermost, _):
            return _starts(outermost, part)
        case Stacked(parts):
            return [starts for part_of_stack in parts for starts in _starts(part_of_stack, part)]
        case Expression():
            (name,) = matrix.tensors()
            shape = part.module.get_parameter(name.removeprefix(part.prefix)).shape
            return [(name, matrix.evaluate(lambda _: np.arange(shape.numel()).reshape(shape))[:, 0])]
    return []


class _MadeUp:
    def __init__(self, part: Part, maps: frozenset[str], replaced_rows: Sequence[_Starts], tokens: range) -> None:
        self.operands: dict[str, tuple[float, float]] = {}  # sums of the left and the right one of each product
        self.maps, self._others, self._tokens = maps, replaced_rows, tokens
        torch.manual_seed(0)  # the same choices of tokens in each pass, as Informer draws them
        softmaxes = run(part.module, part.inputs, Numbers(), PassKind(real=self), part.prefix).softmaxes
        scores = {key: (softmax.scores.nan_to_num().numpy(), softmax.axis) for key, softmax in softmaxes.items()}
        self.scores = {key: np.moveaxis(values, axis, -1) for key, (values, axis) in scores.items()}

    def apply(self, name: str, values: Tensor, starts: Tensor, laid: Laid, origin: Origin) -> Tensor:
        result, change = (noise(key, (*values.shape[:-1], starts.shape[-1])) for key in (name, f"other {name}"))
        rows = np.concatenate([np.zeros(0, int), *(rows for weight, rows in self._others if weight == name)])
        is_other = torch.isin(starts, torch.from_numpy(rows)).expand(result.shape).flatten(0, -2).clone()
        is_other[: self._tokens.start], is_other[self._tokens.stop :] = False, False
        small = 2.0**-10  # which changes no choice of tokens
        return result + small * change * is_other.view(result.shape)

    def met(self, product: str, left: Tensor, right: Tensor) -> None:
        self.operands[product] = float(left.sum()), float(right.sum())


def _moves_rows(
    key: str, met: Met, before: _MadeUp, everywhere: _MadeUp, other_query: _MadeUp, other_key: _MadeUp
) -> bool | None:
    """Return True if another query changes rows of logits as a whole, False if another key does, and None otherwise."""
    passes = everywhere, other_query, other_key
    changes = [np.abs(forward_pass.scores[key] - before.scores[key]) for forward_pass in passes]
    depends, *by_side = (change > 1e-9 * changes[0].max() for change in changes)
    rows = [changed.any(axis=-1) for changed in by_side]
    several = depends.sum(axis=-1) > 1
    is_whole = [
        bool((moved & several).any()) and np.array_equal(changed[moved & several], depends[moved & several])
        for moved, changed in zip(rows, by_side, strict=True)
    ]
    if not any((moved & several).any() for moved in rows) and all(moved.any() for moved in rows):
        is_whole = [bool(rows[i].sum() < rows[1 - i].sum()) for i in range(2)]
    if is_whole[0] == is_whole[1]:
        return None
    sums = zip(before.operands[met.product], everywhere.operands[met.product], strict=True)
    left_moves, right_moves = (before_sum != after_sum for before_sum, after_sum in sums)
    return is_whole[0] and (left_moves, right_moves) == (met.queries_left, not met.queries_left)


class _Proof:
    def __init__(self, sites: Collection[_Pair], weight: Callable[[str], Tensor], read: Read, path: Path) -> None:
        self.left: dict[str, list[_Pair]] = {}
        self._weight, self._read, self._path = weight, read, path
        self.maps: dict[str, frozenset[str]] = {}  # by the name of a map, the maps of its site
        for met, site in sites:
            self.left.setdefault(met.product, []).append((met, site))
            names = frozenset(met.site.query_key_tensors())
            for name in names:
                self.maps[name] = self.maps.get(name, frozenset()) | names
        self._leaves: dict[str, Float[np.ndarray, "2 d_in"]] = {}

    def apply(self, name: str, values: Tensor, starts: Tensor, laid: Laid, origin: Origin) -> Tensor:
        """Apply a map to two tokens of noise in the Thue-Morse sequence, which has both at every stride."""
        if not (origin.maps and origin.maps <= self.maps[name]):  # otherwise the input is a factor's output
            width = values.shape[-1]
            two = torch.randn(2, width, generator=torch.Generator().manual_seed(width), dtype=torch.float64)
            self._leaves[name] = two.numpy()
            values = two[[token.bit_count() % 2 for token in range(values[..., 0].numel())]].view(values.shape)
        return values @ laid(self._weight(name).flatten())

    def met(self, product: str, left: Tensor, right: Tensor) -> None:
        for met, site in self.left.pop(product, ()):
            self._compare(met, site, left, right)

    def _compare(self, met: Met, site: Site, left: Tensor, right: Tensor) -> None:
        queries, keys = (left.numpy(), right.numpy()) if met.queries_left else (right.numpy(), left.numpy())
        queries = queries[:, : met.heads.shape[1]]
        of_queries = self._leaf(met.site.query)
        of_keys = self._leaf(met.site.key)
        products = queries @ keys.swapaxes(1, 2) / met.factor  # (n, query token, key token)
        expected = self._expected(site, met.site, of_queries, of_keys)[met.heads]  # (n, query token, 2, 2)
        present = np.any(keys != 0, axis=-1)[:, None, :, None, None]  # without the padding of a window
        size = np.abs(expected).max(axis=(-1, -2))
        off = np.where(present, np.abs(products[..., None, None] - expected[:, :, None]), 0.0)
        equal = (present & (off <= TOLERANCE * size[..., None, None, None])).any(axis=(0, 1, 2))  # pairs of the noise
        off = off.min(axis=-1).max(axis=2)  # nearest key token of the noise, worst key; (n, query token, 2)
        wrong = off.min(axis=-1) / np.maximum(size, np.finfo(float).tiny)
        if np.all(wrong < TOLERANCE):
            if not (equal[0, 1] and equal[1, 0]):  # these alone show that queries and keys are exchanged
                raise CheckpointError(self._path, f"{site.place}: no query meets the key of another token of the noise")
            return
        n, token = np.unravel_index(np.argmax(wrong), wrong.shape)
        head = int(met.heads[n, token])
        raise Disproved(
            self._path,
            f"{site.place} head {head}: q·k of {met.site.module} is {products[n, token, 0]:.6g} for an input of noise; "
            f"expected {' or '.join(f'{product:.6g}' for product in expected[n, token].ravel())}, as W_QK of "
            f"{', '.join(sorted(site.query_key_tensors()))} gives it",
        )

    def _leaf(self, matrix: Expression | None) -> np.ndarray:
        return next(self._leaves[name] for name in (matrix.tensors() if matrix else ()) if name in self._leaves)

    def _expected(self, site: Site, traced: Site, of_queries: np.ndarray, of_keys: np.ndarray) -> np.ndarray:
        for name in ("n_heads", "n_key_heads", "d_head", "d_query", "d_key", "logit_scale"):
            size, expected = getattr(site, name), getattr(traced, name)
            if name == "logit_scale":
                differs = None not in (size, expected) and not np.isclose(size, expected, rtol=1e-6, atol=0)
            else:
                differs = size != expected and (name != "n_key_heads" or traced.n_heads % size)
            if differs:
                expectation = f"expected {expected}, as {traced.module} has it"
                raise Disproved(self._path, f"{site.place}: {name.replace('logit_', 'logit ')} {size}; {expectation}")
        assert site.query is not None and site.key is not None
        images: dict[tuple[Expression, bytes], np.ndarray] = {}
        query, key = (
            _image(matrix, x, self._read, images) for matrix, x in ((site.query, of_queries), (site.key, of_keys))
        )
        query_heads = query.reshape(2, site.n_heads, site.d_head)
        key_heads = key.reshape(2, site.n_key_heads, site.d_head).repeat(site.n_heads // site.n_key_heads, axis=1)
        return np.einsum("ihd,jhd->hij", query_heads, key_heads)


def _image(
    matrix: Expression, x: Float[np.ndarray, "n d_in"], read: Read, images: dict[tuple[Expression, bytes], np.ndarray]
) -> Float[np.ndarray, "n d_out"]:
    """Compute x Wᵀ in float64. Products of weights are not formed, and results are shared between matrices."""
    key = matrix, x.tobytes()
    if key not in images:
        match matrix:
            case Product(factors):
                image = x
                for factor in factors[::-1]:
                    image = _image(factor, image, read, images)
            case Stacked(parts):
                image = np.concatenate([_image(part, x, read, images) for part in parts], axis=1)
            case Rows(whole, runs):
                inner = _image(whole, x, read, images)
                image = np.concatenate([inner[:, start:stop:step] for start, stop, step in runs], axis=1)
            case Scaled(whole, factor):
                image = factor * _image(whole, x, read, images)
            case _:
                image = x @ matrix.evaluate(read).T.astype(np.float64)
        images[key] = image
    return images[key]


_LIBRARIES = ("torch.", "transformers.")
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def attention_of(network: nn.Module, site: Site, weights: Sequence[str]) -> str:
    for place in (site.module or common_module(weights), common_module(weights)):
        try:
            is_a_map = next(network.get_submodule(place).children(), None) is None
        except AttributeError:  # the site has the names of stored tensors
            continue
        return place.rpartition(".")[0] if is_a_map else place
    return site.module


def reasons_not_to_run(
    wrapper: nn.Module, module: nn.Module, attention: Collection[str], weights: Collection[str]
) -> Iterator[str]:
    for kind in _GLOBAL_HOOKS:
        for hook in getattr(nn.modules.module, kind).values():
            yield f"a forward hook of all modules, {_called(hook)}, may change what it computes"
    for path, submodule in wrapper.named_modules():
        where = quoted(path) if path else "the module itself"
        for kind in _HOOKS:
            for hook in getattr(submodule, kind, {}).values():
                pre = "pre-" if "pre" in kind else ""
                yield f"a forward {pre}hook on {where}, {_called(hook)}, may change what it computes"
        if isinstance(submodule, torch.jit.ScriptModule):
            yield f"{where} is TorchScript, whose operations are not seen"
        if getattr(submodule, "_compiled_call_impl", None) is not None or type(submodule).__name__ == "OptimizedModule":
            yield f"{where} is compiled, which hides its products; pass the module as it was before torch.compile"
        for name, value in vars(submodule).items():
            if callable(value) and isinstance(getattr(type(submodule), name, None), (FunctionType, MethodType)):
                yield f"{name} of {where} was replaced on the instance"
        if parametrize.is_parametrized(submodule):
            names = ", ".join(submodule.parametrizations)  # pyright: ignore[reportArgumentType, reportCallIssue]
            yield f"{names} of {where} is computed from other tensors (torch.nn.utils.parametrize)"
    values = dict(module.named_parameters(remove_duplicate=False))
    for name in weights:
        if name in values and values[name].is_meta:
            yield f"{quoted(name)} is on torch's meta device, without values"
    configs = (getattr(part, "config", None) for part in module.modules())
    for config in {id(config): config for config in configs}.values():
        name = getattr(config, "_attn_implementation", None)
        if not isinstance(name, str) or name.removeprefix("paged|") in ("eager", "flex_attention"):
            continue
        function = ALL_ATTENTION_FUNCTIONS.get(name)
        if function is None or not _is_of_the_libraries(function):
            function_found = "is unknown to transformers" if function is None else f"is {_called(function)}"
            yield f"its attention implementation {quoted(name)} {function_found}, whose products are not known"
    for path, submodule in module.named_modules() if isinstance(module, transformers.PreTrainedModel) else ():
        if not any(path == place or path.startswith(f"{place}.") or not place for place in attention):
            continue
        for name in ("forward", "__call__"):
            if not _is_of_the_libraries(getattr(type(submodule), name)):
                yield f"{quoted(path)} computes with {type(submodule).__name__}.{name}, of neither library"


def _is_of_the_libraries(function: Any) -> bool:
    """Return True if all code of a function, including what it wraps, belongs to torch or ``transformers``."""
    while function is not None:
        inner = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
        written = getattr(function, "__globals__", None)  # not __module__, which functools.wraps copies to a wrapper
        if written is not None and not f"{written.get('__name__')}.".startswith(_LIBRARIES):
            return False
        if written is None and inner is None:
            return f"{getattr(function, '__module__', None)}.".startswith(_LIBRARIES)
        function = inner
    return True


def _called(function: Any) -> str:
    return quoted(getattr(function, "__qualname__", None) or type(function).__name__)
