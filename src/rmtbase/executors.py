"""Executors: the processes that draw the chunks of a plan, or score the checkpoints of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Inline:
    """This process, with all the cores and devices that it may use."""


@dataclass(frozen=True)
class LocalProcesses:
    """Local processes through Dask, one core each, with TLS by keys of this run."""

    count: int  #: number of processes


@dataclass(frozen=True)
class Scheduler:
    """Workers of a Dask scheduler, with this version of rmtbase installed on each."""

    address: str  #: ``HOST:PORT``, or ``tls://HOST:PORT`` with Dask's own keys


Executor = Inline | LocalProcesses | Scheduler
