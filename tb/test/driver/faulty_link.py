"""Two hosts over a link on which a test changes or loses frames."""

from weft.driver.terms.enums import MTU, WCStatus, WROpcode
from weft.hdl.contract import wire
from weft.tb.sim.pair.operation_pair import OperationPair


class Scenario(OperationPair):
    """Two hosts with small packets; ``requester`` is the requester, the other one the responder.

    Parameters
    ----------
    met : bool
        The mailboxes of both ends are known before the scenario, so that operations send no further frames.
    """

    def __init__(self, requester=0, met=True, **attributes):
        super().__init__(path_mtu=MTU.MTU_256, **attributes)
        self.requester = requester
        self.me, self.peer = self.hosts[requester], self.hosts[1 - requester]
        if met:
            self.ask(WROpcode.RDMA_READ, 8, at=4096, local=4096)
            assert self.outcome() is WCStatus.SUCCESS
            self.settle(50_000)

    def ask(self, opcode, length, *, at=0, local=0, **more):
        self.send(opcode, (local, length), end=self.requester, at=at, **more)

    def outcome(self):
        """Return the status of the requester's next completion."""
        return self.statuses(self.requester, 1)[0]

    def on_the_way(self, end, change):
        """Replace each frame that host ``end`` sends by ``change(frame)``, which is None to lose it."""
        link = self.pair.links[end]
        deliver = link.deliver

        def spoilt(frame):
            changed = change(frame)
            if changed is not None:
                deliver(changed)

        link.deliver = spoilt

    def repeated(self):
        """Return the numbers of packets that the requester and its peer sent again."""
        return [host.qp.sender.counts["retransmissions"] for host in (self.me, self.peer)]


def opcode_of(frame):
    return frame[wire.BTH_OFFSET] if frame[12:14] == b"\x08\x00" else None


def again_valid(frame):
    """Return the frame with a valid ICRC."""
    body = bytes(frame[:-wire.ICRC_BYTES])
    return body + wire.icrc(body)


def lose(number):
    """Return a change that loses the data packet with this number, counted from 0."""
    seen = [0]

    def change(frame):
        if opcode_of(frame) in wire.DATA_OPCODES:
            seen[0] += 1
            if seen[0] == number + 1:
                return None
        return frame
    return change


def ghosts(count):
    """Return a change that adds 1000 to the PSN of the first ``count`` acknowledgements."""
    left = [count]

    def change(frame):
        if opcode_of(frame) != wire.Opcode.ACKNOWLEDGE or not left[0]:
            return frame
        left[0] -= 1
        at = wire.BTH_OFFSET + 9
        psn = int.from_bytes(frame[at:at + 3], "big") + 1000
        return again_valid(frame[:at] + (psn % (1 << 24)).to_bytes(3, "big") + frame[at + 3:])
    return change
