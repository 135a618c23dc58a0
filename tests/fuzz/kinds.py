"""The kinds of file: where each lies, which command reads it, how it is mutated, and what its right numbers are."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mutations import BYTES, PLACES, UNTOUCHED, Mutator
from mutations_chunk import CHUNK
from mutations_hdf5 import HDF5
from mutations_json import JSON
from mutations_tables import impossible
from mutations_tensors import BIN, INDEX, SAFETENSORS
from mutations_toml import TOML
from readers import (
    atlas_content,
    bin_reference,
    chunk_content,
    json_reference,
    model_content,
    plan_content,
    plan_reference,
    safetensors_reference,
    table_content,
)

Content = Callable[[Path], dict[str, str]]
"""Digests of all that the library reads of a file, by name."""


@dataclass(frozen=True)
class Kind:
    """One kind of file.

    Attributes:
        name: of its folder of originals.
        target: the file, or a pattern of its name.
        commands: the command lines that read it, from within the folder.
        structure: mutations of what the file means.
        content: what the library reads of it; where None the command's output alone is compared.
        reference: writes the file as an independent reader understands it, or raises
            :class:`readers.RefusedError`. Without one the right numbers are those of the original.
        heals: the folder whose files a command that ends well may replace, if it gives the original's output.
        every: the command is run for one in so many of the files whose content is read and right.
        share: how many mutations are made of it, in parts of the other kinds'.
        torch: whether torch must be imported beforehand.
    """

    name: str
    target: str
    commands: tuple[tuple[str, ...], ...]
    structure: tuple[Mutator, ...]
    content: Content | None = None
    reference: Callable[[Path], None] | None = None
    heals: str = ""
    every: int = 20
    share: float = 1.0
    torch: bool = False
    environment: tuple[tuple[str, str], ...] = ()

    def path(self, folder: Path) -> Path:
        """The file in a folder of originals, or a copy of it."""
        return next(folder.glob(self.target))

    def fixed(self, folder: Path) -> tuple[Mutator, ...]:
        """Mutations without chance: each is made once."""
        return (UNTOUCHED, *PLACES, *(impossible(self.path(folder)) if self.structure is HDF5 else ()))

    @property
    def random(self) -> tuple[Mutator, ...]:
        """The others: those of bytes twice, so that there are about as many as of structure."""
        return (*BYTES, *BYTES, *self.structure)


_PLOT = ("plot", "table.nc", "-o", "figures")
_SCORE = ("score", "model", "--json", "--null", "table.nc")
_MODEL = (("score", "model", "--json", "--null", "analytic"),)
_RUN = ("baseline", "small.toml", "-o", "small.nc")
_CACHED = ("score", "model", "--json", "--draws", "40", "--matrices", "none")
_CHUNK = "small.nc.chunks/case-0000-draws-0000000020-*.chunk"
_MANIFEST = "small.nc.chunks/store.json"


def _kinds() -> Iterator[Kind]:
    yield Kind("baseline", "table.nc", (_SCORE, _PLOT), HDF5, table_content)
    of_scores = ("scores", "resampled_scores", "circuit_scores")
    for name in (
        "baseline_without_sample",
        "spectra",
        "elements",
        "depth",
        "composition",
        "changes",
        "signal",
        "trajectory",
        "comparison",
        *of_scores,
    ):
        yield Kind(name, "table.nc", (_PLOT,), HDF5, table_content)
    yield Kind("atlas", "table.nc", (_SCORE,), HDF5, atlas_content)
    cache = (("RMTBASE_CACHE", "cache"),)
    yield Kind(
        "cache_entry", "cache/*.nc", (_CACHED,), HDF5, table_content, heals="cache", share=0.1, environment=cache
    )
    yield Kind("chunk", _CHUNK, (_RUN,), CHUNK, chunk_content, heals="small.nc.chunks", share=0.2)
    yield Kind("manifest", _MANIFEST, (_RUN,), JSON, heals="small.nc.chunks")
    yield Kind("manifest_gone_on_with", _MANIFEST, (_RUN,), JSON, heals="small.nc.chunks", share=0.05)
    yield Kind("plan", "small.toml", (_RUN,), TOML, plan_content, plan_reference, every=10**10)
    for name, file in (("safetensors", "model.safetensors"), ("shard", "model-00002-of-00002.safetensors")):
        yield Kind(name, f"model/{file}", _MODEL, SAFETENSORS, model_content, safetensors_reference)
    yield Kind("index", "model/model.safetensors.index.json", _MODEL, (*JSON, *INDEX), model_content, json_reference)
    yield Kind("config", "model/config.json", _MODEL, JSON, model_content, json_reference)
    yield Kind("bin", "model/pytorch_model.bin", _MODEL, BIN, model_content, bin_reference, torch=True)


KINDS = {kind.name: kind for kind in _kinds()}
"""All kinds of file, by name."""
SOME = ("manifest", "plan", "safetensors", "config")
"""A store, a plan, weights, a configuration: what is damaged by every run of the tests."""
