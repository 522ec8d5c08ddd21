"""Text forms of numbers of the verbs."""

from .enums import NAMES

_TEXT: dict[str, dict[int, object]] = {
    "state of a port": {0: "NOP", 1: "Down", 2: "Init", 3: "Armed", 4: "Active", 5: "Defer"},
    "MTU": {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096},
    "physical state": {1: "Sleep", 2: "Polling", 3: "Disabled", 4: "Port configuration training", 5: "Link up",
                       6: "Link error recovery", 7: "Phy test"},
    "width": {1: "1X", 2: "4X", 4: "8X", 16: "2X"},
    "speed": {1: "2.5 Gbps", 2: "5.0 Gbps", 4: "10.0 Gbps", 8: "10.0 Gbps", 16: "14.0 Gbps", 32: "25.0 Gbps",
              64: "50.0 Gbps", 128: "100.0 Gbps"},
}


def _with_number(subject: str, value: int) -> str:
    known = _TEXT[subject]
    return f"{known[value]} ({int(value)})" if value in known else f"Invalid {subject} ({value})"


def port_state_to_str(state: int) -> str:
    """Return the text of a port state, such as ``Active (4)``."""
    return _with_number("state of a port", state)


def translate_mtu(mtu: int) -> str:
    """Return the text of an MTU, such as ``4096 (5)``."""
    return _with_number("MTU", mtu)


def phys_state_to_str(state: int) -> str:
    """Return the text of a physical state, such as ``Link up (5)``."""
    return _with_number("physical state", state)


def width_to_str(width: int) -> str:
    """Return the text of a link width, such as ``4X (2)``."""
    return _with_number("width", width)


def speed_to_str(speed: int) -> str:
    """Return the text of the speed of one lane, such as ``25.0 Gbps (32)``."""
    return _with_number("speed", speed)


def member_to_str(name: str, value: int) -> str:
    """Return the name of a member of a libibverbs enumeration, such as ``ibv_qp_state``, without its prefix."""
    kind = next(kind for known, kind, _ in NAMES if known == name)
    try:
        known = kind(value).name
    except ValueError:
        known = None
    return known or f"Unknown ({value})"


def translate_link_layer(layer: int) -> str:
    """Return the name of a link layer, such as ``ETHERNET``."""
    return member_to_str("ibv_link_layer", layer)


def translate_node_type(node_type: int) -> str:
    """Return the name of a node type, such as ``CA``."""
    return member_to_str("ibv_node_type", node_type)


def translate_transport_type(transport_type: int) -> str:
    """Return the name of a transport type, such as ``IB``."""
    return member_to_str("ibv_transport_type", transport_type)


def translate_event_type(event_type: int) -> str:
    """Return the name of an event type, such as ``CQ_ERR``."""
    return member_to_str("ibv_event_type", event_type)


def qp_type_to_str(qp_type: int) -> str:
    """Return the name of a QP type, such as ``RC``."""
    return member_to_str("ibv_qp_type", qp_type)


def qp_state_to_str(state: int) -> str:
    """Return the name of a QP state, such as ``RTS``."""
    return member_to_str("ibv_qp_state", state)


def guid_format(guid: int) -> str:
    """Return the text of a GUID, such as ``0200:00ff:fe00:0001``."""
    digits = f"{guid:016x}"
    return ":".join(digits[i : i + 4] for i in range(0, 16, 4))
