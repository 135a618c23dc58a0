"""Mutations of safetensors files, of indexes of shards, and of what torch saves."""

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from mutations import Mutator
from mutations_json import of_header, of_json_header

_LENGTH = struct.Struct("<Q")
_TYPES = (
    "F64", "F16", "BF16", "I8", "U8", "I32", "BOOL", "F8_E4M3", "F8_E5M2", "F4", "C64", "f32", "", "F32 ", None, 3,
)  # fmt: skip


def header_and_data(content: bytes) -> tuple[bytes, bytes]:
    """The JSON of a safetensors file, and what follows it."""
    (length,) = _LENGTH.unpack(content[:8])
    return content[8 : 8 + length], content[8 + length :]


def with_header(header: bytes, data: bytes) -> bytes:
    """A safetensors file of the two."""
    return _LENGTH.pack(len(header)) + header + data


def _tensor(rng: Random, table: dict) -> dict:
    return table[rng.choice([name for name in table if name != "__metadata__"])]


def _entry(rng: Random, header: bytes) -> bytes:
    """One tensor's type, shape or place."""
    table = json.loads(header)
    one, other = _tensor(rng, table), _tensor(rng, table)
    begin, end = one["data_offsets"]
    shift = rng.choice((1, 4, 48, -4))
    match rng.randrange(9):
        case 0:
            one["dtype"] = rng.choice(_TYPES)
        case 1:
            one["shape"] = rng.choice(
                (one["shape"][::-1], [*one["shape"], 1], [-n for n in one["shape"]], [], [0], [2**63, 0])
            )
        case 2:
            one["shape"] = rng.choice(
                ([1] * 1_000_000, [2**32, 2**32], [10**4299, 0], [1.0, 2.0], [True], "12", [[12]])
            )
        case 3:
            one["data_offsets"] = [begin + shift, end + shift]
        case 4:
            one["data_offsets"] = rng.choice(
                ([end, begin], [begin], [0, 2**64], [-8, end], [begin, end, end], [0.0, end])
            )
        case 5:
            one["data_offsets"], other["data_offsets"] = other["data_offsets"], one["data_offsets"]
        case 6:
            one["data_offsets"] = other["data_offsets"]
        case 7:
            one["shape"], one["data_offsets"] = [0, one["shape"][-1]], [begin, begin]
        case _:
            one[rng.choice(("extra", "dtype ", "Shape"))] = 1
    return json.dumps(table).encode()


def _table(rng: Random, header: bytes) -> bytes:
    """Tensors more, fewer, elsewhere."""
    table = json.loads(header)
    last = max(one["data_offsets"][1] for name, one in table.items() if name != "__metadata__")
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [last, last]}
    match rng.randrange(6):
        case 0:
            table |= {f"extra.{number}": empty for number in range(rng.choice((1, 100, 50_000)))}
        case 1:
            table["__metadata__"] = rng.choice(
                ({"a": 1}, {"a": None}, [], "text", None, {"a": {"b": "c"}}, {"a": "x" * 10**6})
            )
        case 2:
            items = list(table.items())
            rng.shuffle(items)
            table = dict(items)
        case 3:
            table[rng.choice(("", "x" * 100_000, "\x1b[31m", "\u202e", "a/../b", "\ud800"))] = empty
        case 4:
            table[rng.choice(("model.layers.9.self_attn.q_proj.weight", "model.layers.0.lora_A.weight"))] = empty
        case _:
            del table[rng.choice(list(table))]
    return json.dumps(table).encode("utf-8", "surrogatepass")


def _spacing(rng: Random, header: bytes) -> bytes:
    space = rng.choice((b" ", b"\n", b"\t", b"\x00", b"\xef\xbb\xbf")) * rng.choice((1, 8, 10_000_000))
    return header + space if rng.random() < 0.5 else space + header


def _length_field(rng: Random, path: Path, donor: bytes) -> None:
    content = path.read_bytes()
    (length,) = _LENGTH.unpack(content[:8])
    other = rng.choice((0, 1, 2, length - 1, length + 1, length + 8, 100_000_000, 100_000_001, 2**32, 2**63, 2**64 - 1))
    path.write_bytes(_LENGTH.pack(other) + content[8:])


