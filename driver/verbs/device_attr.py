"""Results of queries of a device and its port."""

from dataclasses import dataclass, field

from ..terms.enums import MTU
from ..terms.port_enums import AtomicCap, DeviceCapFlag, GidType, LinkLayer, PortState

WIDTH_4X, SPEED_25_GBPS, LINK_UP = 2, 32, 5
IP_BASED_GIDS = 1 << 26


@dataclass
class DeviceAttr:
    """Attributes and limits of a device (ibv_device_attr); 0 means that a feature does not exist."""

    fw_version: str = ""
    node_guid: int = 0
    sys_image_guid: int = 0
    max_mr_size: int = 0
    page_size_cap: int = 0
    vendor_id: int = 0
    vendor_part_id: int = 0
    hw_ver: int = 0
    max_qp: int = 0
    max_qp_wr: int = 0
    device_cap_flags: DeviceCapFlag = DeviceCapFlag(0)
    max_sge: int = 0
    max_sge_rd: int = 0
    max_cq: int = 0
    max_cqe: int = 0
    max_mr: int = 0
    max_pd: int = 0
    max_qp_rd_atom: int = 0
    max_ee_rd_atom: int = 0
    max_res_rd_atom: int = 0
    max_qp_init_rd_atom: int = 0
    max_ee_init_rd_atom: int = 0
    atomic_caps: AtomicCap = AtomicCap.NONE
    max_ee: int = 0
    max_rdd: int = 0
    max_mw: int = 0
    max_raw_ipv6_qps: int = 0
    max_raw_ethy_qp: int = 0
    max_mcast_grp: int = 0
    max_mcast_qp_attach: int = 0
    max_ah: int = 0
    max_fmr: int = 0
    max_map_per_fmr: int = 0
    max_srq: int = 0
    max_srq_wr: int = 0
    max_srq_sge: int = 0
    max_pkeys: int = 0
    local_ca_ack_delay: int = 0
    phys_port_cnt: int = 0


@dataclass(frozen=True)
class OdpCaps:
    """Capabilities of on-demand paging: none."""

    general_caps: int = 0
    rc_odp_caps: int = 0
    uc_odp_caps: int = 0
    ud_odp_caps: int = 0
    xrc_odp_caps: int = 0


@dataclass(frozen=True)
class TsoCaps:
    """Capabilities of segmentation offload for packets other than RDMA: none."""

    max_tso: int = 0
    supported_qpts: int = 0


@dataclass(frozen=True)
class PciAtomicCaps:
    """Capabilities of atomics over PCIe: none."""

    fetch_add: int = 0
    swap: int = 0
    compare_swap: int = 0


@dataclass
class DeviceAttrEx:
    """Extended attributes of a device (ibv_device_attr_ex)."""

    orig_attr: DeviceAttr
    comp_mask: int = 0
    odp_caps: OdpCaps = field(default_factory=OdpCaps)
    completion_timestamp_mask: int = 0
    hca_core_clock: int = 0
    device_cap_flags_ex: int = 0
    tso_caps: TsoCaps = field(default_factory=TsoCaps)
    pci_atomic_caps: PciAtomicCaps = field(default_factory=PciAtomicCaps)
    max_wq_type_rq: int = 0
    raw_packet_caps: int = 0
    max_dm_size: int = 0
    phys_port_cnt_ex: int = 1


@dataclass
class PortAttr:
    """Attributes of a port (ibv_port_attr). LIDs and other attributes of the link layer of InfiniBand are 0."""

    state: PortState = PortState.ACTIVE
    max_mtu: MTU = MTU.MTU_4096
    active_mtu: MTU = MTU.MTU_4096
    gid_tbl_len: int = 1
    port_cap_flags: int = IP_BASED_GIDS
    max_msg_sz: int = 0
    bad_pkey_cntr: int = 0
    qkey_viol_cntr: int = 0
    pkey_tbl_len: int = 1
    lid: int = 0
    sm_lid: int = 0
    lmc: int = 0
    max_vl_num: int = 0
    sm_sl: int = 0
    subnet_timeout: int = 0
    init_type_reply: int = 0
    active_width: int = WIDTH_4X
    active_speed: int = SPEED_25_GBPS
    phys_state: int = LINK_UP
    link_layer: LinkLayer = LinkLayer.ETHERNET
    flags: int = 0
    port_cap_flags2: int = 0


@dataclass(frozen=True)
class GIDEntry:
    """Entry of the GID table (ibv_gid_entry)."""

    gid: str
    gid_index: int = 0
    port_num: int = 1
    gid_type: GidType = GidType.ROCE_V2
    ndev_ifindex: int = 0

    @property
    def gid_str(self) -> str:
        return self.gid
