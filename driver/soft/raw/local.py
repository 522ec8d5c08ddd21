"""Software loopback: requests between regions of one host, copied without packets.

Document: "Current: Software Loopback", ``rdma_process_local``.
"""

from ...terms.enums import AccessFlag, WCStatus
from .completion import Completion
from .packet import Opcode


def process_local(qp, regions):
    """Execute all requests that were posted to a loopback QP."""
    while qp.sq:
        wr = qp.sq.popleft()
        status = _copy(wr, regions)
        length = wr.length if status is WCStatus.SUCCESS else 0
        qp.cq.push(Completion(wr.wr_id, length, status, wr.opcode), reserved=True)


def _copy(wr, regions):
    here, there = regions.get(wr.local_mr_id), regions.get(wr.remote_mr_id)
    if here is None or wr.local_offset + wr.length > len(here.data):
        return WCStatus.LOC_PROT_ERR
    write = wr.opcode is Opcode.WRITE
    needed = AccessFlag.REMOTE_WRITE if write else AccessFlag.REMOTE_READ
    if there is None or wr.remote_key != there.key or not there.access & needed:
        return WCStatus.REM_ACCESS_ERR
    offset = there.offset_of(wr.remote_addr, wr.length)
    if offset is None:
        return WCStatus.REM_ACCESS_ERR
    pieces = (there, offset), (here, wr.local_offset)
    (target, to), (source, at) = pieces if write else pieces[::-1]
    target.data[to:to + wr.length] = bytes(source.data[at:at + wr.length])
    return WCStatus.SUCCESS
