"""Copy a file from one host's memory into another's by RDMA WRITE, over a link that loses one frame in fifty.

    python examples/file_copy.py [FILE] [--rtl]

Two programs run here, one on each host, as they would on two machines. What they say to each other with ``tell`` and
``hear`` is what two processes say over TCP before there is a connection: the numbers of the QPs, and where the memory
is. The cards are functional ones; with ``--rtl`` they are the gateware in a simulator, and the programs are the same.
"""

import argparse
import hashlib
from pathlib import Path

from weft.driver.terms.enums import AccessFlag, SendFlags, WCStatus, WROpcode
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, QPConnection, rc_init_attr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.tb.app.stage.stage import Stage, play

CHUNK = 64 * 1024      # bytes of a request
UNDER_WAY = 16         # requests


def server(host, path):
    """Offers memory and waits until the file is in it; its digest."""
    (size,) = host.hear()
    with PD(host.context) as pd, CQ(host.context, 1) as cq:
        mr = MR(pd, size, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE)
        qp = QP(pd, rc_init_attr(cq, max_recv_wr=1))
        host.tell(vars(qp.connection), mr.buf, mr.rkey)
        (peer,) = host.hear()
        qp.connect(QPConnection(**peer))
        qp.post_recv(RecvWR())         # the last write has an immediate, and that takes a receive
        host.tell("ready")
        [wc] = cq.wait()               # everything before it is in place as well
        assert wc.status is WCStatus.SUCCESS and wc.imm_data == size % (1 << 32)
        digest = hashlib.sha256(mr.read(size, 0)).hexdigest()
        host.hear()                    # who leaves earlier may leave the client without its last acknowledgement
        return digest


def client(host, path):
    """Writes the file, 16 pieces at a time; its digest."""
    data = Path(path).read_bytes()
    host.tell(len(data))
    peer, address, rkey = host.hear()
    with PD(host.context) as pd, CQ(host.context, UNDER_WAY) as cq:
        mr = MR(pd, len(data), AccessFlag.LOCAL_WRITE)
        mr.write(data)
        qp = QP(pd, rc_init_attr(cq, max_send_wr=UNDER_WAY))
        host.tell(vars(qp.connection))
        qp.connect(QPConnection(**peer))
        host.hear()
        under_way = 0
        for at in range(0, len(data), CHUNK):
            length = min(CHUNK, len(data) - at)
            last = at + length == len(data)
            wr = SendWR(at, WROpcode.RDMA_WRITE_WITH_IMM if last else WROpcode.RDMA_WRITE,
                        sg=[SGE(mr.buf + at, length, mr.lkey)], send_flags=SendFlags.SIGNALED,
                        imm_data=len(data) % (1 << 32))
            wr.set_wr_rdma(rkey, address + at)
            qp.post_send(wr)
            under_way += 1
            while under_way == UNDER_WAY or last and under_way:
                for wc in cq.wait(UNDER_WAY):
                    assert wc.status is WCStatus.SUCCESS, wc
                    under_way -= 1
        host.tell("done")
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", default=__file__, help="default: this program")
    parser.add_argument("--rtl", action="store_true", help="on the RTL of two cards; a minute more")
    parser.add_argument("--seed", type=int, default=1, help="which frames get lost")
    arguments = parser.parse_args()
    file = Path(arguments.file).resolve()
    if not file.is_file() or not file.stat().st_size:
        parser.error(f"{file} is not a file with something in it")
    sent, received = play((client, server), backend="rtl" if arguments.rtl else "functional",
                          stage=Stage(loss=0.02, rtt_us=10, seed=arguments.seed), path=str(file))
    print(f"{file.stat().st_size} bytes, sha256 {received}")
    print("the digests agree" if sent == received else f"THEY DIFFER: sent {sent}")
    raise SystemExit(sent != received)
