"""The zip archive that ``torch.save`` writes, looked over in full before torch is given it.

Layout of the file: for each record a local header, its bytes as they are and a descriptor; then the directory, which
names every record with its checksum and place; then the directory's own place, at the very end. Nothing is compressed,
so that no record can become larger than the file, and records neither overlap nor leave room between them.

Reference: the format's specification, APPNOTE.TXT (PKWARE), and the writer in torch's ``caffe2/serialize``.
"""

from __future__ import annotations

import io
import pickletools
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from rmtbase.errors import CorruptFileError
from rmtbase.models._files import reading
from rmtbase.models._other_formats import format_that_begins
from rmtbase.shown import quoted

PICKLE = "data.pkl"
STORAGE_FOLDER = "data/"
_VALID = "a whole archive as torch.save writes it: download the file again"
_LOCAL = struct.Struct("<4sHHHHHLLLHH")
_CENTRAL = struct.Struct("<4sHHHHHHLLLHHHHHLL")
_END = struct.Struct("<4sHHHHLLH")
_END_64 = struct.Struct("<4sQHHLLQQQQ")
_LOCATOR_64 = struct.Struct("<4sLQL")
_FULL = 0xFFFFFFFF  # in a field of four bytes: the number stands in the extra field of eight
_ENCRYPTED, _DESCRIBED = 1 << 0, 1 << 3
_DESCRIPTORS = (0, 16, 24)  # bytes after a record
_LONGEST_DIRECTORY = 1 << 25  # bytes; one tensor takes a hundred of them
_LONGEST_PICKLE = 1 << 24  # bytes; one tensor takes two or three hundred of them
_LONGEST_NOTE = 1 << 12  # bytes of any record that is neither the pickle nor a storage
_BLOCK = 1 << 20
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # torch's magic number, as its old format pickled it
_NOT_AN_ARCHIVE = {
    b"version https://git-lfs": ("a Git LFS pointer", "the file it points to: run git lfs pull, or download it"),
    _LEGACY: (
        "the format of torch before 1.6, which has no checksums",
        "the zip format: load it with torch.load(path, weights_only=True) and write that with torch.save, or take the "
        "model's safetensors file",
    ),
    b"\x80": ("a bare pickle, which is a program", "a zip archive written by torch.save"),
    b"GGUF": ("a GGUF file", "a zip archive written by torch.save: pass the checkpoint it was made from"),
}


@dataclass(frozen=True)
class Record:
    """One record of an archive: its place and length in the file, and its checksum, in bytes."""

    begin: int
    size: int
    crc: int

    @property
    def end(self) -> int:
        """Where what follows it begins."""
        return self.begin + self.size


@dataclass(frozen=True)
class TorchArchive:
    """An archive in which everything lies where its directory says, with the content that it had when written.

    Attributes:
        pickle: the program that names the tensors.
        storage_sizes: bytes of each storage, by its key.
        size: bytes of the file.
    """

    pickle: bytes
    storage_sizes: Mapping[str, int]
    size: int

    @classmethod
    def open(cls, path: Path) -> TorchArchive:
        """Read the directory and check every record against it. Reads the file once, in pieces.

        Raises:
            CorruptFileError: it is of another format, truncated or damaged, compressed or larger than it may be.
            CheckpointError: it cannot be read.
        """
        with reading(path) as stream:
            size = stream.seek(0, 2)
            _require_zip(path, stream, size)
            records = _records(path, stream, *_directory(path, stream, size))
            for name, record in records.items():
                _require_checksum(path, stream, name, record)
            pickle = _content(stream, records[PICKLE])
            _require_little_endian(path, stream, records.get("byteorder"))
        sizes = {
            name.removeprefix(STORAGE_FOLDER): record.size
            for name, record in records.items()
            if name.startswith(STORAGE_FOLDER)
        }
        return cls(pickle, MappingProxyType(sizes), size)


