"""List of the devices that a program can open by name."""

import errno
import threading
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from ..terms.checks import unsigned
from ..terms.errors import InUse, InvalidValue, PyverbsRDMAError
from ..terms.port_enums import NodeType, TransportType
from .card import Card

_devices = {}    # name -> _Entry


@dataclass
class _Entry:
    device: object
    mac: int
    ip: int
    config: object
    card: Card | None = None
    opening: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class Device:
    """Entry of the list of devices (ibv_device). ``name`` is bytes, as in pyverbs; ``guid`` is an EUI-64."""

    name: bytes
    guid: int
    node_type: NodeType
    transport_type: TransportType
    index: int


def guid_of(mac):
    """Return the EUI-64 of a MAC address, as for GUIDs of RoCE: ff:fe in the middle, the universal bit flipped."""
    return (mac >> 24 ^ 0x02_0000) << 40 | 0xFFFE << 24 | mac & 0xFF_FFFF


def add_device(device, *, mac, ip, name=None, config=None):
    """Put a back end's card on the list, and return its name.

    Parameters
    ----------
    device : ~weft.driver.device.device.Device
    mac, ip : int
        Addresses of the card.
    name : str or None
        Default ``weft0``, ``weft1`` and so on.
    config : ContextConfig or None
    """
    if name is None:
        name = next(f"weft{n}" for n in range(len(_devices) + 1) if f"weft{n}" not in _devices)
    if name in _devices:
        raise InvalidValue(f"there is a device {name} already")
    _devices[name] = _Entry(device, unsigned("mac", mac, 48), unsigned("ip", ip, 32), config)
    return name


def remove_device(name):
    """Remove a device from the list; raise InUse if it is open."""
    entry = _find(name)
    if entry.card is not None and entry.card.open:
        raise InUse(f"the device {name} is open")
    del _devices[name]


def get_device_list():
    """Return the list of devices, as :class:`Device`."""
    return [Device(name.encode(), guid_of(entry.mac), NodeType.CA, TransportType.IB, index)
            for index, (name, entry) in enumerate(_devices.items())]


def open_card(name):
    """Return the :class:`Card` of a device; bring it up if it is not open."""
    entry = _find(name)
    if not entry.opening.acquire(blocking=False):
        entry.device.acquire(entry.opening)
    try:
        if entry.card is None or not entry.card.open:
            entry.card = Card(entry.device, mac=entry.mac, ip=entry.ip, config=entry.config)
    finally:
        entry.opening.release()
    return entry.card


def device_at(ip):
    """Return the name of the device with an IP address, which is an int; for 0 that of the only device.

    Raises
    ------
    PyverbsRDMAError
        If no device matches, or several do.
    """
    names = [name for name, entry in _devices.items() if ip in (0, entry.ip)]
    if not names:
        raise PyverbsRDMAError(f"no device has the address {IPv4Address(ip)}", errno.ENODEV)
    if len(names) > 1:
        raise PyverbsRDMAError(f"an address of this host must select one of {len(names)} devices",
                               errno.ENODEV)
    return names[0]


def _find(name):
    name = name.decode() if isinstance(name, bytes) else name
    if name not in _devices:
        raise PyverbsRDMAError(f"Failed to find device {name}")
    return _devices[name]
