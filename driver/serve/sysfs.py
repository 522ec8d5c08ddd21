"""Files that programs expect below ``/sys/class``: a folder ``NAME.sys`` next to a host's socket.

The preload library presents them to programs (``driver/ibverbs/sysfs.c``).
"""

import os
import shutil

from weft.hdl.contract import abi

from ..verbs.addr import GID
from ..verbs.device_attr import LINK_UP, SPEED_25_GBPS, WIDTH_4X, PortAttr
from ..verbs.device_list import guid_of
from ..verbs.linux_counters import CARD, DRIVER, PORT, linux_counters
from ..verbs.queries import FULL_MEMBER
from .calls import NAME

DEVICE, UVERBS = NAME.decode(), "uverbs0"
UVERBS_ABI, UMAD_ABI = 6, 5
RATES = {(WIDTH_4X, SPEED_25_GBPS): "100 Gb/sec (4X EDR)"}      # by width and speed
PHYS_STATES = {LINK_UP: "LinkUp"}
MASK_DIGITS = 8      # hexadecimal digits in a word of a processor mask


def _guid(mac):
    digits = f"{guid_of(mac):016x}"
    return ":".join(digits[at : at + 4] for at in range(0, 16, 4))


def _processors(count):
    """Return a mask of the first ``count`` processors."""
    digits = f"{(1 << count) - 1:0{-(-count // (4 * MASK_DIGITS)) * MASK_DIGITS}x}"
    return ",".join(digits[at : at + MASK_DIGITS] for at in range(0, len(digits), MASK_DIGITS))


def _of_port(gid):
    port = PortAttr()
    return {
        "state": f"{port.state:d}: {port.state.name}",
        "phys_state": f"{port.phys_state}: {PHYS_STATES[port.phys_state]}",
        "rate": RATES[port.active_width, port.active_speed], "cap_mask": f"0x{port.port_cap_flags:08x}",
        "lid": f"{port.lid:#x}", "lid_mask_count": port.lmc, "sm_lid": f"{port.sm_lid:#x}", "sm_sl": port.sm_sl,
        "link_layer": "Ethernet", "gids/0": gid, "gid_attrs/types/0": "RoCE v2", "gid_attrs/ndevs/0": DEVICE,
        "pkeys/0": f"{FULL_MEMBER:#06x}"}


def _of_device(host, card):
    count = os.cpu_count() or 1
    parent = {"vendor": f"{abi.PCI_VENDOR_ID:#06x}", "device": f"{abi.PCI_DEVICE_ID:#06x}", "numa_node": -1,
              "local_cpus": _processors(count), "local_cpulist": f"0-{count - 1}" if count > 1 else 0}
    files = {
        "node_type": "1: CA", "node_guid": _guid(card.mac), "sys_image_guid": _guid(card.mac),
        "node_desc": f"{host} {DEVICE}", "fw_ver": ".".join(map(str, card.capabilities.version)),
        "hw_rev": card.capabilities.version[0], "hca_type": "Weft", "board_id": "WEFT"}
    files |= {f"device/{name}": value for name, value in parent.items()}
    return files | {f"ports/1/{name}": value for name, value in _of_port(GID.of_ipv4(card.ip)).items()}


class SysfsTree:
    """Folder of the files of a host.

    Parameters
    ----------
    path : str
    host : str
    card : Card
    statistics : callable()
        Function that returns the counters of card and driver by name.
    """

    def __init__(self, path, host, card, statistics):
        self.path, self._statistics = path, statistics
        self._counters = {}      # present values, by file
        shutil.rmtree(path, ignore_errors=True)
        for name, value in _of_device(host, card).items():
            self._write(f"infiniband/{DEVICE}/{name}", value)
        for name, value in {"abi_version": UVERBS_ABI, f"{UVERBS}/ibdev": DEVICE, f"{UVERBS}/abi_version": 1}.items():
            self._write(f"infiniband_verbs/{name}", value)
        self._write("infiniband_mad/abi_version", UMAD_ABI)
        self._write_counters({})

    def update(self):
        """Rewrite the files of the counters that have changed."""
        self._write_counters(self._statistics())

    def _write_counters(self, counted):
        for folder, names in (("counters", PORT), ("hw_counters", CARD | DRIVER)):
            for name, value in linux_counters(names, counted).items():
                file = f"infiniband/{DEVICE}/ports/1/{folder}/{name}"
                if self._counters.get(file) != value:
                    self._write(file, value)
                    self._counters[file] = value

    def _write(self, name, value):
        """Write a file by replacement, so that no program reads a part of it."""
        path, part = os.path.join(self.path, "class", name), os.path.join(self.path, "part")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(part, "w") as file:
            file.write(f"{value}\n")
        os.replace(part, path)

    def close(self):
        shutil.rmtree(self.path, ignore_errors=True)