def pickle_of(path: Path) -> BinaryIO:
    """The pickle of a file of torch.save, of the old format too, without the checksums: to be described, never made.

    Raises:
        CorruptFileError: it is no such file.
        CheckpointError: it cannot be read.
    """
    with reading(path) as stream:
        size = stream.seek(0, 2)
        stream.seek(0)
        if stream.read(len(_LEGACY)) == _LEGACY:  # then a version and a record of the system, each a pickle
            program = io.BytesIO(stream.read(_LONGEST_PICKLE))
            for _ in range(2):
                for _ in pickletools.genops(program):
                    pass
            return program
        stream.seek(0)
        if stream.read(4) != b"PK\x03\x04":
            stream.seek(0)
            return io.BytesIO(stream.read(_LONGEST_PICKLE))
        records = _records(path, stream, *_directory(path, stream, size))
        return io.BytesIO(_content(stream, records[PICKLE]))


def _require_zip(path: Path, stream: BinaryIO, size: int) -> None:
    if size == 0:
        raise CorruptFileError(path, "an empty file", _VALID)
    stream.seek(0)
    first = stream.read(64)
    for start, (found, expected) in _NOT_AN_ARCHIVE.items():
        if first.startswith(start):
            raise CorruptFileError(path, found, expected)
    if first[8:9] == b"{":  # the header, after its length
        raise CorruptFileError(path, "a safetensors file", "one written by torch.save; name it model.safetensors")
    if not first.startswith(b"PK\x03\x04") or size < _END.size:
        kind = format_that_begins(first)
        if kind is not None and not first.startswith(b"PK"):
            raise CorruptFileError(path, kind.found, f"a zip archive written by torch.save; {kind.advice}")
        raise CorruptFileError(path, "what is no zip archive", _VALID)


def _directory(path: Path, stream: BinaryIO, size: int) -> tuple[bytes, int, int]:
    """The directory's bytes, where it begins, and how many records it says to name."""
    tail_size = min(size, _END.size + _LOCATOR_64.size + _END_64.size)
    stream.seek(size - tail_size)
    tail = stream.read(tail_size)
    signature, disk, first_disk, here, count, length, begin, comment = _END.unpack(tail[-_END.size :])
    if signature != b"PK\x05\x06" or comment:
        raise CorruptFileError(path, f"{size} bytes without a directory at their end (truncated, or extended)", _VALID)
    end = size - _END.size
    locator = tail[-_END.size - _LOCATOR_64.size : -_END.size]
    if locator.startswith(b"PK\x06\x07"):
        end -= _LOCATOR_64.size + _END_64.size
        if end < 0 or _LOCATOR_64.unpack(locator)[2] != end:
            raise CorruptFileError(path, "a directory whose place is not where the file says", _VALID)
        wide = _END_64.unpack(tail[: _END_64.size])
        signature, _, _, _, disk, first_disk, here, count, length, begin = wide
        if signature != b"PK\x06\x06":
            raise CorruptFileError(path, "a directory whose place is not where the file says", _VALID)
    if disk or first_disk or here != count or begin + length != end or count * _CENTRAL.size > length:
        raise CorruptFileError(path, "a directory that does not fill its place", _VALID)
    if length > _LONGEST_DIRECTORY:
        raise CorruptFileError(path, f"a directory of {length:,} bytes", f"at most {_LONGEST_DIRECTORY:,}")
    stream.seek(begin)
    return stream.read(length), begin, count


def _records(path: Path, stream: BinaryIO, directory: bytes, begin: int, count: int) -> dict[str, Record]:
    """The records by their names within the archive's folder, in the order of their places."""
    found: dict[str, Record] = {}
    place, last = 0, 0
    for _ in range(count):
        if place + _CENTRAL.size > len(directory):
            raise CorruptFileError(path, "a directory shorter than its records", _VALID)
        fields = _CENTRAL.unpack_from(directory, place)
        signature, flags, method, crc, packed, size = fields[0], *fields[3:5], *fields[7:10]
        name_size, extra_size, comment_size, header = *fields[10:13], fields[16]
        place += _CENTRAL.size
        name = directory[place : place + name_size]
        extra = directory[place + name_size : place + name_size + extra_size]
        place += name_size + extra_size + comment_size
        if signature != b"PK\x01\x02" or comment_size or place > len(directory):
            raise CorruptFileError(path, "a directory that is not one", _VALID)
        if method or flags & _ENCRYPTED:
            raise CorruptFileError(
                path, f"the record {quoted(name.decode(errors='replace'))} compressed or encrypted", _VALID
            )
        size, packed, header = _widened(path, (size, packed, header), extra)
        if packed != size or header < last or header - last not in _DESCRIPTORS or (last == 0 and header):
            raise CorruptFileError(path, "records that overlap, or bytes between them that belong to none", _VALID)
        data = _data_begin(path, stream, header, name, (flags, crc, size))
        last = data + size
        inner = _inner_name(path, name, found)
        if last > begin:
            raise CorruptFileError(path, f"the record {quoted(inner)} reaching into the directory", _VALID)
        found[inner] = Record(data, size, crc)
    if place != len(directory) or begin - last not in _DESCRIPTORS:
        raise CorruptFileError(path, "a directory with bytes that belong to no record", _VALID)
    _require_parts(path, found)
    return found


