"""Addresses: GIDs, the route to a peer, and address handles."""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from weft.hdl.contract import wire

from ..datagram.packet import GRH_BYTES
from ..terms.checks import between, instance, unsigned
from ..terms.closing import Closing
from ..terms.enums import WCFlags
from ..terms.errors import InvalidValue, NotSupported, PyverbsUserError
from ..terms.wc import WC

if TYPE_CHECKING:
    from .pd import PD

_MAPPED = 0xFFFF << 32      # prefix of an IPv4-mapped GID, the kind of RoCEv2 over IPv4
_WORDS = re.compile(r"[0-9a-fA-F]{4}(:[0-9a-fA-F]{4}){7}")
HOP_LIMIT_MAX = 255
FLOW_LABEL_BITS = 20
TRAFFIC_CLASS_BITS, SERVICE_LEVEL_BITS = 8, 4


class GID:
    """Global identifier, in the form ``xxxx:xxxx:xxxx:xxxx:xxxx:xxxx:xxxx:xxxx``."""

    def __init__(self, val: "GID | str | None" = None) -> None:
        self._value = 0
        if val is not None:
            self.gid = val

    @classmethod
    def of_ipv4(cls, ip: int) -> Self:
        """Return the GID of an IPv4 address, which is an int."""
        gid = cls()
        gid._value = _MAPPED | unsigned("ip", ip, 32)
        return gid

    @property
    def gid(self) -> str:
        return str(self)

    @gid.setter
    def gid(self, val: "GID | str") -> None:
        if not _WORDS.fullmatch(str(val)):
            raise PyverbsUserError(f"Invalid GID value ({val})")
        self._value = int(str(val).replace(":", ""), 16)

    @property
    def ipv4(self) -> int | None:
        """IPv4 address of the GID as an int, or None if the GID is not IPv4-mapped."""
        return self._value ^ _MAPPED if self._value >> 32 == _MAPPED >> 32 else None

    def __str__(self) -> str:
        digits = f"{self._value:032x}"
        return ":".join(digits[i : i + 4] for i in range(0, 32, 4))

    def __repr__(self) -> str:
        return f"GID({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GID) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)


def ipv4_of(gid: GID | str) -> int:
    """Return the IPv4 address of a GID or its text.

    Raises
    ------
    InvalidValue
        If the GID is not IPv4-mapped: the card supports RoCEv2 over IPv4.
    """
    ip = (gid if isinstance(gid, GID) else GID(gid)).ipv4
    if ip is None:
        raise InvalidValue(f"the GID {gid} is not an IPv4-mapped one (::ffff:a.b.c.d); the card supports IPv4 only")
    return ip


@dataclass
class GlobalRoute:
    """Destination of packets (ibv_global_route).

    A ``flow_label`` other than 0 selects the UDP source port, as in libibverbs.
    """

    dgid: GID | str = field(default_factory=GID)
    flow_label: int = 0
    sgid_index: int = 0
    hop_limit: int = 1
    traffic_class: int = 0

    def __post_init__(self) -> None:
        self.dgid = str(self.dgid)


def _of_route(name: str) -> property:
    """Return a property that is an alias of an attribute of the route, None if there is no route."""
    def put(attr: "AHAttr", value: object) -> None:
        setattr(attr.gr, name, str(value) if name == "dgid" else value)

    return property(lambda attr: getattr(attr.gr, name) if attr.is_global else None, put)


@dataclass
class AHAttr:
    """Address of a peer (ibv_ah_attr).

    ``dgid, flow_label, sgid_index, hop_limit, traffic_class`` are those of ``gr``. All packets of the card have the
    same TTL, traffic class and priority: any ``hop_limit``, ``traffic_class`` and ``sl`` is accepted and has no effect.
    """

    dlid: int = 0
    sl: int = 0
    src_path_bits: int = 0
    static_rate: int = 0
    is_global: int = 0
    port_num: int = 1
    gr: GlobalRoute | None = None

    dgid = _of_route("dgid")
    flow_label = _of_route("flow_label")
    sgid_index = _of_route("sgid_index")
    hop_limit = _of_route("hop_limit")
    traffic_class = _of_route("traffic_class")

    def __post_init__(self) -> None:
        if self.is_global and self.gr is None:
            raise PyverbsUserError("Global AH Attr is created but gr parameter is None")
        self.gr = GlobalRoute(**vars(self.gr)) if self.is_global else GlobalRoute()

    def check(self, gids: int) -> None:
        """Raise InvalidValue, NotSupported or TypeError if a port with ``gids`` GIDs cannot send to this address."""
        if not self.is_global:
            raise InvalidValue("ah_attr is not global; on Ethernet a peer is named by its GID")
        for name in ("dlid", "src_path_bits", "static_rate"):
            if getattr(self, name):
                raise NotSupported(f"ah_attr.{name} is {getattr(self, name)}, and means nothing here")
        between("ah_attr.port_num", self.port_num, 1, 1)
        between("ah_attr.sgid_index", self.sgid_index, 0, gids - 1)
        between("ah_attr.hop_limit", self.hop_limit, 0, HOP_LIMIT_MAX)
        unsigned("ah_attr.flow_label", self.flow_label, FLOW_LABEL_BITS)
        unsigned("ah_attr.traffic_class", self.traffic_class, TRAFFIC_CLASS_BITS)
        unsigned("ah_attr.sl", self.sl, SERVICE_LEVEL_BITS)
        ipv4_of(self.dgid)


class AH(Closing):
    """Address handle: destination of datagrams.

    Parameters
    ----------
    pd : PD
    attr : AHAttr or None
        Address; its GID is that of a host or of a multicast group.
    wc, grh : WC and bytes or int, or None
        Without ``attr``: completion of a datagram, and the first 40 bytes of its receive or their address in registered
        memory; the destination is its sender.
    port_num : int
        Of ``wc``.

    Attributes
    ----------
    ip, flow_label : int
        Of the destination.

    Raises
    ------
    InvalidValue, NotSupported, TypeError
    """

    def __init__(self, pd: "PD", *, attr: AHAttr | None = None, wc: WC | None = None,
                 grh: bytes | bytearray | memoryview | int | None = None, port_num: int = 1) -> None:
        if not hasattr(pd, "check_open"):
            raise PyverbsUserError(f"Cannot create AH from {type(pd)}")
        pd.check_open()
        self.pd = pd
        if attr is None:
            header = pd.context.engine.lender.memory.gather([(grh, GRH_BYTES, 0)]) if isinstance(grh, int) else grh
            attr = _sender_of(wc, header, port_num)
        instance("attr", attr, AHAttr)
        if not attr.is_global:
            raise InvalidValue("Failed to create AH: it is not global; on Ethernet a destination has a GID")
        attr.check(1)
        self.ip, self.flow_label = ipv4_of(attr.gr.dgid if attr.gr else ""), attr.gr.flow_label if attr.gr else 0

    def close(self) -> None:
        """Do nothing: the object holds no resource."""


def _sender_of(wc: WC | None, grh: bytes | bytearray | memoryview | None, port_num: int) -> AHAttr:
    """Return the address of the sender of a received datagram."""
    if wc is None or not wc.wc_flags & WCFlags.GRH or grh is None or len(grh) < GRH_BYTES:
        raise InvalidValue("an AH needs attr, or wc and grh of a received datagram")
    source = wire.IPV4.unpack(bytes(grh[GRH_BYTES - wire.IPV4.size_bytes : GRH_BYTES])).src
    return AHAttr(is_global=1, port_num=port_num, gr=GlobalRoute(GID.of_ipv4(source), hop_limit=64))
