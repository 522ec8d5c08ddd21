"""Blocks of the vendor that a board uses: connected ports, their widths, and constants for open inputs.

From the instantiation templates of Vivado's IP (pcie4c_uscale_plus 1.0, cmac_usplus 3.1, as contained in public
projects) and from PG213, PG203 and UG974. Unused outputs are left out: Vivado leaves them open.
"""

from dataclasses import dataclass, field

from ..part.layouts import BEAT_BITS
from ..pcie import cq, rc, rq
from ..pcie.tlp import DWORD_BITS
from .mac_side import MAC_EVENTS

LANES = 16
KEEP = BEAT_BITS // DWORD_BITS
PCIE, CMAC = "pcie4c_uscale_plus_0", "cmac_usplus_0"


@dataclass(frozen=True)
class Block:
    """A block of the vendor.

    ``inputs``, ``outputs``: ``{port: width}``. ``constants``: ``{port: (width, value)}`` of inputs without a signal.
    ``attributes``: parameters. ``clock``: the domain of its ports, except those of ``asynchronous`` and of
    ``clocks``, which have another.
    """

    inputs: dict
    outputs: dict
    constants: dict = field(default_factory=dict)
    attributes: dict = field(default_factory=dict)
    clock: str | None = None
    asynchronous: frozenset = frozenset()
    clocks: dict = field(default_factory=dict)

    def clock_of(self, port):
        """Return the domain of a port, or None."""
        return None if port in self.asynchronous else self.clocks.get(port, self.clock)


def _axis(name, user, width_ready=None):
    """Return the ports of a stream; those of ``s_axis`` have a ``tready`` of several copies."""
    payload = {f"{name}_tdata": BEAT_BITS, f"{name}_tkeep": KEEP, f"{name}_tlast": 1, f"{name}_tuser": user,
               f"{name}_tvalid": 1}
    return payload, {f"{name}_tready": width_ready or 1}


_RQ, _RQ_READY = _axis("s_axis_rq", rq.USER_WIDTH, 4)
_CC, _CC_READY = _axis("s_axis_cc", cq.CC_USER_WIDTH, 4)
_RC, _RC_READY = _axis("m_axis_rc", rc.USER_WIDTH)
_CQ, _CQ_READY = _axis("m_axis_cq", cq.CQ_USER_WIDTH)

