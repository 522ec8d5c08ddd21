"""Whether somebody listens: at a TCP port of this machine, or at a port of a card."""

import contextlib
import os
import socket
from pathlib import Path

from weft.driver.cm.enums import PortSpace
from weft.driver.ibverbs.messages import ANSWER, FILES_MAX, MESSAGE_BYTES_MAX, MESSAGES, REQUEST, VERSION, Opcode
from weft.driver.serve.ports import LISTENS
from weft.driver.terms.enums import QPType

LISTENING, NOBODY = "0A", 0xFFFF_FFFF


def at_tcp(port):
    """Somebody on this machine waits for connections to a TCP port."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(table).read_text().splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                if state == LISTENING and int(local.rpartition(":")[2], 16) == port:
                    return True
    return False


def at_card(host, port):
    """Somebody waits for connections to a port of the card whose host's socket is at the path ``host``: who wants the
    port hears that, and who wants it of an address that is nobody's hears nothing else, and gets nothing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asker:
        asker.connect(str(host))
        channel = _ask(asker, Opcode.CREATE_CM_CHANNEL)
        one = _ask(asker, Opcode.CREATE_ID, channel=channel.handle, user=1, port_space=PortSpace.TCP,
                   qp_type=QPType.RC)
        return LISTENS in _ask(asker, Opcode.BIND_ADDR, handle=one.handle, ip=NOBODY, port=port)


def _ask(asker, opcode, **fields):
    """The answer; of one with an error, its sentence; None if there is nothing in it."""
    asked, answered = MESSAGES[opcode]
    asker.send(REQUEST.pack(version=VERSION, opcode=opcode) + asked.pack(**fields))
    data, files, *_ = socket.recv_fds(asker, MESSAGE_BYTES_MAX, FILES_MAX)
    for file in files:
        os.close(file)
    body = data[ANSWER.size_bytes:]
    if ANSWER.unpack(data).status:
        return body.decode()
    return answered.unpack(body) if body else None
