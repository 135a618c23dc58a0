"""Mutations of an HDF5 file by its own library: of what netCDF and xarray believe about it.

Whatever is changed here, a file that says the same numbers as before may be read; one that says others may not.
"""

import contextlib
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

import h5py
import numpy as np
from mutations import Mutator
from originals import SECRET

Change = Callable[[Random, h5py.File], object]

_HIDDEN = ("DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties")
_HUGE = (10**8, 2**31, 2**40, 2**62)


def _datasets(file: h5py.File) -> list[h5py.Dataset]:
    found: list[h5py.Dataset] = []
    file.visititems(lambda name, one: found.append(one) if isinstance(one, h5py.Dataset) else None)
    return found


def _numbers(rng: Random, file: h5py.File) -> h5py.Dataset:
    return rng.choice([one for one in _datasets(file) if one.dtype.kind in "fiu" and one.size])


def _array(rng: Random, file: h5py.File) -> h5py.Dataset:
    return rng.choice([one for one in _datasets(file) if one.dtype.kind in "fiu" and one.size and one.ndim])


def _any(rng: Random, file: h5py.File) -> h5py.Dataset:
    return rng.choice(_datasets(file))


def _bare(values: h5py.Dataset) -> tuple[str, h5py.Group, dict]:
    """Name and place of a dataset, and its plain attributes: what is made anew under its name gets them."""
    kept = {name: value for name, value in values.attrs.items() if name not in _HIDDEN}
    return values.name, values.parent, kept


def _replace(values: h5py.Dataset, **how: object) -> h5py.Dataset:
    """Another dataset under the same name, with the same attributes and dimensions."""
    name, parent, kept = _bare(values)
    scales = [list(dim.values()) for dim in values.dims] if not values.is_scale else []
    scale = values.is_scale
    del parent[name]
    made = parent.create_dataset(name, **how)
    made.attrs.update(kept)
    if scale:
        made.make_scale(name.rpartition("/")[2])
    for dim, attached in zip(made.dims, scales, strict=False):
        for one in attached:
            if one.id.valid:
                dim.attach_scale(one)
    return made


def _other_values(rng: Random, values: np.ndarray) -> np.ndarray:
    flat = values.reshape(-1)
    place = rng.randrange(flat.size)
    match rng.randrange(7):
        case 0:
            values = values * 2
        case 1:
            flat[place] = flat[place] + 1
        case 2:
            flat[:] = flat[place]
        case 3:
            flat[:] = 0
        case 4:
            flat[place] = np.nan if values.dtype.kind == "f" else -1
        case 5:
            flat[place] = np.finfo(values.dtype).max if values.dtype.kind == "f" else np.iinfo(values.dtype).max
        case _:
            values = -values
    return values


def _change_values(rng: Random, file: h5py.File) -> None:
    one = _numbers(rng, file)
    one[...] = _other_values(rng, one[...])


def _change_sample(rng: Random, file: h5py.File) -> None:
    """Doubled, all draws equal, a draw changed: of what the scores are made."""
    one = file.get("sample", file.get("heads/observed", file.get("order_statistic_upper", _numbers(rng, file))))
    one[...] = _other_values(rng, one[...])


def _exchange_names(rng: Random, file: h5py.File) -> None:
    """Two labels of a coordinate of words (``statistic``, ``component``) exchanged, or one of them anew."""
    labels = [one for one in _datasets(file) if one.dtype.kind == "S" and one.ndim == 2 and len(one) > 1]
    if not labels:
        _change_values(rng, file)
        return
    one = rng.choice(labels)
    words = one[...]  # of a letter each
    first, second = rng.sample(range(len(words)), 2)
    if rng.random() < 0.6:
        words[[first, second]] = words[[second, first]]
    else:
        width = words.shape[1]
        anew = rng.choice(
            (words[second].tobytes(), b"", b"unknown", b"\x1b[31mred", b"x" * width, b"\xff\xfe", b"a\x00b")
        )
        words[first] = np.frombuffer(anew[:width].ljust(width, b"\0"), "S1")
    one[...] = words


