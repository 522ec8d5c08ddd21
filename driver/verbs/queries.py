"""Queries of device and port attributes."""

import errno
from collections.abc import Callable
from typing import NoReturn

from weft.hdl.contract import abi

from ..datagram.service import GROUPS_MAX
from ..protocol.segment import MESSAGE_BYTES_MAX
from ..terms.checks import instance
from ..terms.errors import InvalidValue, NotSupported, PyverbsRDMAError
from ..terms.port_enums import AtomicCap, DeviceCapFlag, GidTypeSysfs
from .addr import GID
from .card import Card
from .cq import COMP_VECTORS, CQE_MAX
from .device_attr import DeviceAttr, DeviceAttrEx, GIDEntry, PortAttr
from .device_list import guid_of
from .qp_attr import GIDS, PKEYS, PORTS, RD_ATOMIC_MAX
from .qp_init_attr import QP_WR_MAX, SGE_MAX

OBJECTS_MAX = (1 << 24) - 1      # limit of objects that use no resource of the card
ACK_DELAY = 15                   # 4.096 µs · 2^15: allowance for the time between two calls of a program
ATTACHED_MAX = 1 << 12           # UD queue pairs of a multicast group: all that a card has
VIOLATIONS_MAX = 0xFFFF          # largest value of the counter of Q_Key violations
FULL_MEMBER = 0xFFFF             # the only partition key
ATOMICS = AtomicCap.HCA          # atomic with respect to each other, whatever the requester; not to the host's CPU


class Queries:
    """Mixin with the queries of a context, which has the attribute ``card``."""

    card: Card
    check_open: Callable[[], None]
    num_comp_vectors = COMP_VECTORS

    @property
    def cmd_fd(self) -> NoReturn:
        raise NotSupported("a context has no file: nothing of it can be given to another process")

    def query_device(self) -> DeviceAttr:
        """Return the :class:`DeviceAttr` of the device."""
        self.check_open()
        can, guid = self.card.capabilities, guid_of(self.card.mac)
        return DeviceAttr(
            fw_version=".".join(map(str, can.version)), node_guid=guid, sys_image_guid=guid,
            max_mr_size=can.max_pte * abi.PAGE_2M, page_size_cap=abi.PAGE_4K | abi.PAGE_2M,
            vendor_id=abi.PCI_VENDOR_ID, vendor_part_id=abi.PCI_DEVICE_ID, hw_ver=can.version[0],
            max_qp=self.card.engine.qps.most, max_qp_wr=QP_WR_MAX,
            device_cap_flags=DeviceCapFlag.RC_RNR_NAK_GEN | DeviceCapFlag.CURR_QP_STATE_MOD | DeviceCapFlag.SRQ_RESIZE,
            max_sge=SGE_MAX, max_sge_rd=SGE_MAX, max_cq=OBJECTS_MAX, max_cqe=CQE_MAX, max_mr=can.max_mr,
            max_pd=OBJECTS_MAX, max_qp_rd_atom=RD_ATOMIC_MAX, max_qp_init_rd_atom=RD_ATOMIC_MAX,
            max_res_rd_atom=RD_ATOMIC_MAX * self.card.engine.qps.most, atomic_caps=ATOMICS, max_srq=OBJECTS_MAX,
            max_ah=OBJECTS_MAX, max_mcast_grp=GROUPS_MAX, max_mcast_qp_attach=ATTACHED_MAX,
            max_srq_wr=QP_WR_MAX, max_srq_sge=SGE_MAX, max_pkeys=PKEYS, local_ca_ack_delay=ACK_DELAY,
            phys_port_cnt=PORTS)

    def query_device_ex(self, ex_input: object = None) -> DeviceAttrEx:
        """Return the :class:`DeviceAttrEx` of the device."""
        return DeviceAttrEx(self.query_device())

    def query_port(self, port_num: int) -> PortAttr:
        """Return the :class:`PortAttr` of a port."""
        self._check_port(port_num, f"Failed to query port {port_num}")
        return PortAttr(max_msg_sz=MESSAGE_BYTES_MAX,
                        qkey_viol_cntr=min(self.card.engine.counts["datagrams_with_wrong_qkey"], VIOLATIONS_MAX))

    def query_pkey(self, port_num: int, index: int) -> int:
        """Return the partition key ``index`` of a port."""
        self._check_port(port_num, f"Failed to query pkey {index} of port {port_num}", index, PKEYS)
        return FULL_MEMBER

    def query_gid(self, port_num: int, index: int) -> GID:
        """Return the :class:`GID` ``index`` of a port."""
        self._check_port(port_num, f"Failed to query gid {index} of port {port_num}", index, GIDS)
        return GID.of_ipv4(self.card.ip)

    def query_gid_type(self, port_num: int, index: int) -> GidTypeSysfs:
        """Return the type of the GID ``index`` of a port."""
        self._check_port(port_num, f"Failed to query gid type of port {port_num} and gid index {index}", index, GIDS)
        return GidTypeSysfs.ROCE_V2

    def query_gid_ex(self, port_num: int, gid_index: int, flags: int = 0) -> GIDEntry:
        """Return the :class:`GIDEntry` ``gid_index`` of a port."""
        self._check_port(port_num, f"Failed to query gid table of port {port_num} in index {gid_index}")
        instance("gid_index", gid_index, int)
        if not 0 <= gid_index < GIDS:
            raise PyverbsRDMAError(f"Failed to query gid table of port {port_num} in index {gid_index}", errno.ENODATA)
        return GIDEntry(str(GID.of_ipv4(self.card.ip)))

    def query_gid_table(self, max_entries: int, flags: int = 0) -> list[GIDEntry]:
        """Return all :class:`GIDEntry`; raise PyverbsRDMAError if there are more than ``max_entries``."""
        self.check_open()
        instance("max_entries", max_entries, int)
        if max_entries < GIDS:
            raise PyverbsRDMAError("Failed to query gid tables of the device", -errno.EINVAL)
        return [self.query_gid_ex(1, 0)]

    def query_rt_values_ex(self, comp_mask: int = 1) -> NoReturn:
        raise NotSupported("Failed to query real time values: the card has no clock that can be read")

    def _check_port(self, port_num: int, subject: str, index: int = 0, most: int = 1) -> None:
        self.check_open()
        for name, value in (("port_num", port_num), ("index", index)):
            instance(name, value, int)
        if not 1 <= port_num <= PORTS or not 0 <= index < most:
            raise InvalidValue(subject)
