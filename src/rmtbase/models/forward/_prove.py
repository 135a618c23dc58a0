"""Proof of attention sites with a model's real weights: q·k in its own forward pass equals xᵀ W_QK x′ for each head.

The two sides of each product are decided by interventions, not by the trace that found the site: another query at one
token changes whole rows of the logits, while another key changes one entry of many rows.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from rmtbase.errors import CheckpointError
from rmtbase.models.forward._probe_events import Numbers, Origin, PassKind, noise
from rmtbase.models.forward._probe_network import Part, written_out
from rmtbase.models.forward._probe_places import Met
from rmtbase.models.forward._probe_running import run
from rmtbase.models.layouts._expressions import Expression, Product, Read, Rows, Scaled, Stacked
from rmtbase.models.layouts._sites import Disproved, Site

TOLERANCE = 1e-9
"""Largest accepted deviation of q·k, relative to the head's largest |xᵀ W_QK x′|."""


def prove_parts(
    sites: Sequence[Site],
    parts: Sequence[Part],
    stored: Mapping[str, Expression],
    read: Read,
    path: Path,
    own_parameters: Mapping[str, nn.Parameter] | None = None,
) -> tuple[Site, ...]:
    """Compare the products of queries and keys in each site's module with the site's expressions."""
    proved: set[Site] = set()
    for part in parts:
        chosen: dict[str, tuple[Met, Site]] = {}
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
        proof = _Proof(chosen.values(), stored, read, path, own_parameters)
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


def _starts(matrix: Expression | None, part: Part) -> list[tuple[str, Int[np.ndarray, " row"]]]:
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
    """Pass of a part with made-up outputs of maps, and with others at some tokens of the rows that start somewhere."""

    def __init__(
        self,
        part: Part,
        maps: frozenset[str],
        replaced_rows: Sequence[tuple[str, Int[np.ndarray, " row"]]],
        tokens: range,
    ) -> None:
        self.operands: dict[str, tuple[float, float]] = {}  # sums of the left and the right one of each product
        self._maps, self._others, self._tokens = maps, replaced_rows, tokens
        torch.manual_seed(0)  # the same choices of tokens in each pass, as Informer draws them
        softmaxes = run(part.module, part.inputs, Numbers(), PassKind(real=self), part.prefix).softmaxes
        scores = {key: (softmax.scores.nan_to_num().numpy(), softmax.axis) for key, softmax in softmaxes.items()}
        self.scores = {key: np.moveaxis(values, axis, -1) for key, (values, axis) in scores.items()}

    def holds(self, name: str) -> bool:
        return name in self._maps

    def apply(
        self, name: str, values: Tensor, starts: Tensor, laid: Callable[[Tensor], Tensor], origin: Origin
    ) -> Tensor:
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
    """Run the maps of queries and keys with real weights, and compare each site when its product is computed."""

    def __init__(
        self,
        sites: Collection[tuple[Met, Site]],
        stored: Mapping[str, Expression],
        read: Read,
        path: Path,
        own_parameters: Mapping[str, nn.Parameter] | None,
    ) -> None:
        self.left: dict[str, list[tuple[Met, Site]]] = {}
        self._stored, self._read, self._path, self._own = stored, read, path, own_parameters
        self._of_site: dict[str, frozenset[str]] = {}
        for met, site in sites:
            self.left.setdefault(met.product, []).append((met, site))
            names = frozenset(met.site.query_key_tensors())
            for name in names:
                self._of_site[name] = self._of_site.get(name, frozenset()) | names
        self._leaves: dict[str, Float[np.ndarray, "2 d_in"]] = {}

    def holds(self, name: str) -> bool:
        return name in self._of_site

    def apply(
        self, name: str, values: Tensor, starts: Tensor, laid: Callable[[Tensor], Tensor], origin: Origin
    ) -> Tensor:
        """Apply a map to two tokens of noise in the Thue-Morse sequence, which has both at every stride."""
        if not (origin.maps and origin.maps <= self._of_site[name]):  # otherwise the input is a factor's output
            width = values.shape[-1]
            two = torch.randn(2, width, generator=torch.Generator().manual_seed(width), dtype=torch.float64)
            self._leaves[name] = two.numpy()
            values = two[[token.bit_count() % 2 for token in range(values[..., 0].numel())]].view(values.shape)
        return values @ laid(self._values(name).flatten())

    def _values(self, name: str) -> Tensor:
        if self._own is not None:
            return self._own[name].detach().cpu().float().double()
        matrix = self._stored[name].evaluate(self._read)  # a stored tensor or rows of it, in its own precision
        return torch.from_numpy(np.ascontiguousarray(matrix, dtype=np.float64))

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
        """Compute xᵀ W_QK x′ for each head and the two tokens of noise, (head, 2, 2)."""
        for name in ("n_heads", "n_key_heads", "d_head", "d_query", "d_key"):
            size, expected = getattr(site, name), getattr(traced, name)
            if size != expected and (name != "n_key_heads" or traced.n_heads % size):
                expectation = f"expected {expected}, as {traced.module} has it"
                raise Disproved(self._path, f"{site.place}: {name} {size}; {expectation}")
        scale, expected = site.logit_scale, traced.logit_scale
        if scale is not None and expected is not None and not np.isclose(scale, expected, rtol=1e-6, atol=0):
            expectation = f"expected {expected}, as {traced.module} has it"
            raise Disproved(self._path, f"{site.place}: logit scale {scale}; {expectation}")
        assert site.query is not None and site.key is not None
        images = _Images(self._read)
        query, key = images.of(site.query, of_queries), images.of(site.key, of_keys)
        query_heads = query.reshape(2, site.n_heads, site.d_head)
        key_heads = key.reshape(2, site.n_key_heads, site.d_head).repeat(site.n_heads // site.n_key_heads, axis=1)
        return np.einsum("ihd,jhd->hij", query_heads, key_heads)


class _Images:
    """Products x Wᵀ in float64. Products of weights are not formed, and results are shared between matrices."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._known: dict[tuple[Expression, bytes], Float[np.ndarray, "n d_out"]] = {}

    def of(self, matrix: Expression, x: Float[np.ndarray, "n d_in"]) -> Float[np.ndarray, "n d_out"]:
        key = matrix, x.tobytes()
        if key not in self._known:
            self._known[key] = self._made(matrix, x)
        return self._known[key]

    def _made(self, matrix: Expression, x: np.ndarray) -> np.ndarray:
        match matrix:
            case Product(factors):
                for factor in factors[::-1]:
                    x = self.of(factor, x)
                return x
            case Stacked(parts):
                return np.concatenate([self.of(part, x) for part in parts], axis=1)
            case Rows(whole, runs):
                image = self.of(whole, x)
                return np.concatenate([image[:, start:stop:step] for start, stop, step in runs], axis=1)
            case Scaled(whole, factor):
                return factor * self.of(whole, x)
        return x @ matrix.evaluate(self._read).T.astype(np.float64)
