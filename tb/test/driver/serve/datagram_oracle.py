"""Random programs with datagrams, as in :mod:`oracle`: ``python -m weft.tb.test.driver.serve.datagram_oracle [COUNT]
[SEED]``.

A UD QP of one host sends to that of the other host, to itself, to multicast groups and to absent ones. After the sends
of a round, a datagram between two further QPs follows those before it: all of them have arrived then, or are lost.
"""

import sys
from dataclasses import dataclass, field

from weft.driver.datagram.packet import GRH_BYTES, MULTICAST_QPN
from weft.driver.ibverbs.messages import Opcode
from weft.driver.ibverbs.rings import RECV_SLOT, SEND_SLOT, SGE_SLOT, WC_SLOT
from weft.driver.terms.enums import QPAttrMask as Mask
from weft.driver.terms.enums import QPState, QPType, SendFlags, WROpcode
from weft.tb.test.driver.serve import oracle
from weft.tb.test.driver.serve.oracle import BYTES, DEPTH, INLINE, RECEIVE, RECEIVED, ROUNDS, SENDS, SOURCES, Sge, until
from weft.tb.verify.programs.raw_client import PAGE, VA, Ring

COMMAND = ".venv/bin/python -m weft.tb.test.driver.serve.datagram_oracle {count} {seed}"
QKEYS = (0x1111_1111, 0x2222_2222, 0x8000_0001)
GROUPS = (0xEF01_0101, 0xE101_0102)
NOBODY = 0x0A63_6363                  # 10.99.99.99
LENGTHS = (0, 1, 7, 8, 64, 100, 1000, 1024)
LONG = (PAGE, PAGE + 1)
TO_PEER, TO_SELF, TO_GROUP, TO_OTHER_GROUP, TO_NO_QP, TO_NO_MEMBER, TO_NOBODY = range(7)
MARKER_QKEY, MARKER_WR = 5, 77


@dataclass
class Datagram:
    """Send request; ``to`` is one of the constants above."""

    wr_id: int
    opcode: WROpcode
    flags: int
    sges: list
    to: int
    qkey: int
    imm: int = 0
    inline: bytes = b""


@dataclass
class Round:
    """Requests that end ``by`` posts to its send queue, and the receive requests of both ends."""

    by: int
    sends: list
    receives: list
    drains: bool                      # the end is in SQD when the requests are posted
    peer_state: QPState               # of the other end: RTS, or it does not receive


@dataclass
class Program:
    """Two UD QPs, which use SRQs or not; their Q_Keys and groups, and the rounds."""

    shared: bool
    qkeys: list
    groups: list
    rounds: list = field(default_factory=list)

    def play(self, daemon, rng):
        """Execute the program; return the outcome of its rounds."""
        ends = [End(daemon, host, self.shared) for host in "ab"]
        for n, end in enumerate(ends):
            end.mapping[:] = rng.randbytes(BYTES)
            end.names = {other.qp.qp_num: name for other, name in zip(ends, "ab", strict=True)}
            end.begin(self.qkeys[n], self.groups[n])
        outcome = [play_round(daemon, ends, part, self) for part in self.rounds]
        for end in ends:
            end.close()
        return outcome


# ------------------------------------------------------------------------------------------------------ generation

def some_send(rng, wr_id, program):
    flags = int(SendFlags.SIGNALED * (rng.random() < 0.5) + SendFlags.SOLICITED * (rng.random() < 0.3))
    to = rng.choices((TO_PEER, TO_SELF, TO_GROUP, TO_OTHER_GROUP, TO_NO_QP, TO_NO_MEMBER, TO_NOBODY),
                     (60, 10, 15, 6, 3, 3, 1))[0]
    length = rng.choice(LENGTHS) if rng.random() < 0.97 else rng.choice(LONG)
    send = Datagram(wr_id, rng.choice(SENDS), flags, oracle.some_sges(rng, length, SOURCES, writable=False), to,
                    rng.choices((*program.qkeys, rng.choice(QKEYS), 1 << 31), (4, 4, 1, 1))[0], rng.getrandbits(32))
    if length <= INLINE and rng.random() < 0.5:
        send.flags |= SendFlags.INLINE
        send.sges, send.inline = [], rng.randbytes(length)
    elif oracle.chance(rng):
        send.sges = [Sge(SOURCES, (1 << 32) - 1)] * rng.randint(1, 3)
    return send


