"""Proof of attention sites with a model's real weights: q·k in its own forward pass equals xᵀ W_QK x′ for each head.

The two sides of each product are decided by interventions, not by the trace that found the site: another query at one
token changes whole rows of the logits, while another key changes one entry of many rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from rmtbase.errors import CheckpointError
from rmtbase.models import _expressions
from rmtbase.models._expressions import Expression, Product, Read, Rows, Scaled, Stacked
from rmtbase.models._probe_events import Numbers, Origin, noise
from rmtbase.models._probe_network import Part, written_out
from rmtbase.models._probe_places import Met
from rmtbase.models._probe_running import run
from rmtbase.models._sites import Disproved, Site

TOLERANCE = 1e-9
"""Largest accepted deviation of q·k, relative to the head's largest |xᵀ W_QK x′|."""


def prove_parts(
    sites: Sequence[Site],
    parts: Sequence[Part],
    stored: Mapping[str, Expression],
    read: Read,
    path: Path,
    own: Mapping[str, nn.Parameter] | None = None,
) -> tuple[Site, ...]:
    """Compare the products of queries and keys in each site's module with the site's expressions.

    The maps of queries and keys run with the real weights in float64, on two inputs of noise; biases, norms, gains and
    rotation are neutral, as they are for the sites. One weight is in memory at a time; products of weights are not
    formed.

    Args:
        sites: sites whose expressions use names that ``read`` knows.
        parts: parts of the network.
        stored: expression of each of its parameters over the stored tensors.
        read: function that reads a stored tensor.
        path: path of the checkpoint in messages.
        own: the parameters of the network by name, where it has its weights; otherwise they are computed from the
            stored tensors.

    Returns:
        The sites whose queries are multiplied with their keys in these parts; these sites are proved.

    Raises:
        Disproved: they differ, or queries and keys are exchanged; the message names the site.
        CheckpointError: the two sides of a site cannot be told apart.
    """
    wanted = {frozenset(site.query_key_tensors()): site for site in sites}
    proved: set[frozenset[str]] = set()
    for part in parts:
        by_product: dict[str, tuple[Met, Site]] = {}
        of_softmax: dict[str, Met] = {}
        for softmax, met in part.met.items():
            names = frozenset(
                name for one in met.site.query_key_tensors() if one in stored for name in stored[one].tensors()
            )
            if names in wanted and names not in proved:
                proved.add(names)
                by_product[met.product] = met, wanted[names]
                of_softmax[softmax] = met
        if not by_product:
            continue
        proof = _Proof(by_product, stored, read, path, own)
        with written_out(part.module):
            for softmax, moves_rows in _queries_move_rows(part, of_softmax).items():
                met, site = by_product[of_softmax[softmax].product]
                _require_sides(path, site, met.site, moves_rows)
            run(part.module, part.inputs, Numbers(), real=proof, prefix=part.prefix)
        if proof.left:
            met, site = next(iter(proof.left.values()))
            raise Disproved(path, f"{site.place}: {met.site.module} was not run again; expected its proof")
    return tuple(site for site in sites if frozenset(site.query_key_tensors()) in proved)


def _require_sides(path: Path, site: Site, traced: Site, moves_rows: bool | None) -> None:
    """Raise unless the traced queries are those of the logits."""
    queries, keys = (", ".join(sorted({*one.tensors()})) for one in (traced.query, traced.key) if one is not None)
    if moves_rows is None and traced.query != traced.key:
        raise CheckpointError(
            path,
            f"{site.place}: it cannot be told which of {queries} and {keys} makes the queries: no row of the logits has "
            "two entries that depend on them",
        )
    if moves_rows is False and traced.query != traced.key:
        raise Disproved(
            path,
            f"{site.place}: {queries} at one token changes parts of rows of the logits, as keys do; expected whole rows, "
            f"as of queries: they are exchanged with {keys}",
        )


_MOST_TOKENS = 2**62
_TOKENS = (5, 2, 1, 0)
"""Tokens that get another query, one after the other until a row shows it: with a causal mask the first sees one key."""


