"""One packet of a write is lost: print each frame, the Adamap node in the loss report, and the retransmission."""

from two_hosts import TwoHosts

from weft.driver.knitting.node import decode_body
from weft.hdl.contract import abi, wire

PACKETS, LOST = 6, [2]
hosts = TwoHosts(PACKETS * 1024)
a, b = hosts.a, hosts.b
first_psn = a.qp.connection.psn


def show(sender, frame):
    """Print a frame. Return whether the link loses it: the packets of ``LOST``, the first time they are sent."""
    frame = bytes(frame)
    if wire.ETH.unpack(frame[:wire.ETH.size_bytes]).ethertype != wire.ETHERTYPE_IPV4:     # ARP
        return False
    bth = wire.BTH.unpack(frame[wire.BTH_OFFSET:wire.RETH_OFFSET])
    extension = frame[wire.RETH_OFFSET:]
    packet, lost, more = (bth.psn - first_psn) % (1 << wire.PSN_BITS), False, ""
    if bth.opcode == wire.Opcode.WRITE_ONLY:
        lost = packet in LOST
        more = f"packet {packet}, {wire.RETH.unpack(extension[:16]).dma_length} bytes{', LOST' * lost}"
    elif bth.opcode == wire.Opcode.RETX_WRITE:
        more = f"packet {packet}, RSN {wire.RSNH.unpack(extension[16:20]).rsn}"
    elif bth.opcode == wire.Opcode.LOSS_REPORT:
        node = abi.NODE.unpack(extension[4:68])
        holes = [node.base_psn - first_psn + hole for hole in decode_body(node.encoding, node.count, node.body)]
        more = f"node: {abi.Encoding(node.encoding).name}, holes {holes}, RSN {node.rsn}"
    elif bth.opcode == wire.Opcode.ACKNOWLEDGE:
        more = f"everything before packet {packet + 1}"
    print(f"{hosts.loop.now_ns / 1000:<4.1f} µs  {sender}  {wire.Opcode(bth.opcode).name:<12} {more}")
    return lost


for sender, link in zip("ab", hosts.links, strict=True):
    link.drop = lambda frame, sender=sender: show(sender, frame)
a.write(b, PACKETS * 1024, wr_id=7)
while not len(a.cq):
    a.context.progress()
    b.context.progress()
    a.context.wait(1_000)
_, [done] = a.cq.poll()
print(f"request {done.wr_id}: {done.status.name}")
