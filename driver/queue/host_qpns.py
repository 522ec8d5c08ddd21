"""QPNs of software on the host, whose packets the card delivers as raw frames."""

from weft.hdl.contract import abi, wire

from ..device.capabilities import read_register, write_register
from ..terms.errors import InvalidValue


class HostQpns:
    """Contents of the register ``host_qpns``: at most one range, and QPN 1.

    The card checks such packets up to the BTH, and their ICRC; their NIC_RX entries have ``host`` set. They share the
    slots for frames of unknown peers: half of NIC_RX. The slots must be as large as the frames: for packets of 4096
    bytes, ``nic_slot_log2`` is 13.

    Parameters
    ----------
    device : Device
    taken : callable
        ``taken(is_host)`` returns true if a QP of the card has a number for which ``is_host(qpn)`` is true.
    """

    def __init__(self, device, taken):
        self._device, self._taken, self._word = device, taken, 0

    def __contains__(self, qpn):
        return abi.is_host_qpn(self._word, qpn)

    def start(self):
        """Write the register of a card that is out of reset."""
        write_register(self._device, "host_qpns", self._word)

    def claim(self, first, count):
        """Receive the packets for ``count`` QPNs from ``first`` on.

        Raises
        ------
        InvalidValue
            If ``count`` is not a power of two, ``first`` is not a multiple of it, a range is claimed already, or a QP
            of the card has such a number.
        """
        log2 = count.bit_length() - 1
        if count < 1 or count != 1 << log2 or first % count or not 0 <= first <= (1 << wire.QPN_BITS) - count:
            raise InvalidValue(f"{count} QPNs from {first} on: the number of QPNs is a power of two, and the first a "
                               "multiple of it")
        if self._now.ranged:
            raise InvalidValue(f"the range from {self._now.first} on was claimed before")
        word = self._changed(first=first, log2=log2, ranged=1)
        if self._taken(lambda qpn: abi.is_host_qpn(word, qpn)):
            raise InvalidValue(f"a QP of the card has one of the {count} QPNs from {first} on")
        self._set(word)

    def release(self):
        """Stop receiving the packets of the range."""
        self._set(self._changed(first=0, log2=0, ranged=0))

    def claim_qp1(self, wanted=True):
        """Start or stop receiving the packets for QPN 1, management datagrams."""
        self._set(self._changed(qp1=int(wanted)))

    @property
    def _now(self):
        return abi.HOST_QPNS.unpack(self._word.to_bytes(abi.HOST_QPNS.size_bytes, "little"))

    def _changed(self, **fields):
        return int.from_bytes(abi.HOST_QPNS.pack(**vars(self._now) | fields), "little")

    def _set(self, word):
        self._word = word
        self.start()
        read_register(self._device, "host_qpns")     # completes after the write: the card has it
