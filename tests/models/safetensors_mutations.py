"""Safetensors files that are wrong, made from sound ones: by structure (fields, numbers, names, offsets) and by byte.

A header is kept as the texts of its names and values, so that what no JSON writer would write can be written: names
twice, numbers of other forms, half surrogate pairs.
"""

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F4": 4, "C64": 64}
TYPES = (*BITS, "F6_E2M3", "F6_E3M2", "I8", "I16", "U16", "I32", "U32", "U64", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ")
NUMBERS = (
    "-0", "-1", "+1", "01", "1.0", "1e0", "4E0", "0x4", "1_0", "", " 4 ", "٤", "NaN", "Infinity", "-Infinity", "true",
    "null", '"4"', "[4]", "{}", "4294967296", "9223372036854775808", "18446744073709551615", "18446744073709551616",
    "1" * 30, "1" * 4300, "1e999", "1" * 100 + ".5",
)  # fmt: skip
TYPE_TEXTS = (
    '"f32"', '"F128"', '"F6"', '"C128"', '""', '"F32 "', '"F32\\u0000"', r'"\u0046\u0033\u0032"', "17", "null", "F32",
    '["F32"]', '{"F32":null}', '{"F32":null,"F16":null}', '{"F32":{}}', "'F32'",
)  # fmt: skip
NAMES = (
    '""', r'"\ud800"', r'"\udc00x"', r'"\ud83d\ude00"', r'"\ud83dx\ude00"', r'"\u0000"', r'"\x41"', '"\x01"', '"\x7f"',
    '"\u202e"', '"a\nb"', r'"a\nb"', '"__metadata__"', r'"\u005f_metadata__"', '"__METADATA__"', "w", "'w'", "1",
    "null", '"' + "n" * 10_000 + '"', '"é"', '"e\u0301"', '"\ufffd"',
)  # fmt: skip
METADATA = (
    "null", "{}", "[]", '"x"', "3", '{"a":1}', '{"a":null}', '{"a":["b"]}', '{"a":{"b":"c"}}', '{"a":"b","a":"c"}',
    r'{"a":"\ud800"}', r'{"\udfff":"a"}', r'{"a":"\ud83d\ude00"}', '{"a":"\\u00zz"}', '{"a":"b",}', "{1:2}",
    '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}', "[" * 200 + "]" * 200, '{"a":"\t"}', '{"a":"{[,:]}"}',
)  # fmt: skip
ENCODINGS = ("utf-8-sig", "utf-16", "utf-16-le", "utf-32", "utf-32-be", "utf-7")


@dataclass
class Tensor:
    """One member of a header, as texts."""

    name: str
    dtype: str
    shape: list[str]
    offsets: list[str]
    extra: list[tuple[str, str]] = field(default_factory=list)  # further fields, or the same again
    left_out: str = ""  # a field

    def text(self, rng: random.Random) -> str:
        fields = {
            "dtype": self.dtype,
            "shape": f"[{','.join(self.shape)}]",
            "data_offsets": f"[{','.join(self.offsets)}]",
        }
        pairs = [(f'"{name}"', value) for name, value in fields.items() if name != self.left_out] + self.extra
        rng.shuffle(pairs)
        return f"{self.name}:{{{','.join(f'{name}:{value}' for name, value in pairs)}}}"


@dataclass
class File:
    """A file to be: its tensors and metadata as texts, its data, and what is done to the whole at the end."""

    tensors: list[Tensor]
    metadata: str | None
    data: bytes
    at_end: list[Callable[[bytes], bytes]] = field(default_factory=list)  # of the header
    length: Callable[[int], int] = lambda length: length
    of_whole: list[Callable[[bytes], bytes]] = field(default_factory=list)

    def content(self, rng: random.Random) -> bytes:
        members = [tensor.text(rng) for tensor in self.tensors]
        if self.metadata is not None:
            members.insert(rng.randrange(len(members) + 1), f'"__metadata__":{self.metadata}')
        header = f"{{{','.join(members)}}}".encode(errors="surrogatepass")
        for change in self.at_end:
            header = change(header)
        whole = struct.pack("<Q", self.length(len(header)) % 2**64) + header + self.data
        for change in self.of_whole:
            whole = change(whole)
        return whole


def sound(rng: random.Random) -> File:
    """A file of a few small tensors, some of them empty."""
    tensors, end = [], 0
    for number in range(rng.randint(1, 5)):
        dtype = rng.choice(list(BITS))
        shape = [rng.choice((0, 1, 2, 2, 3, 4)) for _ in range(rng.randint(0, 3))]
        if dtype == "F4":
            shape.append(2)
        size = BITS[dtype]
        for length in shape:
            size *= length
        begin, end = end, end + size // 8
        tensors.append(Tensor(f'"w{number}"', f'"{dtype}"', list(map(str, shape)), [str(begin), str(end)]))
    rng.shuffle(tensors)
    return File(tensors, rng.choice((None, None, "{}", '{"format":"pt"}')), rng.randbytes(end))


def _number(rng: random.Random, file: File) -> None:
    tensor = rng.choice(file.tensors)
    numbers = rng.choice((tensor.shape, tensor.offsets))
    if not numbers:
        numbers.append("1")
    place = rng.randrange(len(numbers))
    if rng.random() < 0.5 and numbers[place].isdigit():
        numbers[place] = str(int(numbers[place]) + rng.choice((-4, -1, 1, 4, 8)))
    else:
        numbers[place] = rng.choice(NUMBERS)


def _shape(rng: random.Random, file: File) -> None:
    shape = rng.choice(file.tensors).shape
    change = rng.randrange(6)
    if change == 0:
        shape.insert(rng.randrange(len(shape) + 1), rng.choice(("0", "1", "2", "9223372036854775808")))
    elif change == 1 and shape:
        del shape[rng.randrange(len(shape))]
    elif change == 2:
        rng.shuffle(shape)
    elif change == 3:
        shape += ["1"] * rng.choice((10, 64, 65, 1000))
    elif change == 4:
        shape[:] = [*rng.choice((["0"], [])), "4294967296", "4294967296", "4294967296", *rng.choice((["0"], []))]
    else:
        shape[:] = ["0"]


def _offsets(rng: random.Random, file: File) -> None:
    one, other = rng.choice(file.tensors), rng.choice(file.tensors)
    change = rng.randrange(6)
    if change == 0:
        one.offsets, other.offsets = other.offsets, one.offsets
    elif change == 1:
        one.offsets = list(other.offsets)
    elif change == 2:
        one.offsets.reverse()
    elif change == 3:
        one.offsets.append(one.offsets[-1])
    elif change == 4:
        del one.offsets[-1:]
    else:
        shift = rng.choice((-4, 1, 4, 8))
        one.offsets = [str(max(int(text) + shift, 0)) if text.isdigit() else text for text in one.offsets]


def _type(rng: random.Random, file: File) -> None:
    rng.choice(file.tensors).dtype = rng.choice((*TYPE_TEXTS, *(f'"{name}"' for name in TYPES)))


def _name(rng: random.Random, file: File) -> None:
    rng.choice(file.tensors).name = rng.choice(NAMES)


def _twice(rng: random.Random, file: File) -> None:
    one, other = rng.choice(file.tensors), rng.choice(file.tensors)
    again = rng.choice((one, other))
    file.tensors.append(Tensor(one.name, again.dtype, list(again.shape), list(again.offsets)))


def _field(rng: random.Random, file: File) -> None:
    tensor = rng.choice(file.tensors)
    change = rng.randrange(3)
    if change == 0:
        tensor.left_out = rng.choice(("dtype", "shape", "data_offsets"))
    elif change == 1:
        name = rng.choice(("dtype", "shape", "data_offsets"))
        value = {"dtype": tensor.dtype, "shape": f"[{','.join(tensor.shape)}]", "data_offsets": "[0,4]"}[name]
        tensor.extra.append((f'"{name}"', rng.choice((value, '"F16"', "[1]", "null"))))
    else:
        value = rng.choice(("1", "null", "NaN", "[" * 200 + "]" * 200, '{"a":[{}]}', '"\\ud800"', "1e999"))
        tensor.extra.append((rng.choice(('"strides"', '"Dtype"', '""')), value))


def _empty_tensor(rng: random.Random, file: File) -> None:
    at = str(rng.choice((0, 1, 4, len(file.data), len(file.data) + 4)))
    file.tensors.append(Tensor('"empty"', '"F32"', ["0"], [at, at]))


def _metadata(rng: random.Random, file: File) -> None:
    file.metadata = rng.choice(METADATA)


def _text(rng: random.Random, file: File) -> None:
    """What is done to the header as a text: encodings, white space, what stands before or behind, other brackets."""
    encoding = rng.choice(ENCODINGS)
    near = rng.choice(
        (b" ", b"\n", b"\t\r\n ", b"\0", b"\x0b", b"\xc2\xa0", b"\xef\xbb\xbf", b"{}", b",", b"//", b"\xff")
    )
    mark = rng.choice((b"{", b"}", b"[", b"]", b",", b":", b'"'))
    instead = rng.choice((b"", mark * 2, mark + b" ", b" " + mark, mark + b",", mark + b"\0", b"[", b"}"))
    seed = rng.random()

    def at_a_mark(header: bytes) -> bytes:
        places = [place for place in range(len(header)) if header[place : place + 1] == mark]
        place = places[int(seed * len(places))] if places else 0
        return header[:place] + instead + header[place + 1 :]

    file.at_end.append(
        rng.choice(
            (
                lambda header: header.decode(errors="replace").encode(encoding),
                lambda header: near + header,
                lambda header: header + near,
                at_a_mark,
                at_a_mark,
                lambda header: b"[" + header + b"]",
                lambda header: b"",
            )
        )
    )


def _length(rng: random.Random, file: File) -> None:
    change = rng.choice((-8, -1, 1, 8))
    other = rng.choice((0, 1, 100_000_000, 100_000_001, 2**31, 2**63, 2**64 - 1, 2**64 - 8))
    file.length = rng.choice((lambda length: length + change, lambda length: other))


def _data(rng: random.Random, file: File) -> None:
    cut, more = rng.randint(0, len(file.data)), rng.randbytes(rng.choice((1, 4, 8)))
    file.data = rng.choice((file.data[:cut], file.data + more, b""))


def _bytes(rng: random.Random, file: File) -> None:
    """A few bits flipped, bytes exchanged or left out, a piece written twice: mostly within the header."""
    changes, kind, seeds = rng.randint(1, 3), rng.randrange(4), [rng.random() for _ in range(9)]

    def change(whole: bytes) -> bytes:
        damaged = bytearray(whole)
        for number in range(changes):
            where, what, span = seeds[3 * number : 3 * number + 3]
            place = int(where * len(damaged))
            if not damaged:
                break
            if kind == 0:
                damaged[place] ^= 1 << int(8 * what)
            elif kind == 1:
                damaged[place] = int(256 * what)
            elif kind == 2:
                del damaged[place : place + 1 + int(8 * span)]
            else:
                damaged[place:place] = damaged[place : place + 1 + int(60 * span)]
        return bytes(damaged)

    rng.choice((file.at_end, file.at_end, file.of_whole)).append(change)


CHANGES = (
    _number, _number, _shape, _offsets, _offsets, _type, _name, _twice, _field, _empty_tensor, _metadata, _text,
    _length, _data, _bytes, _bytes,
)  # fmt: skip


def mutations(seed: int) -> Iterator[bytes]:
    """Files without end: one in twenty sound, the others with one to three things wrong."""
    rng = random.Random(seed)
    while True:
        file = sound(rng)
        for change in rng.choices(CHANGES, k=rng.choice((1, 1, 1, 2, 3)) if rng.random() < 0.95 else 0):
            change(rng, file)
        yield file.content(rng)