BLOCKS = {
    PCIE: Block(
        inputs={"pci_exp_rxn": LANES, "pci_exp_rxp": LANES, "sys_clk": 1, "sys_clk_gt": 1, "sys_reset": 1,
                **_RQ, **_CC, **_RC_READY, **_CQ_READY,
                "cfg_mgmt_addr": 10, "cfg_mgmt_read": 1, "cfg_flr_done": 4},
        outputs={"pci_exp_txn": LANES, "pci_exp_txp": LANES, "user_clk": 1, "user_reset": 1, "user_lnk_up": 1,
                 **_RC, **_CQ, **_RQ_READY, **_CC_READY,
                 "pcie_rq_seq_num0": 6, "pcie_rq_seq_num1": 6, "pcie_rq_seq_num_vld0": 1, "pcie_rq_seq_num_vld1": 1,
                 "pcie_tfc_nph_av": 4, "cfg_max_payload": 2, "cfg_max_read_req": 3, "cfg_function_status": 16,
                 "cfg_mgmt_read_data": 32, "cfg_mgmt_read_write_done": 1,
                 "cfg_interrupt_msix_enable": 4, "cfg_interrupt_msix_mask": 4, "cfg_flr_in_process": 4},
        constants={"pcie_cq_np_req": (2, 1), "cfg_mgmt_function_number": (8, 0), "cfg_mgmt_write": (1, 0),
                   "cfg_mgmt_write_data": (32, 0), "cfg_mgmt_byte_enable": (4, 0), "cfg_mgmt_debug_access": (1, 0),
                   "cfg_msg_transmit": (1, 0), "cfg_msg_transmit_type": (3, 0), "cfg_msg_transmit_data": (32, 0),
                   "cfg_fc_sel": (3, 0), "cfg_dsn": (64, 0), "cfg_power_state_change_ack": (1, 1),
                   "cfg_err_cor_in": (1, 0), "cfg_err_uncor_in": (1, 0), "cfg_vf_flr_func_num": (8, 0),
                   "cfg_vf_flr_done": (1, 0), "cfg_link_training_enable": (1, 1), "cfg_interrupt_int": (4, 0),
                   "cfg_interrupt_pending": (4, 0), "cfg_interrupt_msix_int": (1, 0),
                   "cfg_interrupt_msix_address": (64, 0), "cfg_interrupt_msix_data": (32, 0),
                   "cfg_interrupt_msix_vec_pending": (2, 0), "cfg_interrupt_msi_function_number": (8, 0),
                   "cfg_pm_aspm_l1_entry_reject": (1, 0), "cfg_pm_aspm_tx_l0s_entry_disable": (1, 0),
                   "cfg_config_space_enable": (1, 1), "cfg_req_pm_transition_l23_ready": (1, 0),
                   "cfg_hot_reset_in": (1, 0), "cfg_ds_port_number": (8, 0), "cfg_ds_bus_number": (8, 0),
                   "cfg_ds_device_number": (5, 0)},
        clock="sync", asynchronous=frozenset((
            "pci_exp_rxn", "pci_exp_rxp", "sys_clk", "sys_clk_gt", "sys_reset", "pci_exp_txn", "pci_exp_txp",
            "user_clk", "user_lnk_up"))),
    CMAC: Block(
        inputs={"gt_rxp_in": 4, "gt_rxn_in": 4, "gt_ref_clk_p": 1, "gt_ref_clk_n": 1, "init_clk": 1, "sys_reset": 1,
                "gt_loopback_in": 12, "rx_clk": 1, "ctl_tx_enable": 1, "ctl_tx_send_rfi": 1,
                "tx_axis_tdata": BEAT_BITS, "tx_axis_tkeep": BEAT_BITS // 8, "tx_axis_tlast": 1, "tx_axis_tuser": 1,
                "tx_axis_tvalid": 1},
        outputs={"gt_txp_out": 4, "gt_txn_out": 4, "gt_txusrclk2": 1, "gt_powergoodout": 4,
                 "usr_tx_reset": 1, "usr_rx_reset": 1, "tx_axis_tready": 1,
                 "rx_axis_tdata": BEAT_BITS, "rx_axis_tkeep": BEAT_BITS // 8, "rx_axis_tlast": 1, "rx_axis_tuser": 1,
                 "rx_axis_tvalid": 1, "tx_ovfout": 1, "tx_unfout": 1,
                 "stat_rx_aligned": 1, "stat_rx_local_fault": 1, "stat_rx_remote_fault": 1, "stat_rx_hi_ber": 1,
                 "stat_rx_rsfec_hi_ser": 1, "stat_tx_local_fault": 1,
                 **{f"stat_{name}": width for name, width, _ in MAC_EVENTS}},
        constants={"gtwiz_reset_tx_datapath": (1, 0), "gtwiz_reset_rx_datapath": (1, 0),
                   "ctl_tx_rsfec_enable": (1, 1), "ctl_rx_rsfec_enable": (1, 1),
                   "ctl_rsfec_ieee_error_indication_mode": (1, 0), "ctl_rx_rsfec_enable_correction": (1, 1),
                   "ctl_rx_rsfec_enable_indication": (1, 1), "core_rx_reset": (1, 0), "core_tx_reset": (1, 0),
                   "core_drp_reset": (1, 0), "ctl_rx_enable": (1, 1), "ctl_rx_force_resync": (1, 0),
                   "ctl_rx_test_pattern": (1, 0), "ctl_tx_send_idle": (1, 0), "ctl_tx_send_lfi": (1, 0),
                   "ctl_tx_test_pattern": (1, 0), "tx_preamblein": (56, 0), "drp_clk": (1, 0), "drp_addr": (10, 0),
                   "drp_di": (16, 0), "drp_en": (1, 0), "drp_we": (1, 0)},
        clock="mac", asynchronous=frozenset((
            "gt_rxp_in", "gt_rxn_in", "gt_ref_clk_p", "gt_ref_clk_n", "init_clk", "sys_reset", "gt_loopback_in",
            "rx_clk", "gt_txp_out", "gt_txn_out", "gt_txusrclk2", "gt_powergoodout"))),
    "IBUFDS_GTE4": Block(inputs={"I": 1, "IB": 1}, outputs={"O": 1, "ODIV2": 1}, constants={"CEB": (1, 0)},
                         attributes={"REFCLK_HROW_CK_SEL": 0}),
    "IBUFDS": Block(inputs={"I": 1, "IB": 1}, outputs={"O": 1}),
    "IBUF": Block(inputs={"I": 1}, outputs={"O": 1}),
    "BUFG": Block(inputs={"I": 1}, outputs={"O": 1}),
}


def ila(probes):
    """Return the block of an ILA with a probe of each width."""
    return Block(inputs={"clk": 1, **{f"probe{k}": width for k, width in enumerate(probes)}}, outputs={})


def stub(name, block):
    """Return Verilog of an empty module with the ports of ``block``, for lint: a black box to Yosys."""
    def port(direction, port, width):
        return f"  {direction} {f'[{width - 1}:0] ' if width > 1 else ''}{port}"

    ports = [*(port("input", *item) for item in block.inputs.items()),
             *(port("input", item, width) for item, (width, _) in block.constants.items()),
             *(port("output", *item) for item in block.outputs.items())]
    parameters = ", ".join(f"parameter {key} = {value}" for key, value in block.attributes.items())
    return "\n".join(["(* blackbox *)", f"module {name}{f' #({parameters})' if parameters else ''} (",
                      ",\n".join(ports), ");", "endmodule", ""])
