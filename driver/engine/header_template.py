"""Header template: constant fields of everything that a QP sends to its peer."""

from ..queue.control_frames import ControlFrames
from ..queue.descriptor import Descriptors


class HeaderTemplate:
    """Header template of a QP's descriptors and control frames.

    Parameters
    ----------
    path : Path
        With the peer's MAC address.
    card
        Used are ``mac`` and ``ip``.
    index : int
        Of the QP.
    sport : int
        UDP source port.
    ect : bool
        Switches may mark data packets (ECT).
    paced : bool
        The card paces the QP.

    Attributes
    ----------
    descriptors : Descriptors
    frames : ControlFrames
    """

    def __init__(self, path, card, index, sport, *, ect=False, paced=False):
        self.path = path
        self.descriptors = Descriptors(pmtu=path.mtu, sqpn=index, dqpn=path.qpn, dst_mac=path.mac, dst_ip=path.ip,
                                       sport=sport, ect=int(ect), paced=int(paced))
        self.frames = ControlFrames(dst_mac=path.mac, src_mac=card.mac, src_ip=card.ip, dst_ip=path.ip, sport=sport,
                                    dest_qp=path.qpn)
