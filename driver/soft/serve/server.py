"""Host in software that serves clients of perftest."""

import select
import socket
import time

from ...protocol import arp
from ...terms.enums import MTU, AccessFlag, QPState
from ...verbs.cq import CQ
from ...verbs.pd import PD
from ...verbs.qp_init_attr import rc_init_attr
from ...verbs.wr import SGE, RecvWR
from ..ports import Pump
from ..rc.context import SoftContext
from ..rc.mr import SoftMR
from ..rc.qp import RcAttr, SoftConnection, SoftQP
from .perftest import Handshake, Keys

MEMORY_BYTES, RECEIVES, READS = 1 << 24, 512, 4
TIMEOUT = 17        # unit of the verbs: half a second
MOMENT_S = 0.1
ALL = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ | AccessFlag.REMOTE_ATOMIC


class _Watched:
    """Wrapper of a port that learns the MAC address of the host ``wanted`` from received ARP frames."""

    def __init__(self, port, mac):
        self._port, self._mac = port, mac
        self.wanted = self.found = None

    def want(self, ip):
        """Select the host whose address to learn."""
        self.wanted, self.found = ip, None

    def receive(self):
        frames = self._port.receive()
        for frame in filter(arp.is_arp, frames):
            packet = arp.parse(frame, self._mac)
            if packet is not None and packet.spa == self.wanted:
                self.found = packet.sha
        return frames

    @property
    def space(self):
        return self._port.space

    def send(self, frame):
        self._port.send(frame)

    def fileno(self):
        return self._port.fileno()


class SoftServer:
    """Server of perftest's clients, one after the other: WRITE, READ, SEND and atomics.

    Parameters
    ----------
    port : object
        Has ``receive``, ``space``, ``send`` and ``fileno``.
    mac, ip : int
        Addresses of the host.
    tcp_port : int
        Port of the handshake; 0: any free port.

    Attributes
    ----------
    tcp_port : int
    served : int
        Number of clients that have ended.
    """

    def __init__(self, port, *, mac, ip, tcp_port=18515):
        self._watched = _Watched(port, mac)
        self.soft = SoftContext(mac=mac, ip=ip)
        self._pump = Pump(self.soft, self._watched)
        self._listener = socket.create_server(("", tcp_port))
        self.tcp_port, self.served = self._listener.getsockname()[1], 0
        self._client = self._handshake = self._qp = self._wanted = None
        self._asked = 0.0
        self._cq, self._mr = CQ(self.soft, 8192), SoftMR(PD(self.soft), MEMORY_BYTES, ALL)

    def step(self):
        """Do all work that is due, then wait for more, at most ``MOMENT_S``."""
        now = time.monotonic_ns()
        deadline = self._pump.round(now)
        self._find_peer()
        self._cq.poll(RECEIVES)
        self._post_receives()
        wait = MOMENT_S if deadline is None else max(0, min(MOMENT_S, (deadline - now) / 1e9))
        ready, _, _ = select.select([self._watched, self._client or self._listener], [], [], wait)
        if self._listener in ready:
            self._client, _ = self._listener.accept()
            self._client.setblocking(False)     # a client that does not read the answers is dropped
            self._handshake = Handshake(self._connect)
        elif self._client in ready:
            self._receive()

    def _receive(self):
        try:
            data = self._client.recv(4096)
            answer = self._handshake.feed(data) if data else None
            if answer:
                self._client.sendall(answer)
        except (OSError, ValueError):
            data = b""
        if not data:
            self._leave()

    def _leave(self):
        self._client.close()
        self._client = self._handshake = self._wanted = None
        if self._qp is not None:
            self._qp.close()
            self._qp = None
            self.served += 1

    def _post_receives(self):
        qp = self._qp
        while qp is not None and qp.qp_state is not QPState.ERR and len(qp.receives) < RECEIVES:
            qp.post_recv(RecvWR(0, sg=[SGE(self._mr.buf, MEMORY_BYTES // 2, self._mr.lkey)]))

    def _connect(self, peer, pmtu):
        self._qp = SoftQP(self._mr.pd, rc_init_attr(self._cq, max_recv_wr=RECEIVES))
        self._post_receives()
        self._wanted = peer, MTU(min(max(pmtu, MTU.MTU_256), MTU.MTU_4096))
        self._watched.want(peer.ip)
        self._find_peer()
        return Keys(READS, self._qp.qp_num, self._qp.psn, self._mr.rkey, self._mr.buf, self.soft.ip)

    def _find_peer(self):
        """Connect the QP once the source of the client's frames is known."""
        if self._wanted is None:
            return
        if self._watched.found is None:
            if (now := time.monotonic()) >= self._asked + MOMENT_S and self._watched.space:
                self._asked = now
                self._watched.send(arp.question(self.soft.mac, self.soft.ip, self._watched.wanted))
            return
        (peer, mtu), self._wanted = self._wanted, None
        there = SoftConnection(peer.qpn, peer.psn, self._watched.found, peer.ip)
        self._qp.connect(there, RcAttr(path_mtu=mtu, timeout=TIMEOUT, max_rd_atomic=READS,
                                       max_dest_rd_atomic=max(READS, peer.out_reads)))

    def close(self):
        """Stop serving."""
        if self._client is not None:
            self._leave()
        self._listener.close()
