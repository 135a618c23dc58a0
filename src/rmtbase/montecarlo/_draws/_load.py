"""How much is drawn at once: chosen by the memory that is there, and made less when it is not enough."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rmtbase.errors import AllocationError
from rmtbase.linalg import HOST_SOLVERS
from rmtbase.montecarlo._draws._devices import device_memory, host_memory, is_cpu
from rmtbase.montecarlo._draws._program import Array, Program, tile_size

_WORKING_COPIES = 16  # of a matrix, while it is drawn and solved: random bits, factors, Gram matrix, LAPACK's own
_DEVICE_BYTES = 2**28  # of matrices on an accelerator at once; it is busy with far fewer
_SPARE = 2  # one batch more for every two cores: a core has work to do while another's batch waits for XLA's threads


@dataclass(frozen=True)
class Load:
    """How much is drawn at once.

    Attributes:
        program: draws a tile on each device.
        calls: of the program in a batch, each drawn and solved before the next.
        workers: batches at once, each in a thread of its own.
    """

    program: Program
    calls: int
    workers: int

    @property
    def draws(self) -> int:
        """Draws of a batch."""
        return self.program.draws * self.calls

    def spectra(self, first: int, stop: int) -> tuple[Array, Array]:
        """Singular values and norms of the batch that begins at draw ``first``, and ends once ``stop`` is in it."""
        firsts = range(first, min(first + self.draws, stop), self.program.draws)
        parts = [self.program.spectra(one) for one in firsts]
        values, norms = (np.concatenate(part) for part in zip(*parts, strict=True))
        return values, norms

    def smaller(self) -> Load:
        """About half of it: fewer batches at once, then smaller ones.

        Raises:
            AllocationError: it is one draw on each device.
        """
        program = self.program
        if self.workers > 1:
            return replace(self, workers=self.workers // 2)
        if program.tile > 1 and not is_cpu(program.devices[0]):
            return replace(self, program=replace(program, tile=program.tile // 2))
        ensemble = program.ensemble
        raise AllocationError(ensemble.name, ensemble.matrix_shape, program.precision, program.bytes // program.tile)


def first_load(program: Program, draws: int, batch: int | None, cores: int) -> Load:
    """As much at once as keeps cores or devices busy and fits in memory.

    Args:
        program: with tiles of one draw.
        draws: in all.
        batch: draws of a batch, if not to be chosen.
        cores: to keep busy.
    """
    devices, on_host = program.devices, program.solver in HOST_SOLVERS
    draw_bytes = _WORKING_COPIES * program.bytes
    if is_cpu(devices[0]):
        program = replace(program, tile=tile_size(program.ensemble.matrix_shape))
        calls, room = -(-(batch or 1) // program.draws), host_memory() // (draw_bytes * program.draws)
    else:
        fitting = min(min(map(device_memory, devices)) // (2 * draw_bytes), _DEVICE_BYTES // program.bytes)
        share = -(-min(batch or draws, draws) // len(devices))
        calls, program = 1, replace(program, tile=max(1, share if batch else min(share, fitting)))
        room = host_memory() // (draw_bytes * program.draws)
    # A device that solves, too, is busy with one batch.
    busy = cores + cores // _SPARE
    workers = min(busy, room, -(-draws // (program.draws * calls))) if on_host else 1
    return Load(program, calls, max(1, workers))
