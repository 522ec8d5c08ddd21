"""Copy a file from one host's memory into another's by RDMA WRITE, over a link that loses one frame in fifty.

    python examples/file_copy.py [FILE] [--rtl]

Two programs run here, one on each host, as on two machines. With ``send`` and ``receive`` they exchange the data that
two processes exchange over TCP before a connection exists: QP numbers and memory addresses. The cards are functional;
with ``--rtl`` they are the gateware in a simulator, under the same programs.
"""

import argparse
import hashlib
from pathlib import Path

from weft.driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlag,
    QPConnection,
    RecvWR,
    SendFlags,
    SendWR,
    WCStatus,
    WROpcode,
    rc_init_attr,
)
from weft.tb.app.stage.stage import Stage, play

CHUNK = 64 * 1024      # bytes of a request
OUTSTANDING = 16         # requests


def server(host, path):
    """Offer memory, wait until the file is in it, and return its digest."""
    (size,) = host.receive()
    with PD(host.context) as pd, CQ(host.context, 1) as cq:
        mr = MR(pd, size, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE)
        qp = QP(pd, rc_init_attr(cq, max_recv_wr=1))
        host.send(vars(qp.connection), mr.buf, mr.rkey)
        (peer,) = host.receive()
        qp.connect(QPConnection(**peer))
        qp.post_recv(RecvWR())         # the last write has an immediate, and that takes a receive
        host.send("ready")
        [wc] = cq.wait()               # everything before it is placed as well
        assert wc.status is WCStatus.SUCCESS and wc.imm_data == size % (1 << 32)
        host.receive()                    # until then the client may lack its last acknowledgement
        return hashlib.sha256(mr.read(size, 0)).hexdigest()


def client(host, path):
    """Write the file, 16 pieces at a time, and return its digest."""
    data = Path(path).read_bytes()
    host.send(len(data))
    peer, address, rkey = host.receive()
    with PD(host.context) as pd, CQ(host.context, OUTSTANDING) as cq:
        mr = MR(pd, len(data), AccessFlag.LOCAL_WRITE)
        mr.write(data)
        qp = QP(pd, rc_init_attr(cq, max_send_wr=OUTSTANDING))
        host.send(vars(qp.connection))
        qp.connect(QPConnection(**peer))
        host.receive()
        outstanding = 0
        for at in range(0, len(data), CHUNK):
            length = min(CHUNK, len(data) - at)
            last = at + length == len(data)
            wr = SendWR(at, WROpcode.RDMA_WRITE_WITH_IMM if last else WROpcode.RDMA_WRITE,
                        sg=[SGE(mr.buf + at, length, mr.lkey)], send_flags=SendFlags.SIGNALED,
                        imm_data=len(data) % (1 << 32))
            wr.set_wr_rdma(rkey, address + at)
            qp.post_send(wr)
            outstanding += 1
            while outstanding == OUTSTANDING or last and outstanding:
                for wc in cq.wait(OUTSTANDING):
                    assert wc.status is WCStatus.SUCCESS, wc
                    outstanding -= 1
        host.send("done")
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