def _exchange_variables(rng: Random, file: h5py.File) -> None:
    one = _numbers(rng, file)
    alike = [other for other in _datasets(file) if other.shape == one.shape and other.dtype.kind in "fiu"]
    other = rng.choice([other for other in alike if other.name != one.name] or [_numbers(rng, file)])
    first, second = one.name, other.name
    if first != second:
        file.move(first, "kept")
        file.move(second, first)
        file.move("kept", second)


def _rename(rng: Random, file: h5py.File) -> None:
    name = _any(rng, file).name
    file.move(name, rng.choice(("unknown", name[1:] + "_", name[1:-1], "x" * 60_000, "\x1b[31m\u202e", "a\nb", " ")))


def _remove(rng: Random, file: h5py.File) -> None:
    del file[_any(rng, file).name]


def _unwritten(rng: Random, file: h5py.File) -> None:
    """The dataset is there, its numbers never were."""
    one = file["sample"] if "sample" in file and rng.random() < 0.5 else _numbers(rng, file)
    _replace(
        one, shape=one.shape, dtype=one.dtype, fillvalue=rng.choice((None, 1, np.nan if one.dtype.kind == "f" else 2))
    )


def _other_shape(rng: Random, file: h5py.File) -> None:
    one = _numbers(rng, file)
    values = one[...]
    if values.ndim == 0:
        values = np.repeat(values[None], 2)
    match rng.randrange(4):
        case 0:
            values = values[..., :-1]
        case 1:
            values = np.concatenate([values, values[..., :1]], axis=-1)
        case 2:
            values = values.T.copy()
        case _:
            values = values[None]
    _replace(one, data=values)


def _huge(rng: Random, file: h5py.File) -> None:
    """A dimension of which nothing is stored."""
    one = _array(rng, file)
    place = rng.randrange(one.ndim)
    shape = tuple(rng.choice(_HUGE) if axis == place else size for axis, size in enumerate(one.shape))
    dtype = one.dtype if one.dtype.kind in "fiu" else np.dtype("f8")
    chunks = tuple(min(64, size) for size in shape)
    try:
        _replace(one, shape=shape, dtype=dtype, chunks=chunks)
    except (ValueError, OSError):  # more bytes than HDF5 counts
        _replace(one, shape=(10**8,), dtype="f8", chunks=(1024,))


def _huge_everywhere(rng: Random, file: h5py.File) -> None:
    """One dimension is huge, in all variables alike."""
    names = [one.name for one in _datasets(file) if one.ndim and one.dtype.kind in "fiu"]
    size, length = rng.choice([(file[name].shape[-1], 10 ** rng.choice((6, 7, 8))) for name in names])
    for name in names:
        one = file[name]
        if one.shape[-1] == size:
            shape = (*one.shape[:-1], length)
            _replace(one, shape=shape, dtype=one.dtype, chunks=tuple(min(1024, n) for n in shape), compression="gzip")


@cache
def _zeros(length: int) -> bytes:
    return zlib.compress(bytes(length), 9)


