"""What a mutation is, and those of any file: its bytes, and what stands in its place."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random


@dataclass(frozen=True)
class Mutator:
    """One way to change a file.

    Attributes:
        name: in words.
        apply: changes the file at the path; the bytes are another file of its kind.
        refused: that no file changed so may be read, whatever it still holds.
        anew: that the file is whole, with other values than the original, and may be read as it is.
        mixes: that it may be the other file as a whole, which is read as that.
        once: that there is no chance in it.
        unprivileged: that it is read by somebody whom permissions bind.
    """

    name: str
    apply: Callable[[Random, Path, bytes], None]
    refused: bool = False
    anew: bool = False
    mixes: bool = False
    once: bool = False
    unprivileged: bool = False


def of_bytes(name: str, change: Callable[[Random, bytearray], bytes | bytearray]) -> Mutator:
    """A mutator from a function of the file's bytes."""

    def apply(rng: Random, path: Path, donor: bytes) -> None:
        path.write_bytes(change(rng, bytearray(path.read_bytes())))

    return Mutator(name, apply)


def _length(rng: Random, content: bytes | bytearray, most: int = 4096) -> int:
    """Of a block: as often 1 to 2 as 512 to 1024."""
    return min(len(content), int(2 ** rng.uniform(0, most.bit_length() - 1)))


def _block(rng: Random, content: bytes | bytearray) -> slice:
    length = _length(rng, content)
    start = rng.randrange(len(content) - length + 1)
    return slice(start, start + length)


def _flip_bit(rng: Random, content: bytearray) -> bytearray:
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return content


def _flip_byte(rng: Random, content: bytearray) -> bytearray:
    content[rng.randrange(len(content))] ^= rng.randrange(1, 256)
    return content


def _flip_some(rng: Random, content: bytearray) -> bytearray:
    for _ in range(rng.randrange(2, 20)):
        content[rng.randrange(len(content))] ^= rng.randrange(1, 256)
    return content


def _flip_early(rng: Random, content: bytearray) -> bytearray:
    """In the first kilobyte, where most formats say what they are."""
    content[rng.randrange(min(1024, len(content)))] ^= rng.randrange(1, 256)
    return content


def _truncate(rng: Random, content: bytearray) -> bytearray:
    return content[: rng.randrange(len(content))]


def _truncate_a_little(rng: Random, content: bytearray) -> bytearray:
    return content[: -_length(rng, content[1:], 64)]


def _extend(rng: Random, content: bytearray) -> bytearray:
    tail = rng.choice(
        (bytes(_length(rng, content)), rng.randbytes(_length(rng, content)), content[_block(rng, content)])
    )
    return content + tail


def _zero_block(rng: Random, content: bytearray) -> bytearray:
    block = _block(rng, content)
    content[block] = bytes(block.stop - block.start)
    return content


def _fill_block(rng: Random, content: bytearray) -> bytearray:
    block = _block(rng, content)
    content[block] = rng.choice((b"\xff", b" ", rng.randbytes(1))) * (block.stop - block.start)
    return content


def _copy_block(rng: Random, content: bytearray) -> bytearray:
    """One block stands where another was."""
    block = _block(rng, content)
    length = block.stop - block.start
    target = rng.randrange(len(content) - length + 1)
    content[target : target + length] = content[block]
    return content


def _exchange_blocks(rng: Random, content: bytearray) -> bytearray:
    length = min(_length(rng, content), len(content) // 2)
    first = rng.randrange(len(content) - 2 * length + 1)
    second = rng.randrange(first + length, len(content) - length + 1)
    one, other = slice(first, first + length), slice(second, second + length)
    content[one], content[other] = content[other], content[one]
    return content


def _insert(rng: Random, content: bytearray) -> bytearray:
    place = rng.randrange(len(content))
    return content[:place] + rng.randbytes(_length(rng, content, 256)) + content[place:]


def _remove(rng: Random, content: bytearray) -> bytearray:
    del content[_block(rng, content)]
    return content


def _splice(rng: Random, path: Path, donor: bytes) -> None:
    """The beginning of one file and the end of another."""
    content = path.read_bytes()
    cut = rng.randrange(1, min(len(content), len(donor)))
    path.write_bytes(content[:cut] + donor[cut:])


def _graft(rng: Random, path: Path, donor: bytes) -> None:
    """A block of another file, where it lay there or anywhere."""
    content = bytearray(path.read_bytes())
    block = _block(rng, donor)
    length = min(block.stop - block.start, len(content))
    target = min(block.start, len(content) - length) if rng.random() < 0.5 else rng.randrange(len(content) - length + 1)
    content[target : target + length] = donor[block][:length]
    path.write_bytes(content)


UNTOUCHED = Mutator("untouched", lambda rng, path, donor: None, once=True)
"""None at all: what stands must be read."""

BYTES = (
    of_bytes("flip a bit", _flip_bit),
    of_bytes("flip a byte", _flip_byte),
    of_bytes("flip some bytes", _flip_some),
    of_bytes("flip an early byte", _flip_early),
    of_bytes("truncate", _truncate),
    of_bytes("truncate a little", _truncate_a_little),
    of_bytes("extend", _extend),
    of_bytes("zero a block", _zero_block),
    of_bytes("fill a block", _fill_block),
    of_bytes("copy a block", _copy_block),
    of_bytes("exchange blocks", _exchange_blocks),
    of_bytes("insert bytes", _insert),
    of_bytes("remove bytes", _remove),
    Mutator("splice with another", _splice, mixes=True),
    Mutator("graft from another", _graft, mixes=True),
)
"""Those of any file."""


def _instead(make: Callable[[Path], object]) -> Callable[[Random, Path, bytes], None]:
    def apply(rng: Random, path: Path, donor: bytes) -> None:
        path.unlink()
        make(path)

    return apply


def _sparse(path: Path) -> None:
    os.truncate(path, 8 << 30)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _chain(path: Path) -> None:
    """Links, more than the system follows."""
    for step in range(60):
        path.with_name(f"link-{step}").symlink_to(f"link-{step + 1}")
    path.symlink_to("link-0")


PLACES = (
    Mutator("a pipe", _instead(os.mkfifo), refused=True, once=True),
    Mutator("an endless device", _instead(_endless), refused=True, once=True),
    Mutator("an empty device", _instead(lambda path: path.symlink_to(os.devnull)), refused=True, once=True),
    Mutator("a folder", _instead(Path.mkdir), refused=True, once=True),
    Mutator("a link to itself", _instead(_loop), refused=True, once=True),
    Mutator("too many links", _instead(_chain), refused=True, once=True),
    Mutator("a link to nothing", _instead(lambda path: path.symlink_to("nothing")), refused=True, once=True),
    Mutator("nothing", _instead(lambda path: None), refused=True, once=True),
    Mutator("an empty file", _instead(Path.touch), refused=True, once=True),
    Mutator("8 GiB of nothing after the end", lambda rng, path, donor: _sparse(path), once=True),
    Mutator("no permission", lambda rng, path, donor: path.chmod(0), refused=True, once=True, unprivileged=True),
)
"""What may stand in the place of a file."""
