"""Devices, by their names in ``pyverbs.device``."""

from .context import Context
from .device_attr import DeviceAttr, DeviceAttrEx, GIDEntry, PortAttr
from .device_list import Device, add_device, get_device_list, remove_device
from .events import AsyncEvent
from .text import (
    guid_format,
    phys_state_to_str,
    port_state_to_str,
    speed_to_str,
    translate_event_type,
    translate_link_layer,
    translate_mtu,
    translate_node_type,
    translate_transport_type,
    width_to_str,
)

__all__ = [
    "AsyncEvent", "Context", "Device", "DeviceAttr", "DeviceAttrEx", "GIDEntry", "PortAttr", "add_device",
    "get_device_list", "guid_format", "phys_state_to_str", "port_state_to_str", "remove_device", "speed_to_str",
    "translate_event_type", "translate_link_layer", "translate_mtu", "translate_node_type", "translate_transport_type",
    "width_to_str"]