def _queries_move_rows(part: Part, mets: Mapping[str, Met]) -> dict[str, bool | None]:
    """Decide for each site, by the key of its softmax, whether its traced queries are the queries of its logits.

    In passes with made-up queries and keys, whose products are computed, the queries are replaced by others at no
    token, at one token and at all tokens. Those of all sites are replaced together, then those of each site alone that
    is not decided, since the queries of one site may be the keys of another.

    Returns:
        True if each row of logits changes as a whole or not at all; False if parts of rows change, or another operand
        of the product than the traced one; None if no row has two entries that depend on the queries.
    """
    decided: dict[str, bool | None] = dict.fromkeys(mets)
    for together in ([*mets], *([key] for key in mets)):
        left = {key: mets[key] for key in together if not decided[key]}
        if not left:
            continue
        rows: dict[str, Int[np.ndarray, " row"]] = {}
        for met in left.values():
            for name, starts in _outermost(met.site.query, part):
                rows[name] = np.union1d(rows.get(name, starts), starts)
        before, everywhere = (_OtherQueries.in_pass(part, rows, tokens) for tokens in (range(0), range(_MOST_TOKENS)))
        decided |= dict.fromkeys(left)
        for token in _TOKENS:
            unknown = [key for key in left if decided[key] is None]
            if unknown:
                passes = before, everywhere, _OtherQueries.in_pass(part, rows, range(token, token + 1))
                decided |= {key: _moves_rows(key, left[key], *passes) for key in unknown}
    return decided


def _outermost(matrix: Expression | None, part: Part) -> Iterator[tuple[str, Int[np.ndarray, " row"]]]:
    """Yield the maps that compute a matrix's outputs: the name of each weight, and where its rows start in it."""
    match matrix:
        case Product(factors):
            yield from _outermost(factors[0], part)
        case Stacked(parts):
            for one in parts:
                yield from _outermost(one, part)
        case Scaled(whole, _) | Rows(Product() | Stacked() | Scaled() as whole, _):
            yield from _outermost(whole, part)
        case Rows() | _expressions.Tensor():
            (name,) = matrix.tensors()
            shape = part.module.get_parameter(name.removeprefix(part.prefix)).shape
            yield name, matrix.evaluate(lambda _: np.arange(shape.numel()).reshape(shape))[:, 0]


class _OtherQueries:
    """Made-up outputs of maps with queries, replaced by others at some tokens, and a record of what this changes.

    Attributes:
        scores: the logits of each softmax, the axis of the softmax last.
        operands: sums of the left and the right operand of each product.
    """

    def __init__(self, rows: Mapping[str, Int[np.ndarray, " row"]], tokens: range) -> None:
        self.scores: dict[str, Float[np.ndarray, "*row key"]] = {}
        self.operands: dict[str, tuple[float, float]] = {}
        self._rows, self._tokens = rows, tokens

    @classmethod
    def in_pass(cls, part: Part, rows: Mapping[str, Int[np.ndarray, " row"]], tokens: range) -> _OtherQueries:
        """Run a part with other queries at these tokens."""
        own = cls(rows, tokens)
        softmaxes = run(part.module, part.inputs, Numbers(), real=own, prefix=part.prefix).softmaxes
        for key, softmax in softmaxes.items():
            own.scores[key] = np.moveaxis(softmax.scores.nan_to_num().numpy(), softmax.axis, -1)
        return own

    def holds(self, name: str) -> bool:
        """Return True for maps with queries."""
        return name in self._rows

    def apply(
        self, name: str, given: Tensor, starts: Tensor, laid: Callable[[Tensor], Tensor], origin: Origin
    ) -> Tensor:
        """Make up the outputs of a map."""
        result, other = (noise(key, (*given.shape[:-1], starts.shape[-1])) for key in (name, f"other {name}"))
        is_other = torch.isin(starts, torch.from_numpy(self._rows[name])).expand(result.shape).clone().flatten(0, -2)
        is_other[: self._tokens.start], is_other[self._tokens.stop :] = False, False
        return torch.where(is_other.view(result.shape), other, result)

    def met(self, product: str, left: Tensor, right: Tensor) -> None:
        """Record which operands are changed."""
        self.operands[product] = float(left.sum()), float(right.sum())


def _moves_rows(
    key: str, met: Met, before: _OtherQueries, everywhere: _OtherQueries, other: _OtherQueries
) -> bool | None:
    """Return the decision for one site, given the passes with other queries at no token, at all and at one."""
    if not all(key in one.scores for one in (before, everywhere, other)):
        return None
    depends = np.abs(everywhere.scores[key] - before.scores[key])
    changed = np.abs(other.scores[key] - before.scores[key])
    depends, changed = (one > 1e-9 * depends.max() for one in (depends, changed))
    shown = changed.any(axis=-1) & (depends.sum(axis=-1) > 1)
    if not shown.any():
        return None
    left, right = (one != another for one, another in zip(before.operands[met.product], everywhere.operands[met.product]))
    return (left, right) == (met.queries_left, not met.queries_left) and np.array_equal(changed[shown], depends[shown])


