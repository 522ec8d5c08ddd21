"""Inquiries to hosts without a connection (document: "Discovering Remote MAC Address", "Ping between hosts")."""

import errno
import math
from dataclasses import dataclass, replace

from .packet import BROADCAST, SEQ_BITS, Opcode, Packet

DISCOVER_TRIES = 4
_ANSWER = {Opcode.DISCOVER_REPLY: Opcode.DISCOVER, Opcode.PONG: Opcode.PING}


@dataclass(eq=False)
class Inquiry:
    """Inquiry: its packet, time of the last transmission, remaining tries, and the answer or the error."""

    packet: Packet
    sent: int
    tries: int
    result: int | None = None


class Inquiries:
    """Inquiries of a host.

    Parameters
    ----------
    transmit : TransmitQueue
    counts : Counter
    timeout_ns : int
        Response time-out.
    first : int
        Number of the first inquiry.
    size : int
        Limit of inquiries whose result was not fetched.
    """

    def __init__(self, transmit, counts, timeout_ns, first, size=16):
        self.transmit, self.counts, self.timeout_ns, self.size = transmit, counts, timeout_ns, size
        self._next, self._asked = first, {}

    def discover(self, qp_num, now):
        """Broadcast a request for the owner of a QP; return the number of the inquiry, or -EBUSY."""
        return self._ask(Packet(Opcode.DISCOVER, BROADCAST, dst_qp=qp_num), DISCOVER_TRIES, now)

    def ping(self, mac, payload, now):
        """Send a PING to a host; return the number of the inquiry, or -EBUSY."""
        return self._ask(Packet(Opcode.PING, mac, length=len(payload), payload=payload), 1, now)

    def _ask(self, packet, tries, now):
        if len(self._asked) >= self.size:
            return -errno.EBUSY
        packet.seq = self._next
        self._next = (self._next + 1) % (1 << SEQ_BITS)
        self._asked[packet.seq] = inquiry = Inquiry(packet, now, tries)
        self._send(inquiry, now)
        return packet.seq

    def _send(self, inquiry, now):
        inquiry.sent, inquiry.tries = now, inquiry.tries - 1
        self.transmit.send(replace(inquiry.packet))

    def on_answer(self, packet, now):
        """Process a DISCOVER_REPLY or a PONG. An answer to no inquiry is counted and dropped."""
        inquiry = self._asked.get(packet.seq)
        if inquiry is None or inquiry.result is not None or not _fits(inquiry.packet, packet):
            self.counts["unasked_replies"] += 1
            return
        discovery = packet.opcode is Opcode.DISCOVER_REPLY
        inquiry.result = packet.src_mac if discovery else now - inquiry.sent

    def result(self, number):
        """Return the result of an inquiry and forget it.

        The result is the MAC address, or the round trip in ns; -EINPROGRESS while there is none, -ETIMEDOUT if none
        came, -EINVAL if there is no inquiry of this number.
        """
        inquiry = self._asked.get(number)
        if inquiry is None:
            return -errno.EINVAL
        if inquiry.result is None:
            return -errno.EINPROGRESS
        del self._asked[number]
        return inquiry.result

    def check_timeouts(self, now):
        """Repeat or fail the inquiries whose time-out has expired."""
        for inquiry in self._asked.values():
            if inquiry.result is None and now - inquiry.sent >= self.timeout_ns:
                if inquiry.tries:
                    self._send(inquiry, now)
                else:
                    inquiry.result = -errno.ETIMEDOUT

    @property
    def deadline(self):
        """Time of the next time-out; inf if there is none."""
        return min((i.sent + self.timeout_ns for i in self._asked.values() if i.result is None), default=math.inf)


def _fits(asked, answer):
    if _ANSWER[answer.opcode] is not asked.opcode:
        return False
    if asked.opcode is Opcode.DISCOVER:
        return answer.src_qp == asked.dst_qp
    return answer.src_mac == asked.dst_mac and answer.payload == asked.payload
