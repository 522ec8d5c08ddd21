"""Checks for listeners: at a TCP port of this machine, or at a port of a card."""

import contextlib
import os
import socket
from pathlib import Path
from typing import Any

from weft.driver.cm.enums import PortSpace
from weft.driver.ibverbs.messages import ANSWER, FILES_MAX, MESSAGE_BYTES_MAX, MESSAGES, REQUEST, VERSION, Opcode
from weft.driver.serve.ports import LISTENS
from weft.driver.terms.enums import QPType

LISTENING, ANY_ADDRESS = "0A", 0xFFFF_FFFF


def at_tcp(port: int, process: str = "self") -> bool:
    """Return whether a program in the network of a process, given by its ID, listens at a TCP port."""
    for table in (f"/proc/{process}/net/tcp", f"/proc/{process}/net/tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(table).read_text().splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                if state == LISTENING and int(local.rpartition(":")[2], 16) == port:
                    return True
    return False


def at_card(host: str | Path, port: int, space: PortSpace = PortSpace.TCP) -> bool:
    """Return whether a program listens at a port of the card of the host with the socket ``host``.

    The check binds the port with an address that no host has. The request always fails, so it takes no port, but its
    error names a listener.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as requester:
        requester.connect(str(host))
        channel = _ask(requester, Opcode.CREATE_CM_CHANNEL)
        one = _ask(requester, Opcode.CREATE_ID, channel=channel.handle, user=1, port_space=space,
                   qp_type=QPType.UD if space is PortSpace.UDP else QPType.RC)
        return LISTENS in _ask(requester, Opcode.BIND_ADDR, handle=one.handle, ip=ANY_ADDRESS, port=port)


def _ask(requester: socket.socket, opcode: Opcode, **fields: int) -> Any:
    """Return the response: its sentence if it is an error, None if it is empty."""
    asked, answered = MESSAGES[opcode]
    requester.send(REQUEST.pack(version=VERSION, opcode=opcode) + asked.pack(**fields))
    data, files, *_ = socket.recv_fds(requester, MESSAGE_BYTES_MAX, FILES_MAX)
    for file in files:
        os.close(file)
    body = data[ANSWER.size_bytes:]
    if ANSWER.unpack(data).status:
        return body.decode()
    return answered.unpack(body) if body else None
