"""Tables that say what cannot be, written as the library writes its own: whatever a file is signed with is right."""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import numpy as np
import xarray as xr
from mutations import Mutator

from rmtbase.errors import RmtbaseError
from rmtbase.tables import write_table

Change = Callable[[xr.Dataset], xr.Dataset | None]
"""A dataset changed, or None where it has nothing of the kind."""


def _one(name: str, value: float) -> Change:
    """One entry of a variable, the first that is a number, as a value that it cannot have."""

    def change(table: xr.Dataset) -> xr.Dataset | None:
        if name not in table.variables:
            return None
        values = np.array(table[name].values, dtype=float if isinstance(value, float) else None)
        known = np.flatnonzero(~np.isnan(values.astype(float).reshape(-1)))
        if not known.size:
            return None
        values.reshape(-1)[known[0]] = value
        return _with(table, name, values)

    return change


def _all(name: str, change_values: Callable[[np.ndarray], np.ndarray]) -> Change:
    def change(table: xr.Dataset) -> xr.Dataset | None:
        return _with(table, name, change_values(table[name].values)) if name in table.variables else None

    return change


def _with(table: xr.Dataset, name: str, values: np.ndarray) -> xr.Dataset:
    assign = table.assign_coords if name in table.coords else table.assign
    return assign({name: (table[name].dims, values, table[name].attrs)})


def _attribute(name: str, value: object) -> Change:
    return lambda table: table.assign_attrs({name: value}) if name in table.attrs else None


def _first_two(name: str, sources: list[int]) -> Change:
    """The first two labels of a coordinate as those at other places."""

    def change(table: xr.Dataset) -> xr.Dataset | None:
        if name not in table.coords or table.sizes[name] < 2:
            return None
        words = table[name].values.copy()
        words[[0, 1]] = words[sources]
        return table.assign_coords({name: words})

    return change


def _text(values: np.ndarray) -> np.ndarray:
    return values.astype(str)


def _reversed(values: np.ndarray) -> np.ndarray:
    return values[..., ::-1]


IMPOSSIBLE: dict[str, Change] = {
    "a negative density": _one("density", -1.0),
    "an edge that is NaN": _one("bin_edge", np.nan),
    "edges that fall": _all("bin_edge", _reversed),
    "probabilities as text": _all("probability", _text),
    "a probability above 1": _one("probability", 1.5),
    "probabilities that fall": _all("probability", _reversed),
    "d_head 0": _one("d_head", 0),
    "d_model negative": _one("d_model", -12),
    "a fraction as d_model": _one("d_model", 12.5),
    "a negative spread": _one("std", -1.0),
    "a negative standard error": _one("standard_error", -1.0),
    "a negative spread of the null": _one("null_std", -1.0),
    "a p-value above 1": _one("p_value", 1.5),
    "a negative p-value": _one("p_value", -0.5),
    "a q-value above 1": _one("q_value", 1.5),
    "a negative sigma_q": _one("sigma_q", -1.0),
    "a negative sigma": _one("sigma", -1.0),
    "no moments at all": _one("moment_order", 0.0),
    "means as text": _all("mean", _text),
    "observations as text": _all("observed", _text),
    "no draws": _one("draws", 0),
    "a negative singular value": _one("singular_value", -1.0),
    "a negative distance": _one("distance", -1.0),
    "a depth of 0": _one("depth", 0),
    "no rows": _one("n_rows", 0),
    "a statistic twice": _first_two("statistic", [1, 1]),
    "provenance that is no JSON": _attribute("provenance", "drawn on a Monday"),
    "provenance that is a list": _attribute("provenance", "[1, 2]"),
    "a seed that is a list": _attribute("seed", np.arange(3)),
    "a seed that is text": _attribute("seed", "zero"),
    "a schema version that is a list": _attribute("schema_version", np.arange(2)),
    "a normalization that is a list": _attribute("normalization", np.arange(2)),
    "a level above 1": _attribute("level", 5.0),
    "a model that is a list": _attribute("model", np.arange(3)),
}
"""Everything that no table may say, whoever signed it."""

CONTRADICTING: dict[str, Change] = {
    "d_head above d_model": _one("d_head", 1000),
    "a center beyond its bin": _one("bin_center", -1e9),
    "an infinite mean": _one("mean", np.inf),
    "a sample doubled": _all("sample", lambda values: 2 * values),
    "all draws equal": _all("sample", lambda values: np.broadcast_to(values[..., :1], values.shape).copy()),
    "a sample of zeros": _all("sample", np.zeros_like),
    "a draw that is infinite": _one("sample", np.inf),
    "statistics exchanged": _first_two("statistic", [1, 0]),
    "half of the draws": lambda table: table.isel(draw=slice(None, None, 2)) if "draw" in table.dims else None,
    "half of the bins": lambda table: table.isel(bin=slice(None, None, 2)) if "bin" in table.dims else None,
    "half of the layers": lambda table: table.isel(layer=slice(None, None, 2)) if "layer" in table.dims else None,
    "q-values of zero": _all("q_value", np.zeros_like),
    "no reasons": _all("reason", lambda values: np.full(values.shape, "")),
    "all directions": _all("n_directions", np.ones_like),
    "no scales": _all("sigma", lambda values: np.full_like(values, np.nan)),
    "other strengths": _all("strength_low", lambda values: 1e9 * values),
    "other steps of departure": _all("lasting_step", lambda values: values + 10),
}
"""Values that are possible, each by itself, and do not fit those beside them: refused, or read as they are."""

_SIGNATURES = ("digest", "checksum", "sha256", "crc")


def _open(path: Path) -> dict[str, xr.Dataset]:
    with xr.open_datatree(path, engine="netcdf4") as tree:
        return {node.path: node.to_dataset(inherit=False).load() for node in tree.subtree}


def _write(groups: Mapping[str, xr.Dataset], path: Path) -> None:
    """As the library does; where it would not, as netCDF does, unsigned like a file of an older version."""
    whole = groups["/"] if len(groups) == 1 else xr.DataTree.from_dict(dict(groups))
    with contextlib.suppress(RmtbaseError):
        write_table(whole, path)
        return
    whole.attrs = {name: value for name, value in whole.attrs.items() if not any(word in name for word in _SIGNATURES)}
    path.unlink()
    whole.to_netcdf(path, engine="netcdf4")


def _signed(groups: dict[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """An atlas has a checksum of each case among its variables: made anew."""
    if groups["/"].attrs.get("kind") != "atlas":
        return groups
    from rmtbase.tables import with_checksums

    return groups | {"/": with_checksums(groups["/"])}


def _mutator(name: str, change: Change, refused: bool) -> Mutator:
    def apply(rng: Random, path: Path, donor: bytes) -> None:
        groups = _open(path)
        for place in sorted(groups, key=lambda one: (one != "/heads", one)):
            changed = change(groups[place])
            if changed is not None:
                _write(_signed(groups | {place: changed}), path)
                return
        raise LookupError(name)

    return Mutator(name, apply, refused=refused, anew=not refused, once=True)


def impossible(path: Path) -> tuple[Mutator, ...]:
    """Those of them that a file has the place for."""
    groups = _open(path).values()
    return tuple(
        _mutator(name, change, refused)
        for changes, refused in ((IMPOSSIBLE, True), (CONTRADICTING, False))
        for name, change in changes.items()
        if any(change(group) is not None for group in groups)
    )
