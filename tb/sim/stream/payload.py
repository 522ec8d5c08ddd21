"""Conversion between the fields of a stream's payload and the integer that a simulator shows as one port."""

from types import SimpleNamespace

from amaranth.lib import data

from weft.hdl.part.layouts import BEAT_BYTES, Beat

_places = {}    # {identity of a shape: (the shape, {field: (offset, number of values)})}


def _fields(shape):
    """Return the positions of a struct's fields; querying the layout each time takes longer than a simulated cycle."""
    if id(shape) not in _places:
        layout = data.Layout.cast(shape)
        _places[id(shape)] = shape, {name: (field.offset, 1 << field.width) for name, field in layout}
    return _places[id(shape)][1]


def pack(shape, **fields):
    """Return the integer of a struct payload; absent fields are zero, values must fit."""
    places, word = _fields(shape), 0
    for name, value in fields.items():
        offset, values = places[name]
        if not isinstance(value, int):
            return data.Layout.cast(shape).const(fields).as_bits()
        assert 0 <= value < values, (name, value)
        word |= value << offset
    return word


def unpack(shape, word):
    """Return the fields of a struct payload as attributes, enums as integers."""
    return SimpleNamespace(**{
        name: word >> offset & values - 1 for name, (offset, values) in _fields(shape).items()})


def beats(content, *, error=0, unused=b"\xFF"):
    """Return a byte string as packed :class:`Beat` values; ``error`` marks the last beat, ``unused`` pads it."""
    words = []
    for at in range(0, len(content), BEAT_BYTES):
        piece = content[at:at + BEAT_BYTES]
        last = at + BEAT_BYTES >= len(content)
        words.append(pack(Beat, data=int.from_bytes(piece.ljust(BEAT_BYTES, unused), "little"),
                          empty=BEAT_BYTES - len(piece), last=int(last), error=int(error and last)))
    return words


async def receive(sink):
    """Return the bytes of the next packet of a sink of beats, and the error flag of its last beat."""
    content = b""
    while True:
        beat = unpack(Beat, await sink.recv())
        assert beat.last or not beat.empty, "empty bytes before the last beat"
        content += beat.data.to_bytes(BEAT_BYTES, "little")[:BEAT_BYTES - beat.empty]
        if beat.last:
            return content, beat.error
