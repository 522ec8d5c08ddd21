"""Responder of a reliable connection: executes requests of the peer in order and once.

Source: IBTA 1.7, chapters 9.7.4 and 9.7.5.
"""

from weft.hdl.contract import wire

from ...protocol.aeth import rnr_syndrome
from ...protocol.segment import MESSAGE_BYTES_MAX
from ...protocol.wrap import near
from ...terms.enums import AccessFlag, WCFlags, WCOpcode, WCStatus
from ...terms.wc import WC
from .message import Message, Rejection
from .opcodes import ATOMICS, ENDS, SENDS, STARTS, WITH_IMM, RcOpcode
from .replies import Replies
from .request import LocalError, gather


class Responder:
    """Executes the requests of the peer.

    Parameters
    ----------
    qp : SoftQP
        Uses its ``memory``, ``pd``, ``rcq``, ``receives``, ``counts``, ``attr`` and ``fail``.
    psn : int
        First PSN expected; internally PSNs do not wrap.

    Attributes
    ----------
    epsn, msn : int
        Next PSN expected; number of completed messages.
    replies : Replies
        Packets to send.
    """

    def __init__(self, qp, psn):
        self.qp, self.counts, self.epsn, self.msn = qp, qp.counts, psn, 0
        self.replies = Replies(qp)
        self._message = None
        self._nak_sent = False
        self._repeated = (None, psn)       # first duplicate since the PSN expected is this one

    def on_request(self, packet):
        """Process a request packet of the peer."""
        psn = near(packet.psn, self.epsn, wire.PSN_BITS)
        if psn < self.epsn:
            self._on_duplicate(packet, psn)
        elif psn > self.epsn:
            self.counts["early_packets"] += 1
            if not self._nak_sent:      # one for each gap
                self._nak_sent = True
                self.replies.acknowledge(self.epsn, wire.Syndrome.NAK_PSN_SEQUENCE, self.msn)
        else:
            try:
                self._take(packet)
            except Rejection as refusal:
                self._refuse(refusal)

    def _take(self, packet):
        """Execute the expected packet.

        Raises
        ------
        Refusal
        """
        opcode, packets = packet.opcode, 1
        if self._message is not None and not self._message.continues(packet):
            raise Rejection(wire.Syndrome.NAK_INVALID_REQUEST)
        if self._message is None and opcode not in STARTS and opcode not in ATOMICS | {RcOpcode.READ_REQUEST}:
            raise Rejection(wire.Syndrome.NAK_INVALID_REQUEST)
        if opcode is RcOpcode.READ_REQUEST:
            packets = self._read(packet)
        elif opcode in ATOMICS:
            self._atomic(packet)
        else:
            self._place(packet)
        self.epsn += packets
        self._nak_sent = False
        if opcode in ENDS:
            self.msn += 1
        if packet.ack_req and opcode is not RcOpcode.READ_REQUEST and opcode not in ATOMICS:
            self._acknowledge()

    def _acknowledge(self):
        self.replies.acknowledge(self.epsn - 1, None, self.msn)

    announce_credits = _acknowledge

    # ---------------------------------------------------------------------------- SEND and WRITE

    def _place(self, packet):
        opcode, qp = packet.opcode, self.qp
        message = self._message
        takes = opcode in SENDS and opcode in STARTS or opcode in WITH_IMM and opcode not in SENDS
        if takes and not qp.receives:
            raise Rejection(rnr_syndrome(qp.attr.min_rnr_timer))
        if message is None:
            message = Message.of(packet, qp)
        message.check_length(packet, qp.pmtu)
        if opcode in SENDS:
            receive = qp.receives[0] if message.receive is None else message.receive
            self._scatter(receive, message, packet.payload)
            if message.receive is None:
                message.receive = qp.receives.popleft()
        else:
            message.view(qp, packet)[:] = packet.payload
        message.done += len(packet.payload)
        self._message = None if opcode in ENDS else message
        if opcode in ENDS and (opcode in SENDS or opcode in WITH_IMM):
            receive = message.receive if opcode in SENDS else qp.receives.popleft()
            kind = WCOpcode.RECV if opcode in SENDS else WCOpcode.RECV_RDMA_WITH_IMM
            self._complete(receive, WCStatus.SUCCESS, kind, message.done, packet)

    def _scatter(self, receive, message, payload):
        sges = [(sge.addr, sge.length, sge.lkey) for sge in receive.sg]
        if message.done + len(payload) > sum(length for _, length, _ in sges):
            raise Rejection(wire.Syndrome.NAK_INVALID_REQUEST, receive, WCStatus.LOC_LEN_ERR)
        try:
            views = gather(sges, message.done, len(payload), self.qp.memory, self.qp.pd, AccessFlag.LOCAL_WRITE)
        except LocalError:
            raise Rejection(wire.Syndrome.NAK_REMOTE_OPERATIONAL, receive, WCStatus.LOC_PROT_ERR) from None
        at = 0
        for view in views:
            view[:] = payload[at:at + len(view)]
            at += len(view)

    def _complete(self, receive, status, opcode=WCOpcode.RECV, length=0, packet=None):
        with_imm = packet is not None and packet.opcode in WITH_IMM
        self.qp.rcq.push(WC(receive.wr_id, status, opcode, qp_num=self.qp.qp_num, byte_len=length,
                            imm_data=packet.imm if with_imm else 0,
                            wc_flags=WCFlags.WITH_IMM if with_imm else WCFlags(0)))

    # --------------------------------------------------------------------------- READ and atomics

    def _read(self, packet):
        """Queue the response to a READ, and return the number of its PSNs."""
        if packet.dma_length > MESSAGE_BYTES_MAX:
            raise Rejection(wire.Syndrome.NAK_INVALID_REQUEST)
        if packet.dma_length and self.qp.remote_view(packet, packet.dma_length, AccessFlag.REMOTE_READ) is None:
            raise Rejection(wire.Syndrome.NAK_REMOTE_ACCESS)
        self.msn += 1
        return self.replies.read(self.epsn, packet, self.msn)

    def _atomic(self, packet):
        if packet.va % 8:
            raise Rejection(wire.Syndrome.NAK_INVALID_REQUEST)
        view = self.qp.remote_view(packet, 8, AccessFlag.REMOTE_ATOMIC)
        if view is None:
            raise Rejection(wire.Syndrome.NAK_REMOTE_ACCESS)
        self.replies.check_space()
        original = int.from_bytes(view, "little")
        if packet.opcode is RcOpcode.FETCH_ADD:
            view[:] = ((original + packet.swap_add) % (1 << 64)).to_bytes(8, "little")
        elif original == packet.compare:
            view[:] = packet.swap_add.to_bytes(8, "little")
        self.msn += 1
        self.replies.atomic(self.epsn, packet, original, self.msn)

    # ----------------------------------------------------------------- duplicates and rejections

    def _on_duplicate(self, packet, psn):
        """Answer a repeated packet again without executing it; a READ reads the current contents of memory."""
        self.counts["duplicates"] += 1
        if self._repeated == (psn, self.epsn):       # the peer went back twice: it gets no answers
            self.qp.change_path()
        elif self._repeated[1] != self.epsn:
            self._repeated = (psn, self.epsn)
        if packet.opcode is RcOpcode.READ_REQUEST or packet.opcode in ATOMICS:
            if not self.replies.again(psn, packet):
                self.counts["unknown_duplicates"] += 1
        else:
            self._acknowledge()

    def _refuse(self, refusal):
        self.replies.acknowledge(self.epsn, refusal.syndrome, self.msn)
        if refusal.ready_later:
            self._nak_sent = True       # later packets are dropped until this packet is repeated
            self.counts["rnr_naks_sent"] += 1
            return
        self.counts[f"refused_{wire.Syndrome(refusal.syndrome).name.lower()}"] += 1
        message = self._message
        receive = refusal.receive or (message.receive if message else None)
        if receive is not None:
            if self.qp.receives and self.qp.receives[0] is receive:
                self.qp.receives.popleft()
            self._complete(receive, refusal.status)
        self._message = None
        self.qp.fail()

    def flush(self):
        """Complete the receive of an unfinished message with WR_FLUSH_ERR."""
        if self._message is not None and self._message.receive is not None:
            self._complete(self._message.receive, WCStatus.WR_FLUSH_ERR)
        self._message = None
