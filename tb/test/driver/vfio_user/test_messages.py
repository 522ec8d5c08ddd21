"""Framing of messages and their descriptors, and negotiation of capabilities."""

import os

import pytest

from weft.driver.vfio_user import messages as wire
from weft.driver.vfio_user.messages import Command, Flag, Framer, Message, Violation, close_all
from weft.tb.verify.linux.client import QEMU, header


def descriptors(count):
    return [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]


def is_open(file):
    try:
        os.fstat(file)
    except OSError:
        return False
    return True


def test_a_message_may_arrive_in_any_pieces():
    sent = [Message(1, Command.DMA_MAP, body=b"x" * 32), Message(2, Command.DEVICE_RESET, Flag.NO_REPLY),
            Message(0xFFFF, 999, Flag.REPLY | Flag.ERROR, 22, b"yy")]
    stream = b"".join(message.pack() for message in sent)
    for most in (1, 3, 16, 1000):
        framer, found, at = Framer(), [], 0
        while at < len(stream):
            count = min(most, framer.wanted)
            found.append(framer.feed(stream[at : at + count]))
            at += count
        assert [message for message in found if message] == sent


def test_descriptors_belong_to_the_message_of_their_first_byte():
    files, framer = descriptors(2), Framer()
    data = Message(1, Command.DMA_MAP, body=b"12").pack()
    assert framer.feed(data[:16], files) is None and framer.wanted == 2
    message = framer.feed(data[16:])
    assert message.files == files and framer.feed(Message(2, Command.DEVICE_RESET).pack()).files == []
    close_all(message.files)
    assert not any(map(is_open, files)) and not message.files


@pytest.mark.parametrize("size", [0, 15, wire.MESSAGE_BYTES_MAX + 1, 0xFFFF_FFFF])
def test_impossible_sizes_end_the_connection(size):
    file, = descriptors(1)
    with pytest.raises(Violation, match=f"has {size} bytes"):
        Framer().feed(header(Command.DMA_MAP, size), [file])
    assert not is_open(file)


def test_too_many_descriptors_are_closed():
    files, framer = descriptors(wire.FILES_MAX + 1), Framer()
    with pytest.raises(Violation, match="17 descriptors; 16 are possible"):
        framer.feed(b"1", list(files))
    assert not any(map(is_open, files))
    file, = descriptors(1)
    framer = Framer()
    framer.feed(b"1", [file])
    framer.close()
    assert not is_open(file)


def test_the_reply_is_a_subset_of_what_the_client_proposes():
    assert wire.negotiated(QEMU) == {"max_msg_fds": 16, "max_data_xfer_size": wire.DATA_BYTES_MAX,
                                     "max_dma_maps": 65535, "pgsizes": 4096, "write_multiple": True}
    assert wire.negotiated({}) == {"max_msg_fds": 1, "max_data_xfer_size": wire.DATA_BYTES_MAX, "max_dma_maps": 65535,
                                   "pgsizes": 4096}
    assert wire.negotiated({"max_data_xfer_size": 8, "write_multiple": "yes"})["max_data_xfer_size"] == 8
    for name in ("max_msg_fds", "max_data_xfer_size", "max_dma_maps"):
        for bad in ("1", -1, 1.5, None, True, [], {}):
            with pytest.raises(Violation, match=f"{name} is not a number"):
                wire.negotiated({name: bad})


def test_version_is_parsed_or_ends_the_connection():
    assert wire.parse_version(wire.version_body(QEMU, minor=7)) == (0, 7, QEMU)
    assert wire.parse_version(wire.version_body(None)) == (0, 0, {})
    assert wire.parse_version(b"\0\0\0\0{}") == (0, 0, {})      # without NUL
    for bad in (b"", b"\0\0\0", b"\0\0\0\0[]\0", b"\0\0\0\0{\0", b'\0\0\0\0{"capabilities": 5}\0', b"\0\0\0\0\xff\0",
                b"\0\0\0\0" + b"[" * 60_000):
        with pytest.raises(Violation):
            wire.parse_version(bad)
