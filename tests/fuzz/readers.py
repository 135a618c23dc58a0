"""What the library reads of a file, and what an independent reader understands of it."""

import hashlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import safetensors
from mutations_tensors import with_header
from mutations_toml import rewritten

_SIGNATURES = ("digest", "checksum", "sha256", "crc", "signature")  # in names of what only says the rest is whole


class RefusedError(Exception):
    """An independent reader refuses a file."""


def _digest(*parts: object) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part if isinstance(part, bytes) else f"{part!r}\n".encode("utf-8", "surrogatepass"))
    return total.hexdigest()


def table_content(path: Path) -> dict[str, str]:
    """Everything in a table."""
    from rmtbase.results import open_table

    return _of_groups(open_table(path))


def atlas_content(path: Path) -> dict[str, str]:
    """Everything in an atlas."""
    from rmtbase.tables import open_table

    return _of_groups(open_table(path, "atlas"))


def _of_groups(opened) -> dict[str, str]:
    """Every variable and attribute of every group."""
    if not hasattr(opened, "subtree"):
        return dict(_of_dataset("", opened))
    nodes = ((node.path.rstrip("/"), node.to_dataset(inherit=False)) for node in opened.subtree)
    return {name: digest for place, dataset in nodes for name, digest in _of_dataset(place, dataset)}


def _of_dataset(place: str, dataset) -> Iterator[tuple[str, str]]:
    for owner, attributes in (("", dataset.attrs), *((name, one.attrs) for name, one in dataset.variables.items())):
        for name, value in attributes.items():
            if not any(word in name for word in _SIGNATURES):
                yield f"{place}/{owner}@{name}", _digest(_plain(value))
    for name, variable in dataset.variables.items():
        yield f"{place}/{name}", _digest(variable.dims, variable.shape, *_numbers(variable.values))


def _numbers(values: np.ndarray) -> tuple[object, ...]:
    """Words as they are, numbers as bytes of this machine's order."""
    if values.dtype.kind in "OUST":
        return (values.tolist(),)
    native = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    return native.dtype.str, native.tobytes()


def _plain(value: object) -> object:
    return (value.dtype.str[1:], value.tolist()) if isinstance(value, np.ndarray | np.generic) else value


def model_content(path: Path) -> dict[str, str]:
    """Every matrix of every layer."""
    from rmtbase.models import open_model

    model = open_model(path.parent)
    sizes = (model.architecture, model.n_layers, model.n_heads, model.n_key_heads, model.d_model, model.d_head)
    places = [(layer, name) for layer in range(model.n_layers) for name in model.components]
    matrices = {f"{layer}/{name}": model.matrix(layer, name) for layer, name in places}
    return {"sizes": _digest(*sizes), **{name: _digest(one.shape, one.tobytes()) for name, one in matrices.items()}}


def plan_content(path: Path) -> dict[str, str]:
    """What a plan says."""
    from rmtbase.montecarlo import read_plan

    plan = read_plan(path)
    return {"plan": _digest(plan.hash, plan.name, plan.title, plan.description, plan.total_draws)}


def chunk_content(path: Path) -> dict[str, str]:
    """The arrays of a chunk that its store finds sound."""
    from rmtbase.errors import TableError
    from rmtbase.montecarlo import Store, read_plan

    store = Store(path.parent, read_plan(path.parent.parent / "small.toml"))
    (chunk,) = (one for one in store.plan.chunks if store.path(one).name == path.name)
    if (wrong := store.unsound(chunk)) is not None:
        raise TableError(path, wrong, "a sound chunk")
    names = ("statistic", "eigenvalue", "norm_squared")
    return {name: _digest(*_numbers(store.read(chunk, name))) for name in names}


def json_reference(path: Path) -> None:
    """JSON as Python's own reader understands it, where no key comes twice in an object."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        table = dict(pairs)
        if len(table) < len(pairs):
            raise RefusedError("a key twice")
        return table

    try:
        value = json.loads(path.read_bytes(), object_pairs_hook=once)
    except (ValueError, RecursionError, OSError) as error:
        raise RefusedError(str(error)) from error
    path.write_bytes(json.dumps(value).encode())


def safetensors_reference(path: Path) -> None:
    """The tensors as the reference reader finds them, written one after another."""

    try:
        tensors = safetensors.deserialize(path.read_bytes())
    except (safetensors.SafetensorError, OSError) as error:
        raise RefusedError(str(error)) from error
    table, data = {}, b""
    for name, one in sorted(tensors, key=lambda pair: pair[0]):
        begin, data = len(data), data + bytes(one["data"])
        table[name] = {"dtype": one["dtype"], "shape": one["shape"], "data_offsets": [begin, len(data)]}
    path.write_bytes(with_header(json.dumps(table).encode(), data))


def bin_reference(path: Path) -> None:
    """The tensors that torch loads, from records whose checksums fit."""
    import torch

    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as file:
                if (wrong := file.testzip()) is not None:
                    raise RefusedError(f"the checksum of {wrong}")
        state = torch.load(path, map_location="cpu", weights_only=True)
        torch.save({name: one.detach().clone().contiguous() for name, one in state.items()}, path)
    except RefusedError:
        raise
    except Exception as error:
        raise RefusedError(str(error)) from error


def plan_reference(path: Path) -> None:
    """TOML as Python's own reader understands it."""
    try:
        text = rewritten(path.read_bytes())
    except (ValueError, RecursionError, OSError, AttributeError) as error:
        raise RefusedError(str(error)) from error
    path.write_text(text, encoding="utf-8")
