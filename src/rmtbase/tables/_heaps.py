r"""Check of the global heaps of an HDF5 file, which hold the references to dimensions, byte by byte.

HDF5 walks through a heap by the sizes of its objects: at one of size zero, by a single damaged byte, without end.

The format (HDF5 File Format Specification 3.0, III.E), little-endian: ``GCOL``, the byte 1, three zero bytes, the size
in 8 bytes, then objects: index and count in 2 bytes each, 4 unused, the size in 8, the content, padded to 8. Index 0 is
free space, whose size includes these 16 bytes.
"""

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_SIGNATURE = b"GCOL\x01\x00\x00\x00"
_HEADER = _OBJECT = 16  # bytes before the objects, and before the content of each
_BLOCK = 1 << 22
_SECTOR = 512  # unit in bytes of a file's space on disk
_COMPRESSED, _SMALL = 4, 1 << 20  # factor and bytes by which a table can be longer than its space on disk

_FLOOR, _RATIO = 64 << 20, 64
"""Values of a file may take at most 64 MiB plus 64 times the file's bytes: random numbers cannot be compressed, and if
much of a table is constant, :func:`rmtbase.tables.write_table` does not compress it."""


def stored_bytes(path: Path | str) -> int:
    """Length of a file, or a limit by its space on disk if it is mostly holes."""
    status = Path(path).stat()
    taken = _SECTOR * getattr(status, "st_blocks", 0)  # 0 if the file system does not report it
    return min(status.st_size, _COMPRESSED * taken + _SMALL) if taken else status.st_size


def largest_content(size: int) -> int:
    return _FLOOR + _RATIO * size


def heap_fault(path: Path | str) -> str | None:
    """Say what is wrong with a heap of the file; None if all are sound."""
    size = stored_bytes(path)
    objects_left = size // _OBJECT  # in all heaps together: there can be more only if heaps overlap
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
    before, place = b"", 0
    while (start := _next_data(file, place)) is not None:
        file.seek(start)
        block = file.read(_BLOCK)
        if not block:
            return
        # A signature may begin in one block and end in the next.
        seam = (before if start == place else b"") + block[: len(_SIGNATURE) - 1]
        for content, first in ((seam, start + len(_SIGNATURE) - 1 - len(seam)), (block, start)):
            at = -1
            while (at := content.find(_SIGNATURE, at + 1)) >= 0:
                yield first + at
        before, place = block[-len(_SIGNATURE) + 1 :], start + len(block)


def _next_data(file: BinaryIO, place: int) -> int | None:
    """Return the first place from ``place`` on that is not in a hole; ``place`` itself if holes are not supported."""
    try:
        return os.lseek(file.fileno(), place, os.SEEK_DATA)
    except AttributeError:
        return place
    except OSError as error:
        return None if error.errno == errno.ENXIO else place  # only a hole up to the end
