"""Event files of TensorBoard, whichever writer wrote them."""

import struct

from tensorboardX.proto.event_pb2 import Event


def events(folder):
    """What is in the event files of TensorBoard: (step, value) by tag."""
    found = {}
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        content, place = path.read_bytes(), 0
        while place < len(content):
            (length,) = struct.unpack_from("<Q", content, place)
            event = Event.FromString(content[place + 12 : place + 12 + length])
            place += 16 + length
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found
