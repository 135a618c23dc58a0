"""The JAX program that draws a tile of matrices on each device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from numpy.typing import NDArray

from rmtbase.ensembles import Draw, Ensemble
from rmtbase.linalg import HOST_SOLVERS, device_singular_values, loses_digits, reproducible_jax
from rmtbase.montecarlo._draws._devices import Device, is_cpu
from rmtbase.montecarlo._draws._keys import draw_keys

# XLA shares a matrix product among threads, and sums in another order then.
COMPILER_OPTIONS = {"xla_cpu_multi_thread_eigen": False}

_TILE_NUMBERS = 2**19  # 4 MiB in float64: with less the calls themselves cost time, with more the caches are left
_LARGEST_TILE = 1024

Array = NDArray[np.float64]


def tile_size(matrix_shape: tuple[int, int]) -> int:
    """Draws of a tile on a CPU, a power of two: a function of the matrix's shape and of nothing else.

    A program for another number of draws is another program, whose rounding may differ (that for one draw does). Tiles
    of one size that begin at its multiples put each draw at the same place of the same program, wherever a run begins,
    ends or is cut.
    """
    rows, columns = matrix_shape
    return 1 << (min(max(_TILE_NUMBERS // (rows * columns), 1), _LARGEST_TILE).bit_length() - 1)


@partial(jax.jit, static_argnames=("tile", "mesh", "solver"), compiler_options=COMPILER_OPTIONS)
def _draw_tiles(
    ensemble: Ensemble, key: jax.Array, starts: jax.Array, *, tile: int, mesh: Mesh, solver: str | None
) -> Draw:
    def on_one_device(ensemble: Ensemble, key: jax.Array, starts: jax.Array) -> Draw:
        draw = jax.vmap(ensemble.sample)(draw_keys(key, starts[0] + jnp.arange(tile, dtype=jnp.uint32)))
        if solver is None:
            return draw
        solve = partial(device_singular_values, solver=solver)
        # On a CPU a stack would be solved by the threads that the programs run on, and each could wait for the others.
        values = jax.lax.map(solve, draw.matrix) if is_cpu(mesh.devices[0]) else solve(draw.matrix)
        return Draw(values, draw.norm_squared)

    # The linear algebra of one device must stay on it; a program that is only annotated might gather the matrices.
    sharded = jax.shard_map(
        on_one_device, mesh=mesh, in_specs=(P(), P(), P("device")), out_specs=P("device"), check_vma=False
    )
    return sharded(ensemble, key, starts)


@dataclass(frozen=True)
class Program:
    """Spectra of consecutive draws, as many as there are devices times draws in a tile.

    Attributes:
        ensemble: what is drawn.
        key: of the case.
        precision: ``"float64"`` or ``"float32"``.
        devices: each draws a tile.
        tile: draws per device.
        solver: one of ``rmtbase.linalg.SOLVERS``.
    """

    ensemble: Ensemble
    key: jax.Array
    precision: str
    devices: tuple[Device, ...]
    tile: int
    solver: str

    @property
    def draws(self) -> int:
        """Draws of one call."""
        return self.tile * len(self.devices)

    @property
    def bytes(self) -> int:
        """Bytes of the matrices of one tile."""
        rows, columns = self.ensemble.matrix_shape
        return self.tile * rows * columns * np.dtype(self.precision).itemsize

    @cached_property
    def _mesh(self) -> Mesh:
        return Mesh(np.array(self.devices), ("device",))

    def spectra(self, start: int) -> tuple[Array, Array]:
        """Singular values (draw, rank) and ‖X‖_F² (draw, factor) of the draws from ``start`` on, in float64.

        With a solver of the host in the calling thread, so that threads that call share the work.
        """
        rank = self.ensemble.rank
        if self.solver in HOST_SOLVERS:
            matrices, norms = self.matrices(start)
            return HOST_SOLVERS[self.solver](matrices, rank), norms
        values, norms = self._call(start, self.solver)
        values = values[:, :rank].astype(np.float64)
        if self.solver == "device_gram" and (lost := loses_digits(values, self.precision)).any():
            values[lost] = self._call(start, "device_svd")[0][lost, :rank]
        return values, norms

    def matrices(self, start: int) -> tuple[NDArray[np.floating], Array]:
        """The matrices (draw, rows, columns) themselves, in their own precision, and ‖X‖_F²."""
        return self._call(start, None)

    def _call(self, start: int, solver: str | None) -> tuple[NDArray[np.floating], Array]:
        # Draws beyond the last index wrap around; nobody asks for them.
        starts = (start + self.tile * np.arange(len(self.devices)) & 0xFFFFFFFF).astype(np.uint32)
        with reproducible_jax(self.precision):
            draw = _draw_tiles(self.ensemble, self.key, starts, tile=self.tile, mesh=self._mesh, solver=solver)
        return np.asarray(draw.matrix), np.asarray(draw.norm_squared, dtype=np.float64)
