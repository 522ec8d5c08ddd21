"""Payloads of streams as integers: how a bench writes and reads a struct that a simulator shows as one port."""

from types import SimpleNamespace

from amaranth.lib import data

from weft.hdl.layouts import BEAT_BYTES, Beat


def pack(shape, **fields):
    """Integer of a struct payload; absent fields are zero, values must fit."""
    layout = data.Layout.cast(shape)
    for name, value in fields.items():
        assert not isinstance(value, int) or 0 <= value < 1 << layout[name].width, (name, value)
    return layout.const(fields).as_bits()


def unpack(shape, word):
    """Fields of a struct payload as attributes, enums as integers."""
    return SimpleNamespace(**{
        name: word >> field.offset & (1 << field.width) - 1 for name, field in data.Layout.cast(shape)})


def beats(content, *, error=0, unused=b"\xFF"):
    """A byte string as packed :class:`Beat` values; ``error`` marks the last one, ``unused`` fills it up."""
    words = []
    for at in range(0, len(content), BEAT_BYTES):
        piece = content[at:at + BEAT_BYTES]
        last = at + BEAT_BYTES >= len(content)
        words.append(pack(Beat, data=int.from_bytes(piece.ljust(BEAT_BYTES, unused), "little"),
                          empty=BEAT_BYTES - len(piece), last=int(last), error=int(error and last)))
    return words


async def receive(sink):
    """The bytes of the next packet of a sink of beats, and the error flag of its last one."""
    content = b""
    while True:
        beat = unpack(Beat, await sink.recv())
        assert beat.last or not beat.empty, "empty bytes before the last beat"
        content += beat.data.to_bytes(BEAT_BYTES, "little")[:BEAT_BYTES - beat.empty]
        if beat.last:
            return content, beat.error