def some_round(rng, program, first):
    by, count = rng.randrange(2), rng.randint(1, DEPTH)
    sends = [some_send(rng, first + n, program) for n in range(count)]
    sends[-1].flags |= SendFlags.SIGNALED
    receives = []
    for _ in range(2):
        sizes = (rng.choice((PAGE + GRH_BYTES, 1024 + GRH_BYTES)) if rng.random() < 0.97
                 else rng.choice((0, GRH_BYTES - 1, GRH_BYTES, 100)) for _ in range(rng.randrange(count + 3)))
        receives.append([oracle.some_sges(rng, size, RECEIVED, writable=True) for size in sizes])
    states = (QPState.RTS, QPState.SQD, QPState.RTR, QPState.INIT, QPState.RESET, QPState.ERR)
    return Round(by, sends, receives, rng.random() < 0.1, rng.choices(states, (20, 1, 1, 1, 1, 1))[0])


def some_program(rng):
    """Return a random program."""
    qkeys = [rng.choice(QKEYS)] * 2 if rng.random() < 0.7 else rng.sample(QKEYS, 2)
    groups = [[group for group in GROUPS if rng.random() < 0.6] for _ in range(2)]
    program, first = Program(rng.random() < 0.3, qkeys, groups), 1
    for _ in range(ROUNDS):
        program.rounds.append(some_round(rng, program, first))
        first += len(program.rounds[-1].sends)
    return program


# ------------------------------------------------------------------------------------------------------- execution

def gid_of(group):
    """Return the GID of a multicast group."""
    return int.from_bytes(bytes(10) + b"\xff\xff" + group.to_bytes(4, "big"), "little")


class End(oracle.End):
    """Program on one host with a UD QP and with one for markers."""

    qp_type = QPType.UD

    def __init__(self, daemon, host, shared):
        super().__init__(daemon, host, shared)
        self.number = 0               # of the last receive request
        self.marker_mapping, self.marker_keys = self.memory(1, self.pd)
        made, (file,) = self.call(Opcode.CREATE_CQ, user=4, cqe=DEPTH)
        self.markers = Ring(file, made.slots, WC_SLOT.size_bytes)
        self.marker, files = self.call(
            Opcode.CREATE_QP, user=5, pd=self.pd, send_cq=made.handle, recv_cq=made.handle, qp_type=QPType.UD,
            sq_sig_all=0, max_send_wr=DEPTH, max_send_sge=1, max_recv_wr=DEPTH, max_recv_sge=1, max_inline_data=INLINE)
        self.marker_sends = Ring(files[0], self.marker.send_slots, self.marker.send_slot_bytes)
        self.marker_receives = Ring(files[1], self.marker.recv_slots, self.marker.recv_slot_bytes)
        self._connect(self.marker.handle, MARKER_QKEY)

    def _connect(self, handle, qkey, goal=QPState.RTS):
        steps = ((QPState.INIT, Mask.PKEY_INDEX | Mask.PORT | Mask.QKEY, {"port_num": 1, "qkey": qkey}),
                 (QPState.RTR, Mask(0), {}), (QPState.RTS, Mask.SQ_PSN, {}))
        for state, mask, fields in steps:
            if state <= goal:
                self.call(Opcode.MODIFY_QP, handle=handle, mask=Mask.STATE | mask, qp_state=state, **fields)

    def begin(self, qkey, groups, goal=QPState.RTS):
        """Go from RESET to a state until RTS, and join the groups."""
        self._connect(self.qp.handle, qkey, goal)
        self.known = goal
        for group in groups:
            self.call(Opcode.ATTACH_MCAST, handle=self.qp.handle, gid=gid_of(group))

    @property
    def ip(self):
        return int.from_bytes(self.welcome.gid.to_bytes(16, "little")[12:], "big")

    def reset(self, *, shared):
        self.modify(QPState.RESET)
        if not shared:
            self.posted = 0

    def post_sends(self, sends, peer):
        for one in sends:
            ip, qpn = {
                TO_PEER: (peer.ip, peer.qp.qp_num), TO_SELF: (self.ip, self.qp.qp_num),
                TO_GROUP: (GROUPS[0], MULTICAST_QPN), TO_OTHER_GROUP: (GROUPS[1], MULTICAST_QPN),
                TO_NO_QP: (peer.ip, MULTICAST_QPN), TO_NO_MEMBER: (GROUPS[0], peer.qp.qp_num),
                TO_NOBODY: (NOBODY, peer.qp.qp_num)}[one.to]
            head = SEND_SLOT.pack(
                wr_id=one.wr_id, opcode=one.opcode, flags=one.flags, num_sge=len(one.sges), imm_data=one.imm,
                remote_addr=ip, compare_add=qpn, rkey=one.qkey, inline_length=len(one.inline))
            self.sends.fill(head + (one.inline or self._packed(one.sges)))
        self.ring_bell()

    def post_as_many(self, receives):
        """Post receive requests while there is space."""
        space, first = DEPTH - self.posted, RECEIVE + self.number
        self.post_receives([(first + n, sges) for n, sges in enumerate(receives[:space])])
        self.number += min(space, len(receives))

    def look(self):
        for wc in self.completions.take():
            self.found.append((wc.wr_id, wc.status, wc.opcode, wc.byte_len, wc.imm_data, wc.wc_flags, wc.vendor_err,
                               wc.sl, self.names.get(wc.src_qp, wc.src_qp)))
            self.posted -= wc.wr_id >= RECEIVE

    def arm(self):
        """Ask for an event with the next solicited completion or error."""
        self.completions.word("armed", (self.completions.word("armed") | 1) + 2)

    @property
    def notified(self):
        """True if there was an event since :meth:`arm`."""
        return self.completions.word("done") == self.completions.word("armed")

    def expect_marker(self):
        """Post the receive request of a marker."""
        self.marker_receives.fill(RECV_SLOT.pack(wr_id=MARKER_WR, num_sge=1)
                                  + SGE_SLOT.pack(addr=VA, length=PAGE, lkey=self.marker_keys.lkey))
        self.ring_bell()

    def send_marker(self, peer):
        self.marker_sends.fill(SEND_SLOT.pack(
            wr_id=0, opcode=WROpcode.SEND, flags=SendFlags.INLINE, remote_addr=peer.ip,
            compare_add=peer.marker.qp_num, rkey=MARKER_QKEY))
        self.ring_bell()