def _bomb(rng: Random, file: h5py.File) -> None:
    """Many chunks of compressed zeros."""
    length, count = 1 << 24, rng.choice((16, 300, 1500))
    one = _numbers(rng, file)
    made = _replace(one, shape=(count * length // 8,), dtype="f8", chunks=(length // 8,), compression="gzip")
    for chunk in range(count):
        made.id.write_direct_chunk((chunk * length // 8,), _zeros(length))


def _wrong_chunk(rng: Random, file: h5py.File) -> None:
    """A compressed chunk that unpacks to less, to more, or not at all."""
    one = _numbers(rng, file)
    values = one[...] if one.ndim else one[...][None]
    made = _replace(one, data=values, chunks=values.shape, compression="gzip")
    whole = zlib.compress(values.tobytes())
    chunk = rng.choice((zlib.compress(values.tobytes()[:-8]), _zeros(1 << 26), whole[:-5], rng.randbytes(100), b""))
    made.id.write_direct_chunk((0,) * values.ndim, chunk)


def _attribute(rng: Random, file: h5py.File) -> None:
    """An attribute that says another thing, in another type, or nothing."""
    place = rng.choice([file, file, _any(rng, file)])
    names = [name for name in place.attrs if name not in _HIDDEN]
    name = rng.choice(names or ["unknown"])
    strange = (
        np.arange(3), np.arange(5000), "", "text", "\x1b[31m[red]\u202e", "{" * 5000, '{"call": NaN}', -1, 0, 1.5,
        2**63 - 1, float("nan"), np.array(["a", "b"], dtype=h5py.string_dtype()), h5py.Empty("f8"),
        np.bytes_(b"\xff\xfe"), np.zeros((), dtype=[("a", "i4"), ("b", "f8")]), np.void(b"\x00\x01"),
        np.complex128(1j), np.bool_(True), file.ref, np.array(1, dtype=h5py.enum_dtype({"a": 1})), np.float16(1),
        "<script>alert(1)</script>", "=1+1",
    )  # fmt: skip
    match rng.randrange(3):
        case 0 if names:
            del place.attrs[name]
        case 1 if names:
            place.attrs[rng.choice(("unknown", "é", "\u202e", "a b"))] = rng.choice(strange)
        case _:
            place.attrs[name] = rng.choice(strange)


def _decoding(rng: Random, file: h5py.File) -> None:
    """Attributes by which xarray takes numbers for others: scales, offsets, fill values, times."""
    one = file["sample"] if "sample" in file and rng.random() < 0.3 else _any(rng, file)
    number = one[...].reshape(-1)[0] if one.dtype.kind in "fiu" and one.size else 0
    name, value = rng.choice(
        [
            ("scale_factor", 2.0), ("add_offset", 1.0), ("missing_value", number), ("_Unsigned", "true"),
            ("units", "days since 2000-01-01"), ("dtype", "bool"), ("dtype", "datetime64[ns]"),
            ("_Encoding", "utf-16"), ("coordinates", "a " * 100_000), ("scale_factor", np.nan),
            ("scale_factor", "two"), ("missing_value", "text"), ("calendar", "none"),
        ]
    )  # fmt: skip
    one.attrs[name] = value


def _filled(rng: Random, file: h5py.File) -> None:
    """``_FillValue``: a number that counts as none."""
    one = _numbers(rng, file)
    values = one[...].reshape(-1)
    one.attrs["_FillValue"] = np.array([rng.choice(values.tolist())], dtype=one.dtype)


def _links(rng: Random, file: h5py.File) -> None:
    """A name that leads elsewhere: to another file, to nothing, to itself, to a folder above."""
    name = _any(rng, file).name
    del file[name]
    file[name] = rng.choice(
        (
            h5py.ExternalLink("table.nc", "/mean"), h5py.ExternalLink(SECRET, "/"),
            h5py.ExternalLink("/etc/hostname", "/"), h5py.SoftLink("/nowhere"), h5py.SoftLink(name),
            h5py.SoftLink("/"), file["/"],
        )
    )  # fmt: skip


def _cycle(rng: Random, file: h5py.File) -> None:
    """A group that holds itself."""
    group = rng.choice([file.create_group("loop"), *(one for one in file.values() if isinstance(one, h5py.Group))])
    group["again"] = rng.choice((file["/"], group))


def _deep(rng: Random, file: h5py.File) -> None:
    group = file
    for _ in range(rng.choice((50, 600, 2000))):
        group = group.create_group("g")


def _many(rng: Random, file: h5py.File) -> None:
    """Groups, datasets or attributes without end."""
    what, count = rng.randrange(3), rng.choice((100, 1000))
    for number in range(count):
        if what == 0:
            file.create_group(f"group-{number}")
        elif what == 1:
            file.create_dataset(f"extra-{number}", data=number)
        else:
            file.attrs[f"extra-{number}"] = "x" * 1000


def _external(rng: Random, file: h5py.File) -> None:
    """The numbers of another file of this machine."""
    one = _array(rng, file)
    path = rng.choice((SECRET, "/etc/passwd", "/dev/zero", str(Path(file.filename).with_name(SECRET))))
    _replace(one, shape=one.shape, dtype=one.dtype, external=[(path, 0, h5py.h5f.UNLIMITED)])


def _virtual(rng: Random, file: h5py.File) -> None:
    one = _array(rng, file)
    source = rng.choice(("other.h5", ".", "nothing.nc"))
    if source == "other.h5":
        with h5py.File(Path(file.filename).with_name(source), "w") as other:
            other["values"] = np.ones(one.shape, one.dtype)
    layout = h5py.VirtualLayout(one.shape, one.dtype)
    layout[...] = h5py.VirtualSource(source, one.name if source == "." else "/values", one.shape)
    name, parent, kept = _bare(one)
    del parent[name]
    parent.create_virtual_dataset(name, layout).attrs.update(kept)


def _other_type(rng: Random, file: h5py.File) -> None:
    """The same numbers in other types, as far as they go; or none at all."""
    one = _numbers(rng, file)
    values = one[...]
    dtype = rng.choice(("f4", "f2", "i1", ">f8", ">i8", "u8", "c16", "S8", "O", "bool", "compound", "opaque"))
    if dtype == "O":
        made = np.array([str(value) for value in values.reshape(-1)], dtype=h5py.string_dtype()).reshape(values.shape)
    elif dtype == "compound":
        made = np.zeros(values.shape, dtype=[("a", "f8"), ("b", "i4")])
    elif dtype == "opaque":
        made = np.zeros(values.shape, dtype="V8")
    else:
        with np.errstate(all="ignore"):
            made = values.astype(dtype)
    _replace(one, data=made)


def _same_otherwise(rng: Random, file: h5py.File) -> None:
    """The same numbers, stored another way."""
    one = rng.choice([one for one in _datasets(file) if one.dtype.kind in "fiu" and one.size and not one.is_scale])
    values = one[...]
    if values.ndim:
        how = rng.choice(({"fletcher32": True}, {"shuffle": True, "compression": "lzf"}, {"compression": "gzip"}))
        _replace(one, data=values, chunks=values.shape, maxshape=rng.choice((None, (None,) * values.ndim)), **how)


def _mutator(name: str, change: Change, refused: bool = False) -> Mutator:
    def apply(rng: Random, path: Path, donor: bytes) -> None:
        # What HDF5 itself will not do stays half done: such a file too may be met.
        with contextlib.suppress(ValueError, OSError, RuntimeError), h5py.File(path, "r+") as file:
            change(rng, file)

    return Mutator(name, apply, refused)


HDF5 = (
    _mutator("values changed", _change_values),
    _mutator("a sample changed", _change_sample),
    _mutator("names exchanged", _exchange_names),
    _mutator("variables exchanged", _exchange_variables),
    _mutator("a variable renamed", _rename),
    _mutator("a variable removed", _remove),
    _mutator("an unwritten variable", _unwritten),
    _mutator("another shape", _other_shape),
    _mutator("a huge variable", _huge),
    _mutator("a huge dimension", _huge_everywhere),
    _mutator("a bomb", _bomb),
    _mutator("a wrong chunk", _wrong_chunk),
    _mutator("a strange attribute", _attribute),
    _mutator("an attribute that decodes", _decoding),
    _mutator("a fill value", _filled),
    _mutator("links", _links),
    _mutator("a cycle", _cycle),
    _mutator("deep groups", _deep),
    _mutator("many things", _many),
    _mutator("external storage", _external, refused=True),
    _mutator("a virtual dataset", _virtual, refused=True),
    _mutator("another type", _other_type),
    _mutator("stored another way", _same_otherwise),
)
