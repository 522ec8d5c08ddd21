"""Answers to "who has this IP address?" (RFC 826): what another host needs before its first packet."""

from weft.hdl import wire
from weft.hdl.layout import Field, Layout

REQUEST, REPLY = 1, 2
HTYPE_ETHERNET = 1
BROADCAST = (1 << 48) - 1
ARP = Layout("ARP", "ARP for IPv4 on Ethernet.", [
    Field("htype", 16), Field("ptype", 16), Field("hlen", 8), Field("plen", 8), Field("oper", 16),
    Field("sha", 48, "MAC address of the sender."), Field("spa", 32, "Its IP address."),
    Field("tha", 48, "MAC address of the target."), Field("tpa", 32, "Its IP address."),
], size_bytes=28, byteorder="big")
_KIND = {"htype": HTYPE_ETHERNET, "ptype": wire.ETHERTYPE_IPV4, "hlen": 6, "plen": 4}


def is_arp(frame):
    """Whether a frame has the EtherType of ARP."""
    return frame[12:14] == wire.ETHERTYPE_ARP.to_bytes(2, "big")


def answer(frame, mac, ip):
    """The reply to an ARP frame that asks for ``ip``, which has ``mac``; None if it does not."""
    if len(frame) < wire.ETH.size_bytes + ARP.size_bytes:
        return None
    asked = ARP.unpack(frame[wire.ETH.size_bytes:])
    kind = {name: getattr(asked, name) for name in _KIND}
    if kind != _KIND or asked.oper != REQUEST or asked.tpa != ip or wire.ETH.unpack(frame).dst not in (mac, BROADCAST):
        return None
    reply = ARP.pack(**_KIND, oper=REPLY, sha=mac, spa=ip, tha=asked.sha, tpa=asked.spa)
    eth = wire.ETH.pack(dst=asked.sha, src=mac, ethertype=wire.ETHERTYPE_ARP)
    return (eth + reply).ljust(wire.MIN_FRAME_BYTES, b"\0")
