"""RoCEv2 frames of hosts of a fabric."""

from weft.hdl.contract import wire
from weft.model.fabric.forwarding import ADDRESS

MAC = 0x02_0000_0000_01


def macs(count):
    """Return the MAC addresses of hosts."""
    return [(MAC + n).to_bytes(6) for n in range(count)]


def frame(source, destination, *, opcode=wire.Opcode.WRITE_ONLY, payload=4096, tos=None, sport=49152, psn=0):
    """Return a frame from a host to another, by numbers; ECT(0) in the class of its opcode if ``tos`` is not given."""
    return wire.build_frame(dst_mac=MAC + destination, src_mac=MAC + source, src_ip=ADDRESS + source,
                            dst_ip=ADDRESS + destination, sport=sport, opcode=opcode, dest_qp=17, psn=psn,
                            payload=bytes(payload),
                            tos=wire.tos_of(opcode, wire.ECT0) if tos is None else tos)
