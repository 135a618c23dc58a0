"""Compiled sampler, which draws a tile of matrices on each device, and the size of the batches it draws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Float, Float64, Key, UInt32

from rmtbase.ensembles import Draw, Ensemble
from rmtbase.errors import AllocationError
from rmtbase.linalg import DEVICE_SVD_CONDITION, HOST_SOLVERS, device_singular_values, loses_digits, reproducible_jax
from rmtbase.montecarlo._keys import draw_keys
from rmtbase.montecarlo._machine import Device, device_memory, host_memory, is_cpu
from rmtbase.shown import in_one_line

# With this option on, XLA shares a matrix product among threads, which changes the order of summation.
COMPILER_OPTIONS = {"xla_cpu_multi_thread_eigen": False}

_TILE_NUMBERS = 2**19  # 4 MiB in float64: with less, the calls themselves cost time; more does not fit in the caches
_LARGEST_TILE = 1024

_WORKING_COPIES = 16  # of a matrix while it is drawn and solved: random bits, factors, Gram matrix, LAPACK workspace
_DEVICE_BYTES = 2**28  # of matrices on an accelerator at once; far fewer already keep it busy
_SPARE = 2  # one more batch for every two cores: a core then has work while another batch waits for XLA's threads

Spectra = tuple[Float64[np.ndarray, "draw rank"], Float64[np.ndarray, "draw factor"]]
"""Singular values and ‖X‖_F² of each factor."""


def tile_size(matrix_shape: tuple[int, int]) -> int:
    """Draws of a tile on a CPU, a power of two that depends only on the matrix's shape."""
    # Code for other numbers of draws may round differently: tiles that begin at multiples of one size put each draw at
    # the same place of the same code, wherever a run begins, ends or is divided.
    rows, columns = matrix_shape
    return 1 << (min(max(_TILE_NUMBERS // (rows * columns), 1), _LARGEST_TILE).bit_length() - 1)


@partial(jax.jit, static_argnames=("solver", "on_cpu"))
def solve_on_device(stack: Float[Array, "draw rows columns"], solver: str, *, on_cpu: bool) -> Float[Array, "draw s"]:
    solve = partial(device_singular_values, solver=solver)
    # On a CPU the threads that run this code would also solve the stack, and could wait for each other.
    return jax.lax.map(solve, stack) if on_cpu else solve(stack)


@partial(jax.jit, static_argnames=("tile", "mesh", "solver"), compiler_options=COMPILER_OPTIONS)
def _draw_tiles(
    ensemble: Ensemble, key: Key[Array, ""], starts: UInt32[Array, " n"], *, tile: int, mesh: Mesh, solver: str | None
) -> Draw:
    def on_one_device(ensemble: Ensemble, key: Key[Array, ""], starts: UInt32[Array, " 1"]) -> Draw:
        draw = jax.vmap(ensemble.sample)(draw_keys(key, starts[0] + jnp.arange(tile, dtype=jnp.uint32)))
        if solver is None:
            return draw
        return Draw(solve_on_device(draw.matrix, solver, on_cpu=is_cpu(mesh.devices[0])), draw.norm_squared)

    # Each device must do its own linear algebra; with sharding annotations only, XLA might gather the matrices.
    sharded = jax.shard_map(
        on_one_device, mesh=mesh, in_specs=(P(), P(), P("device")), out_specs=P("device"), check_vma=False
    )
    return sharded(ensemble, key, starts)


@dataclass(frozen=True)
class CompiledSampler:
    ensemble: Ensemble  # the ensemble to draw
    key: Key[Array, ""]  # key of the case
    precision: str  # ``"float64"`` or ``"float32"``
    devices: tuple[Device, ...]  # devices, each of which draws a tile
    tile: int  # draws per device
    solver: str  # one of ``rmtbase.linalg.SOLVERS``

    @property
    def draws(self) -> int:
        return self.tile * len(self.devices)

    @property
    def bytes(self) -> int:
        rows, columns = self.ensemble.matrix_shape
        return self.tile * rows * columns * np.dtype(self.precision).itemsize

    def spectra(self, start: int) -> Spectra:
        """Singular values and ‖X‖_F² of the draws from ``start`` on, in float64; a host solver runs in this thread."""
        rank = self.ensemble.rank
        if self.solver in HOST_SOLVERS:
            matrices, norms = self.matrices(start)
            return HOST_SOLVERS[self.solver](matrices, rank), norms
        values, norms = self.matrices(start, self.solver)
        values = values[:, :rank].astype(np.float64)
        if self.solver == "device_gram" and (lost := loses_digits(values, self.precision)).any():
            values[lost] = self.matrices(start, "device_svd")[0][lost, :rank]
        if not is_cpu(self.devices[0]) and self.precision == "float32":
            lost = loses_digits(values, self.precision, DEVICE_SVD_CONDITION)
            if lost.any():
                values[lost] = HOST_SOLVERS["svd"](self.matrices(start)[0][lost], rank)
        return values, norms

    def matrices(self, start: int, solver: str | None = None) -> tuple[np.ndarray, Float64[np.ndarray, "draw factor"]]:
        """Matrices, or what a device's solver makes of them, and ‖X‖_F² of the draws from ``start`` on."""
        # Draws beyond the last index wrap around; they are not used.
        starts = (start + self.tile * np.arange(len(self.devices)) & 0xFFFFFFFF).astype(np.uint32)
        mesh = Mesh(np.array(self.devices), ("device",))
        with reproducible_jax(self.precision):
            draw = _draw_tiles(self.ensemble, self.key, starts, tile=self.tile, mesh=mesh, solver=solver)
        return np.asarray(draw.matrix), np.asarray(draw.norm_squared, dtype=np.float64)


@in_one_line
@dataclass(frozen=True)
class BatchPlan:
    sampler: CompiledSampler  # draws a tile on each device
    calls: int  # number of calls of the sampler in a batch, one after the other
    workers: int  # number of batches at once, each in its own thread

    @property
    def draws(self) -> int:
        return self.sampler.draws * self.calls

    def spectra(self, first: int, stop: int) -> Spectra:
        firsts = range(first, min(first + self.draws, stop), self.sampler.draws)
        parts = [self.sampler.spectra(start) for start in firsts]
        values, norms = (np.concatenate(part) for part in zip(*parts, strict=True))
        return values, norms

    def smaller(self) -> BatchPlan:
        """Halve the amount drawn at once: first the number of batches, then their size."""
        sampler = self.sampler
        if self.workers > 1:
            return replace(self, workers=self.workers // 2)
        if sampler.tile > 1 and not is_cpu(sampler.devices[0]):
            return replace(self, sampler=replace(sampler, tile=sampler.tile // 2))
        ensemble = sampler.ensemble
        raise AllocationError(ensemble.name, ensemble.matrix_shape, sampler.precision, sampler.bytes // sampler.tile)


def plan_batches(sampler: CompiledSampler, draws: int, batch: int | None, cores: int) -> BatchPlan:
    devices, on_host = sampler.devices, sampler.solver in HOST_SOLVERS
    draw_bytes = _WORKING_COPIES * sampler.bytes
    if is_cpu(devices[0]):
        sampler = replace(sampler, tile=tile_size(sampler.ensemble.matrix_shape))
        calls, room = -(-(batch or 1) // sampler.draws), host_memory() // (draw_bytes * sampler.draws)
    else:
        fitting = min(min(map(device_memory, devices)) // (2 * draw_bytes), _DEVICE_BYTES // sampler.bytes)
        share = -(-min(batch or draws, draws) // len(devices))
        calls, sampler = 1, replace(sampler, tile=max(1, share if batch else min(share, fitting)))
        room = host_memory() // (draw_bytes * sampler.draws)
    # A device that also solves is kept busy by one batch.
    busy = cores + cores // _SPARE
    workers = min(busy, room, -(-draws // (sampler.draws * calls))) if on_host else 1
    return BatchPlan(sampler, calls, max(1, workers))
