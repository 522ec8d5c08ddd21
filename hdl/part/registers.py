"""Registers of BAR0, grouped by the subsystem that uses them, one port each."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..contract import abi

_RINGS = [r for r in abi.REGISTERS if abi.RING_BASE <= r.offset < abi.COUNTER_BASE or r.name == "status_block"]
_NIC = [r for r in abi.REGISTERS if r.name in ("nic_rx_buffer", "nic_rx_slot_log2")]
_RECEIVE = [r for r in abi.REGISTERS if r.name in ("host_qpns", "cnp_interval_ns")]
_PAUSE = [r for r in abi.REGISTERS if r.name == "pfc"]
_ADAMAP = [r for r in abi.REGISTERS if r.name in (
    "reorder_distance", "node_age_ns", "retransmit_slack", "prefetch_depth", "prefetch_watermark",
    "link_doorbell", "cum_doorbell")]
_PACER = [r for r in abi.REGISTERS if r.name in ("rate_doorbell", "limit_doorbell")]
_CARD = [r for r in abi.REGISTERS if r not in (*_RINGS, *_NIC, *_RECEIVE, *_PAUSE, *_ADAMAP, *_PACER)]

# User of each register: ring subsystem, Simple NIC, receive subsystem, flow control, Adamap subsystem, pacer, or the
# supervisor of the card.
GROUPS = {"rings": _RINGS, "nic": _NIC, "receive": _RECEIVE, "pause": _PAUSE, "adamap": _ADAMAP, "pacer": _PACER,
          "card": _CARD}


def group_of(register):
    """Return the name of the group of a register."""
    return next(name for name, registers in GROUPS.items() if register in registers)


def register_port(group):
    """Return the signature of the registers of a group, seen from the register block.

    ``<name>`` is the value, an input for a read-only register; ``<name>_stb`` is a strobe: that doorbell was written.
    """
    members = {}
    for register in GROUPS[group]:
        if register.access is abi.Access.RO:
            members[register.name] = In(register.width)
        else:
            members[register.name] = Out(register.width, init=register.reset)
        if register.access is abi.Access.DOORBELL:
            members[f"{register.name}_stb"] = Out(1)
    return wiring.Signature(members)
