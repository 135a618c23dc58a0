r"""The global heaps of an HDF5 file, which hold the references to dimensions, looked at byte by byte.

HDF5 walks a heap from object to object by their sizes. At an object of size zero it never comes to an end, whoever
reads the file: one damaged byte is enough. So every heap of a file is walked here first.

The format, all numbers little-endian: ``GCOL``, the byte 1, three zero bytes, the heap's size in 8 bytes, then its
objects: index and count in 2 bytes each, 4 unused, the size in 8 bytes, the content, padded to 8. Index 0 is what is
free, and its size includes those 16 bytes.

Source: HDF5 File Format Specification version 3.0, section III.E.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_SIGNATURE = b"GCOL\x01\x00\x00\x00"
_HEADER = _OBJECT = 16  # bytes before the objects, and of each before its content
_BLOCK = 1 << 22
_SECTOR = 512  # in which a file system counts what a file takes
_COMPRESSED, _SMALL = 4, 1 << 20  # times, and bytes, by which a table can be longer than that

_FLOOR, _RATIO = 64 << 20, 64
"""The values of a file take at most 64 MiB and 64 times the file's own bytes: random numbers cannot be compressed, and
where much of a table is constant, :func:`rmtbase.tables.write_table` leaves it as it is."""


def stored_bytes(path: Path | str) -> int:
    """The length of a file, or where it is hardly more than holes what it takes on its disk.

    A disk that compresses what it stores makes a table a little smaller, never by much.
    """
    found = Path(path).stat()
    taken = _SECTOR * getattr(found, "st_blocks", 0)  # 0 where the file system does not say
    return min(found.st_size, _COMPRESSED * taken + _SMALL) if taken else found.st_size


def largest_content(size: int) -> int:
    """The most bytes that the values of a file of so many bytes may take."""
    return _FLOOR + _RATIO * size


def heap_fault(path: Path | str) -> str | None:
    """What is wrong with a heap of the file, if anything is."""
    size = stored_bytes(path)
    objects_left = size // _OBJECT  # of all heaps: more could only be where they overlap
    with Path(path).open("rb") as file:
        for start in list(_heaps(file)):
            file.seek(start)
            header = file.read(_HEADER)
            length = int.from_bytes(header[8:], "little")
            if len(header) < _HEADER or not _HEADER <= length <= size:
                return "a heap that does not lie in the file"
            heap, place = file.read(length - _HEADER), 0
            while place + _OBJECT <= len(heap):
                index, content = struct.unpack_from("<HxxxxxxQ", heap, place)
                taken = _OBJECT + -(-content // 8) * 8 if index else content
                objects_left -= 1
                if taken < _OBJECT or place + taken > len(heap) or objects_left < 0:
                    return "a heap that has no end"
                place += taken
    return None


def _heaps(file: BinaryIO) -> Iterator[int]:
    """Where each begins."""
    before, place = b"", 0
    while (start := _next_data(file, place)) is not None:
        file.seek(start)
        block = file.read(_BLOCK)
        if not block:
            return
        # One may begin in a block and go on in the next.
        seam = (before if start == place else b"") + block[: len(_SIGNATURE) - 1]
        for held, first in ((seam, start + len(_SIGNATURE) - 1 - len(seam)), (block, start)):
            found = -1
            while (found := held.find(_SIGNATURE, found + 1)) >= 0:
                yield first + found
        before, place = block[-len(_SIGNATURE) + 1 :], start + len(block)


def _next_data(file: BinaryIO, place: int) -> int | None:
    """From there on the first place that is not in a hole; the place itself where the system knows none."""
    try:
        return os.lseek(file.fileno(), place, os.SEEK_DATA)
    except AttributeError:
        return place
    except OSError as error:
        return None if error.errno == errno.ENXIO else place  # nothing but a hole up to the end