def prepare(end, goal, n, program):
    """Bring an end to a state, in which it may have been."""
    state = end.known
    if state == goal:
        return
    if goal == QPState.RTS and state in (QPState.SQE, QPState.SQD) or goal == QPState.ERR and state != QPState.RESET:
        end.modify(goal)
    else:
        end.reset(shared=program.shared)
        if goal != QPState.RESET:
            end.begin(program.qkeys[n], program.groups[n], min(goal, QPState.RTS))
        if goal in (QPState.SQD, QPState.ERR):
            end.modify(goal)


def play_round(daemon, ends, part, program):
    """Execute a round; return what the programs see of it."""
    sender, receiver = ends[part.by], ends[1 - part.by]
    prepare(sender, QPState.RTS, part.by, program)
    prepare(receiver, part.peer_state, 1 - part.by, program)
    for end, receives in zip(ends, part.receives, strict=True):
        end.arm()      # before the receive requests: those of a QP in ERR may be flushed at once
        if program.shared or end.known != QPState.RESET:
            end.post_as_many(receives)
    daemon.turn()
    if part.drains:
        sender.modify(QPState.SQD)
    sender.post_sends(part.sends, receiver)
    if part.drains:
        sender.modify(QPState.RTS)
    last = part.sends[-1].wr_id
    until(daemon, ends, lambda: any(found[0] == last for found in sender.found))
    receiver.expect_marker()
    daemon.turn()
    sender.send_marker(receiver)
    until(daemon, ends, lambda: any(wc.wr_id == MARKER_WR for wc in receiver.markers.take()))
    states, found = [end.query() for end in ends], []
    for end, state in zip(ends, states, strict=True):
        if state == QPState.ERR and not program.shared:
            until(daemon, ends, lambda end=end: not end.posted)
        end.look()
        # Requests of a QP that fails are flushed, or complete if the card has sent their packets: that depends on time.
        sends = [wc for wc in end.found if wc[0] < RECEIVE and state != QPState.ERR]
        found.append((sends, [wc for wc in end.found if wc[0] >= RECEIVE],
                      [*sorted(end.news()), end.notified],
                      [bytes(mapping) for mapping in (end.mapping, end.other_mapping, end.quiet_mapping)]))
        end.found = []
    return found, states


def main(*arguments):
    """Compare random requests: see :func:`oracle.main`."""
    oracle.main(*arguments, some=some_program, command=COMMAND)


if __name__ == "__main__":
    main(*sys.argv[1:])