def _larger(rng: Random, path: Path, donor: bytes) -> None:
    """A header of the longest length there may be, of what costs most to read."""
    unit = rng.choice((b" ", b"[", b"1,", b'{"a":', b'"\\u0000"'))
    header = b"{" + unit * (rng.choice((10_000_000, 99_999_000)) // len(unit))
    path.write_bytes(with_header(header, b""))


SAFETENSORS = (
    *of_json_header(header_and_data, with_header),
    of_header("an entry", header_and_data, with_header, _entry),
    of_header("an entry again", header_and_data, with_header, _entry),
    of_header("the table", header_and_data, with_header, _table),
    of_header("spacing", header_and_data, with_header, _spacing),
    Mutator("length of the header", _length_field),
    Mutator("a large header", _larger),
)


_ELSEWHERE = (
    *("", ".", "/", "../outside.safetensors", "a/../../outside.safetensors", "..\\outside.safetensors"),
    *("config.json", "model.safetensors.index.json", "nothing.safetensors", "C:model.safetensors"),
    *("x" * 5000 + ".safetensors", "./" * 3000 + "nothing.safetensors"),
    *("\x1b[31m.safetensors", "a\x00.safetensors", "\ud800.safetensors"),
)


def _shards(rng: Random, path: Path, donor: bytes) -> None:
    """Shards that lie outside, are no shards, or are the wrong ones."""
    table = json.loads(path.read_bytes())
    places = table["weight_map"]
    name = rng.choice(list(places))
    outside = path.parent.parent / "outside.safetensors"
    outside.write_bytes((path.parent / places[name]).read_bytes())
    places[name] = rng.choice((*_ELSEWHERE, str(outside)))
    path.write_text(json.dumps(table))


def _wrong_shards(rng: Random, path: Path, donor: bytes) -> None:
    """Tensors where they are not, or shards without end."""
    table = json.loads(path.read_bytes())
    places = table["weight_map"]
    if rng.random() < 0.5:
        table["weight_map"] = dict.fromkeys(places, rng.choice(list(places.values())))
    else:
        table["weight_map"] = places | {f"extra.{i}": f"model-{i}.safetensors" for i in range(rng.choice((1, 100_000)))}
    path.write_text(json.dumps(table))


INDEX = (Mutator("shards elsewhere", _shards, refused=True), Mutator("wrong shards", _wrong_shards, refused=True))


def _records(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {one.filename: file.read(one) for one in file.infolist()}


def _zipped(path: Path, records: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in records.items():
            file.writestr(name, content)


def _record(rng: Random, path: Path, donor: bytes) -> None:
    """A record changed, with its checksum made anew: shorter, longer, renamed, gone, or of another file."""
    records = _records(path)
    name = rng.choice(list(records))
    with zipfile.ZipFile(io.BytesIO(donor)) as other:
        strange = other.read(rng.choice(other.namelist()))
    match rng.randrange(5):
        case 0:
            records[name] = records[name][: len(records[name]) // 2]
        case 1:
            records[name] += bytes(64)
        case 2:
            records[rng.choice(("../outside", "/outside", "\x1b[31m", "x" * 30_000, f"{name}~"))] = records.pop(name)
        case 3:
            del records[name]
        case _:
            records[name] = strange
    _zipped(path, records)


def _pickle(rng: Random, path: Path, donor: bytes) -> None:
    """Bytes of the pickle changed, with their checksum made anew."""
    records = _records(path)
    (name,) = (one for one in records if one.endswith("data.pkl"))
    content = bytearray(records[name])
    for _ in range(rng.randrange(1, 4)):
        content[rng.randrange(len(content))] = rng.choice((rng.randrange(256), *b"\x80.}]()Rb\x93\x8e\x96Q"))
    _zipped(path, records | {name: bytes(content)})


def _compressed(rng: Random, path: Path, donor: bytes) -> None:
    """A record of zeros that unpacks to gigabytes."""
    records = _records(path)
    name = rng.choice(list(records))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for other, content in records.items():
            with file.open(other, "w", force_zip64=True) as record:
                record.write(content)
                for _ in range(80 if other == name else 0):
                    record.write(bytes(1 << 24))


class _Call:
    """What runs code where pickles are trusted."""

    def __init__(self, function: Callable, *arguments: object) -> None:
        self._call = function, arguments

    def __reduce__(self) -> tuple:
        return self._call


def _code(rng: Random, path: Path, donor: bytes) -> None:
    call = rng.choice((_Call(os.system, "touch pwned"), _Call(eval, "open('pwned', 'w')"), _Call(os.mkdir, "pwned")))
    content = pickle.dumps({"model.layers.0.self_attn.q_proj.weight": call}, rng.choice((0, 2, 4)))
    if rng.random() < 0.5:
        path.write_bytes(content)
    else:
        records = _records(path)
        _zipped(path, {name: content if name.endswith("data.pkl") else one for name, one in records.items()})


def _claimed(rng: Random, path: Path, donor: bytes) -> None:
    """A few bytes that claim to be gigabytes."""
    size = rng.choice((6 << 30, 1 << 40, 2**63))
    claim = rng.choice((b"\x8e", b"\x96", b"\x8d")) + struct.pack("<Q", size)  # BINBYTES8, BYTEARRAY8, BINUNICODE8
    content = b"\x80\x05" + claim + b"abc."
    if rng.random() < 0.5:
        path.write_bytes(content)
    else:
        _zipped(path, {name: content if name.endswith("data.pkl") else one for name, one in _records(path).items()})


def _torch_saves(rng: Random, path: Path, donor: bytes) -> None:
    """What torch saves and loads again, and is no dictionary of weights."""
    import torch

    state: dict[Any, Any] = torch.load(path, weights_only=True)
    name = rng.choice(list(state))
    weight = state[name]
    strange: tuple[Callable[[], Any], ...] = (
        lambda: weight.to_sparse(),
        lambda: weight.to_sparse_csr(),
        lambda: torch.nested.nested_tensor([weight, weight[:1]]),
        lambda: torch.empty_like(weight, device="meta"),
        lambda: torch.complex(weight, weight).conj(),
        lambda: torch.zeros(1).expand(60_000, 60_000),
        lambda: torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8),
        lambda: weight.to(torch.int8),
        lambda: weight.to(torch.float8_e4m3fn),
        lambda: weight * torch.nan,
        lambda: weight.tolist(),
        lambda: {"weight": weight},
        lambda: weight.untyped_storage(),
        lambda: weight[:, 0],
        lambda: weight.numpy().tobytes(),
    )
    if rng.random() < 0.8:
        state[name] = rng.choice(strange)()
    else:
        kind = rng.choice((list, tuple, "keys", "nested", "lora"))
        state = (
            {number: one for number, one in enumerate(state.values())} if kind == "keys"
            else {"state_dict": state} if kind == "nested"
            else {**state, f"{name.removesuffix('.weight')}.lora_A.weight": weight[:2]} if kind == "lora"
            else kind(state.values())
        )  # fmt: skip
    torch.save(state, path)


def _torch_also_saves(rng: Random, path: Path, donor: bytes) -> None:
    """The same weights as torch may write them too: in its old format, transposed twice, repeated."""
    import torch

    state = torch.load(path, weights_only=True)
    match rng.randrange(5):
        case 0:
            torch.save(state, path, _use_new_zipfile_serialization=False)
        case 1:
            torch.save({name: one.T.contiguous().T for name, one in state.items()}, path)
        case 2:
            torch.save({name: one.double() for name, one in state.items()}, path)
        case 3:
            torch.save({name: torch.ones(1).expand(one.shape) for name, one in state.items()}, path)
        case _:
            torch.save({name: torch.nn.Parameter(one) for name, one in state.items()}, path)


BIN = (
    Mutator("a record", _record),
    Mutator("the pickle", _pickle),
    Mutator("the pickle again", _pickle),
    Mutator("compressed zeros", _compressed, refused=True),
    Mutator("code", _code, refused=True),
    Mutator("claims of gigabytes", _claimed, refused=True),
    Mutator("other things", _torch_saves, refused=True),
    Mutator("other ways", _torch_also_saves),
)