def _widened(path: Path, fields: tuple[int, int, int], extra: bytes) -> list[int]:
    """Sizes and place, those that need more than four bytes from the extra field."""
    if _FULL not in fields:
        return list(fields)
    kind, length = struct.unpack_from("<HH", extra) if len(extra) >= 4 else (0, 0)
    needed = 8 * fields.count(_FULL)
    if kind != 1 or not needed <= length <= len(extra) - 4:
        raise CorruptFileError(path, "a record whose size stands nowhere", _VALID)
    wide = iter(struct.unpack_from(f"<{needed // 8}Q", extra, 4))
    return [next(wide) if value == _FULL else value for value in fields]


def _data_begin(path: Path, stream: BinaryIO, header: int, name: bytes, said: tuple[int, int, int]) -> int:
    """Where a record's bytes begin, its own header agreeing with the directory."""
    stream.seek(header)
    local = stream.read(_LOCAL.size)
    if len(local) < _LOCAL.size:
        raise CorruptFileError(path, "a record beyond the end of the file", _VALID)
    signature, _, flags, method, _, _, crc, _, size, name_size, extra_size = _LOCAL.unpack(local)
    own = stream.read(name_size)
    agrees = flags & _DESCRIBED or size == _FULL or (crc, size) == said[1:]
    if signature != b"PK\x03\x04" or own != name or method or flags != said[0] or not agrees:
        raise CorruptFileError(path, f"a record that is not what the directory says of {quoted(name)}", _VALID)
    return header + _LOCAL.size + name_size + extra_size


def _inner_name(path: Path, name: bytes, found: Mapping[str, Record]) -> str:
    """The name without the archive's folder, which must be the same for all: it is judged by the part after it."""
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptFileError(path, f"a record named {quoted(name)}", _VALID) from error
    _, slash, inner = text.partition("/")
    known = inner in {PICKLE, "version", "byteorder"} or inner.startswith((STORAGE_FOLDER, "."))
    if not slash or not known or ".." in inner or not inner.isprintable():
        raise CorruptFileError(path, f"a record named {quoted(text)}", "data.pkl, version and data/ alone: weights")
    if inner in found:
        raise CorruptFileError(path, f"two records named {quoted(text)}", _VALID)
    return inner


def _require_parts(path: Path, records: Mapping[str, Record]) -> None:
    if PICKLE not in records:
        raise CorruptFileError(path, f"no record {PICKLE}", _VALID)
    for name, record in records.items():
        longest = _LONGEST_PICKLE if name == PICKLE else _LONGEST_NOTE
        if not name.startswith(STORAGE_FOLDER) and record.size > longest:
            raise CorruptFileError(path, f"a record {quoted(name)} of {record.size:,} bytes", f"at most {longest:,}")


def _require_checksum(path: Path, stream: BinaryIO, name: str, record: Record) -> None:
    stream.seek(record.begin)
    crc, left = 0, record.size
    while left:
        block = stream.read(min(left, _BLOCK))
        if not block:
            raise CorruptFileError(path, f"the record {quoted(name)} cut short", _VALID)
        crc, left = zlib.crc32(block, crc), left - len(block)
    if crc != record.crc:
        raise CorruptFileError(
            path, f"the record {quoted(name)} with other bytes than were written (its checksum differs)", _VALID
        )


def _require_little_endian(path: Path, stream: BinaryIO, record: Record | None) -> None:
    if record is not None and _content(stream, record) != b"little":
        raise CorruptFileError(path, "numbers that are not little-endian", "a file written on a little-endian machine")


def _content(stream: BinaryIO, record: Record) -> bytes:
    stream.seek(record.begin)
    return stream.read(record.size)