class _Proof:
    """Run the maps of queries and keys with real weights, and compare each site when its product is computed."""

    def __init__(
        self,
        by_product: Mapping[str, tuple[Met, Site]],
        stored: Mapping[str, Expression],
        read: Read,
        path: Path,
        own: Mapping[str, nn.Parameter] | None,
    ) -> None:
        self.left = dict(by_product)
        self._stored, self._read, self._path, self._own = stored, read, path, own
        self._of_site: dict[str, frozenset[str]] = {}
        for met, _ in by_product.values():
            names = frozenset(met.site.query_key_tensors())
            for name in names:
                self._of_site[name] = self._of_site.get(name, frozenset()) | names
        self._leaves: dict[str, Float[np.ndarray, "2 d_in"]] = {}

    def holds(self, name: str) -> bool:
        """Return True for the maps of queries and keys."""
        return name in self._of_site

    def apply(
        self, name: str, given: Tensor, starts: Tensor, laid: Callable[[Tensor], Tensor], origin: Origin
    ) -> Tensor:
        """Apply a map to noise in place of the site's input, with two tokens in the Thue-Morse sequence.

        This sequence has both at every stride, so that each text of a batch has both, in any order of the axes.
        """
        if not (origin.maps and origin.maps <= self._of_site[name]):  # otherwise the input is a factor's output
            width = given.shape[-1]
            two = torch.randn(2, width, generator=torch.Generator().manual_seed(width), dtype=torch.float64)
            self._leaves[name] = two.numpy()
            given = two[[token.bit_count() % 2 for token in range(given[..., 0].numel())]].view(given.shape)
        return given @ laid(self._values(name).flatten())

    def _values(self, name: str) -> Tensor:
        """Return the weights of a map in the precision of float32."""
        if self._own is not None:
            return self._own[name].detach().cpu().float().double()
        matrix = self._stored[name].evaluate(self._read)  # a stored tensor or rows of it, in its own precision
        return torch.from_numpy(np.ascontiguousarray(matrix, dtype=np.float64))

    def met(self, product: str, left: Tensor, right: Tensor) -> None:
        """Compare the site that the product belongs to."""
        if product not in self.left:
            return
        met, site = self.left.pop(product)
        queries, keys = (left.numpy(), right.numpy()) if met.queries_left else (right.numpy(), left.numpy())
        queries = queries[:, : met.heads.shape[1]]
        of_queries = self._leaf(met.site.query)
        of_keys = self._leaf(met.site.key)
        found = queries @ keys.swapaxes(1, 2) / met.factor  # (n, query token, key token)
        expected = self._expected(site, met.site, of_queries, of_keys)[met.heads]  # (n, query token, 2, 2)
        present = np.any(keys != 0, axis=-1)[:, None, :, None, None]  # without the padding of a window
        off = np.where(present, np.abs(found[..., None, None] - expected[:, :, None]), 0.0)
        off = off.min(axis=-1).max(axis=2)  # nearest key token of the noise, worst key; (n, query token, 2)
        nearest = off.argmin(axis=-1)
        size = np.abs(expected).max(axis=(-1, -2))
        wrong = off.min(axis=-1) / np.maximum(size, np.finfo(float).tiny)
        if np.all(wrong < TOLERANCE) and (len(np.unique(nearest)) == 2 or not size.any()):  # or all weights are zero
            return
        n, token = np.unravel_index(np.argmax(wrong), wrong.shape)
        head = int(met.heads[n, token])
        raise Disproved(
            self._path,
            f"{site.place} head {head}: q·k of {met.site.module} is {found[n, token, 0]:.6g} for an input of noise; "
            f"expected {' or '.join(f'{one:.6g}' for one in expected[n, token].ravel())}, as W_QK of "
            f"{', '.join(sorted(site.query_key_tensors()))} gives it",
        )

    def _leaf(self, matrix: Expression | None) -> np.ndarray:
        """Return the noise that was the input of a matrix."""
        return next(self._leaves[name] for name in (matrix.tensors() if matrix else ()) if name in self._leaves)

    def _expected(self, site: Site, traced: Site, of_queries: np.ndarray, of_keys: np.ndarray) -> np.ndarray:
        """Compute xᵀ W_QK x′ for each head and the two tokens of noise, (head, 2, 2)."""
        for name in ("n_heads", "n_key_heads", "d_head", "d_query", "d_key"):
            found, expected = getattr(site, name), getattr(traced, name)
            if found != expected and (name != "n_key_heads" or traced.n_heads % found):
                raise Disproved(
                    self._path, f"{site.place}: {name} {found}; expected {expected}, as {traced.module} has it"
                )
        scale, expected = site.logit_scale, traced.logit_scale
        if scale is not None and expected is not None and not np.isclose(scale, expected, rtol=1e-6, atol=0):
            raise Disproved(
                self._path, f"{site.place}: logit scale {scale}; expected {expected}, as {traced.module} has it"
            )
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
        """Return x Wᵀ."""
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
