"""ARP (RFC 826): frames that resolve IP addresses."""

from weft.hdl.contract import wire
from weft.hdl.contract.layout import Field, Layout

REQUEST, REPLY = 1, 2
HTYPE_ETHERNET = 1
BROADCAST = (1 << 48) - 1
GROUP = 1 << 40      # set in group addresses, which no host has
ARP = Layout("ARP", "ARP for IPv4 on Ethernet.", [
    Field("htype", 16), Field("ptype", 16), Field("hlen", 8), Field("plen", 8), Field("oper", 16),
    Field("sha", 48, "MAC address of the sender."), Field("spa", 32, "Its IP address."),
    Field("tha", 48, "MAC address of the target."), Field("tpa", 32, "Its IP address."),
], size_bytes=28, byteorder="big")
_KIND = {"htype": HTYPE_ETHERNET, "ptype": wire.ETHERTYPE_IPV4, "hlen": 6, "plen": 4}


def is_arp(frame):
    """Return true if a frame has the EtherType of ARP."""
    return frame[12:14] == wire.ETHERTYPE_ARP.to_bytes(2, "big")


def parse(frame, mac):
    """Return the :data:`ARP` header of a frame to ``mac`` or to all, or None if it is invalid."""
    if len(frame) < wire.ETH.size_bytes + ARP.size_bytes or wire.ETH.unpack(frame).dst not in (mac, BROADCAST):
        return None
    arp = ARP.unpack(frame[wire.ETH.size_bytes:])
    if {name: getattr(arp, name) for name in _KIND} != _KIND or arp.sha & GROUP:
        return None
    return arp


def answer(frame, mac, ip):
    """Return the reply to an ARP request for ``ip``, which has ``mac``, or None for any other frame."""
    asked = parse(frame, mac)
    if asked is None or asked.oper != REQUEST or asked.tpa != ip:
        return None
    return _frame(asked.sha, mac, oper=REPLY, sha=mac, spa=ip, tha=asked.sha, tpa=asked.spa)


def question(mac, ip, target):
    """Return the frame that requests the MAC address of the IP address ``target``."""
    return _frame(BROADCAST, mac, oper=REQUEST, sha=mac, spa=ip, tha=0, tpa=target)


def _frame(dst, src, **fields):
    eth = wire.ETH.pack(dst=dst, src=src, ethertype=wire.ETHERTYPE_ARP)
    return (eth + ARP.pack(**_KIND, **fields)).ljust(wire.MIN_FRAME_BYTES, b"\0")
