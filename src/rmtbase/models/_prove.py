"""Proof of attention sites with a model's real weights: q·k in its own forward pass equals xᵀ W_QK x′ for each head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from rmtbase.models._expressions import Expression, Product, Read, Rows, Scaled, Stacked
from rmtbase.models._probe_events import Numbers, Origin
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
        Disproved: they differ; the message names the site and the head.
    """
    wanted = {frozenset(site.query_key_tensors()): site for site in sites}
    proved: set[frozenset[str]] = set()
    for part in parts:
        by_product: dict[str, tuple[Met, Site]] = {}
        for met in part.met.values():
            names = frozenset(
                name for one in met.site.query_key_tensors() if one in stored for name in stored[one].tensors()
            )
            if names in wanted and names not in proved:
                proved.add(names)
                by_product[met.product] = met, wanted[names]
        if not by_product:
            continue
        proof = _Proof(by_product, stored, read, path, own)
        with written_out(part.module):
            run(part.module, part.inputs, Numbers(), real=proof, prefix=part.prefix)
        if proof.left:
            met, site = next(iter(proof.left.values()))
            raise Disproved(path, f"{site.place}: {met.site.module} was not run again; expected its proof")
    return tuple(site for site in sites if frozenset(site.query_key_tensors()) in proved)


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

    def apply(self, name: str, given: Tensor, laid: Callable[[Tensor], Tensor], origin: Origin) -> Tensor:
        """Apply a map to noise in place of the site's input, with two tokens in alternation."""
        if not (origin.maps and origin.maps <= self._of_site[name]):  # otherwise the input is a factor's output
            width = given.shape[-1]
            noise = torch.randn(2, width, generator=torch.Generator().manual_seed(width), dtype=torch.float64)
            self._leaves[name] = noise.numpy()
            given = noise[torch.arange(given.shape[-2]) % 2].expand(given.shape)
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
