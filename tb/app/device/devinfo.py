"""``weft devinfo``: a card in the form of ``ibv_devinfo``."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from weft.driver.verbs.device import (
    guid_format,
    phys_state_to_str,
    port_state_to_str,
    speed_to_str,
    translate_mtu,
    width_to_str,
)
from weft.tb.app.stage.host import Host

NAME, PORT = "weft0", 1
LAYERS = {0: "Unspecified", 1: "InfiniBand", 2: "Ethernet"}
ATOMIC = {0: "ATOMIC_NONE (0)", 1: "ATOMIC_HCA (1)", 2: "ATOMIC_GLOB (2)"}
# Attributes of the device that are always shown, and those shown with -v, in the order of ibv_devinfo.
GUIDS = ("node_guid", "sys_image_guid")
HEXADECIMAL = ("vendor_id", "hw_ver", "max_mr_size", "page_size_cap", "device_cap_flags", "max_msg_sz",
               "port_cap_flags", "port_cap_flags2")
DEVICE = (*GUIDS, "vendor_id", "vendor_part_id", "hw_ver", "phys_port_cnt")
LIMITS = ("max_mr_size", "page_size_cap", "max_qp", "max_qp_wr", "device_cap_flags", "max_sge", "max_sge_rd", "max_cq",
          "max_cqe", "max_mr", "max_pd", "max_qp_rd_atom", "max_ee_rd_atom", "max_res_rd_atom", "max_qp_init_rd_atom",
          "max_ee_init_rd_atom", "atomic_caps", "max_ee", "max_rdd", "max_mw", "max_raw_ipv6_qps", "max_raw_ethy_qp",
          "max_mcast_grp", "max_mcast_qp_attach", "max_ah", "max_fmr", "max_srq", "max_srq_wr", "max_srq_sge",
          "max_pkeys", "local_ca_ack_delay")
PORT_LIMITS = ("max_msg_sz", "port_cap_flags", "max_vl_num", "bad_pkey_cntr", "qkey_viol_cntr", "gid_tbl_len",
               "pkey_tbl_len", "sm_sl", "subnet_timeout", "init_type_reply")


def query(host: Host) -> dict[str, Any]:
    """Return device, port and GIDs as dicts of numbers and text; program of the queried host."""
    context = host.context
    return {"device": {name: value if isinstance(value, str) else int(value)
                       for name, value in asdict(context.query_device()).items()},
            "port": {name: int(value) for name, value in asdict(context.query_port(PORT)).items()},
            "gids": [entry.gid for entry in context.query_gid_table(16)]}


def rest(host: Host) -> None:
    """Do nothing; program of the other host."""


def text(found: dict[str, Any], *, verbose: bool, name: str = NAME) -> str:
    """Return the result of :func:`query` in the form of ``ibv_devinfo``, with ``verbose`` of ``ibv_devinfo -v``."""
    device, port = found["device"], found["port"]
    lines = [f"hca_id:\t{name}", *_lines(1, [("transport", "InfiniBand (0)"), ("fw_ver", device["fw_version"])]),
             *_lines(1, [(name, _shown(name, device[name])) for name in DEVICE])]
    if verbose:
        lines += _lines(1, [(name, _shown(name, device[name])) for name in LIMITS])
    lines.append(f"\t\tport:\t{PORT}")
    lines += _lines(3, [
        ("state", "PORT_" + port_state_to_str(port["state"]).upper()), ("max_mtu", translate_mtu(port["max_mtu"])),
        ("active_mtu", translate_mtu(port["active_mtu"])), ("sm_lid", port["sm_lid"]), ("port_lid", port["lid"]),
        ("port_lmc", f"0x{port['lmc']:02x}"), ("link_layer", LAYERS[port["link_layer"]])])
    if verbose:
        lines += _lines(3, [(name, _shown(name, port[name])) for name in PORT_LIMITS])
        lines += _lines(3, [
            ("active_width", width_to_str(port["active_width"])), ("active_speed", speed_to_str(port["active_speed"])),
            ("phys_state", phys_state_to_str(port["phys_state"]).upper().replace("LINK ", "LINK_")),
            *((f"GID[{index:3}]", f"{gid}, RoCE v2") for index, gid in enumerate(found["gids"]))])
    return "\n".join(lines)


def _shown(name: str, value: Any) -> object:
    if name in GUIDS:
        return guid_format(value)
    if name == "atomic_caps":
        return ATOMIC[value]
    return f"0x{value:x}" if name in HEXADECIMAL else value


def _lines(depth: int, pairs: Iterable[tuple[str, object]]) -> list[str]:
    """Return lines of names and values, with the values in one column."""
    width = 4 - depth // 2
    return ["\t" * depth + f"{name}:" + "\t" * max(1, width - (len(name) + 1) // 8) + str(value)
            for name, value in pairs]
