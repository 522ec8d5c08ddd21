"""List of the devices that a program can open by name."""

import errno
import threading
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from ..device import device as back_end
from ..terms.checks import unsigned
from ..terms.errors import InUse, InvalidValue, PyverbsRDMAError
from ..terms.port_enums import NodeType, TransportType
from .card import Card
from .config import ContextConfig


@dataclass
class _Entry:
    device: back_end.Device
    mac: int
    ip: int
    config: ContextConfig | None
    card: Card | None = None
    opening: threading.Lock = field(default_factory=threading.Lock)


_devices: dict[str, _Entry] = {}     # by name


@dataclass(frozen=True)
class Device:
    """Entry of the list of devices (ibv_device). ``name`` is bytes, as in pyverbs; ``guid`` is an EUI-64."""

    name: bytes
    guid: int
    node_type: NodeType
    transport_type: TransportType
    index: int


def guid_of(mac: int) -> int:
    """Return the EUI-64 of a MAC address, as for GUIDs of RoCE: ff:fe in the middle, the universal bit flipped."""
    return (mac >> 24 ^ 0x02_0000) << 40 | 0xFFFE << 24 | mac & 0xFF_FFFF


def add_device(device: back_end.Device, *, mac: int, ip: int, name: str | None = None,
               config: ContextConfig | None = None) -> str:
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


def remove_device(name: str | bytes) -> None:
    """Remove a device from the list; raise InUse if it is open."""
    name = _text(name)
    entry = _find(name)
    if entry.card is not None and entry.card.open:
        raise InUse(f"the device {name} is open")
    del _devices[name]


def get_device_list() -> list[Device]:
    """Return the list of devices, as :class:`Device`."""
    return [Device(name.encode(), guid_of(entry.mac), NodeType.CA, TransportType.IB, index)
            for index, (name, entry) in enumerate(_devices.items())]


def open_card(name: str | bytes) -> Card:
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


def device_at(ip: int) -> str:
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


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _find(name: str | bytes) -> _Entry:
    name = _text(name)
    if name not in _devices:
        raise PyverbsRDMAError(f"Failed to find device {name}")
    return _devices[name]
