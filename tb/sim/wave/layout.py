"""Groups of the GTKWave save file, and the order of the signals in them.

A group is ``(title, lines)``, a line ``"instance: item item ..."`` with the instance's path inside a card (``.``: the
card itself; ``*`` matches any part of the path). An item is one of

- ``signal``, or a pattern with ``*``, which may match no signal
- ``stream{field field}``: ``valid``, ``ready`` and these fields of its payload
- either with ``<LAYOUT.field>``: this field of a 512-bit entry, as laid out in :mod:`weft.hdl.contract.abi`
- any of them with ``:Enum``: its values are shown as names of that enum
- and with ``=label``: shown under this label instead of the signal's name
"""

OVERVIEW = (
    ("card A sends", "a", (
        "rings.send: prod cons",
        "rings.retransmit: prod cons",
        "transmit.header: i{packet.opcode:Opcode packet.psn packet.rsn}",
        "mac_tx: m_axis__tvalid",
    )),
    ("card B receives", "b", (
        "receive.check: o{header.kind header.opcode:Opcode header.psn header.rsn reason:Reason}",
        "receive.window_check: drop__stb drop__reason:Reason",
    )),
    ("card B window", "b", (
        "adamap.window: fsm_state o{verdict psn base holes} o_run{psn length seal}",
    )),
    ("card B builder", "b", (
        "adamap.builder: fsm_state o{entry<REPORT_NODE.kind> entry<NODE.count> entry<NODE.encoding>}",
    )),
    ("card B matcher", "b", (
        "adamap.*matcher: i{probe psn rsn} *_state drop__stb drop__reason:Reason",
        "adamap.*cache: match__hit match__index match__head_index",
        "adamap.*matcher: o_report{entry<REPORT_RETIRE.kind> entry<REPORT_RETIRE.rsn> entry<REPORT_RETIRE.residue>}",
    )),
    ("card B prefetch", "b", (
        "adamap.*ahead_table: took took_qpn took_nodes",
        "adamap.*prefetch: fsm_state row_index=qpn ahead cache__cached=cached o_line{line count}",
        "adamap.*prefetch.row: o.block=block",
        "adamap.*cache: fill__fill_en fill__fill_index fill__free_count",
    )),
    ("card B rings", "b", (
        "rings.meta_report: prod cons",
        "csr: adamap__link_doorbell_stb adamap__cum_doorbell_stb",
    )),
)

CARD = (
    ("link", (
        "mac_tx: m_axis__tvalid m_axis__tready m_axis__tlast m_axis__tkeep m_axis__tdata",
        "mac_rx: s_axis__tvalid s_axis__tlast s_axis__tuser s_axis__tkeep s_axis__tdata",
    )),
    ("rings", (
        "rings.send: fsm_state prod cons o{<WORK.opcode> <WORK.psn> <WORK.length>}",
        "rings.retransmit: fsm_state prod cons o{<WORK.opcode> <WORK.psn> <WORK.rsn> <WORK.length>}",
        "rings.command: fsm_state prod cons",
        "rings.nic_tx: fsm_state prod cons o{<NIC_TX.address> <NIC_TX.length>}",
        "rings.response: prod cons full armed",
        "rings.meta_report: prod cons full armed",
        "rings.nic_rx: prod cons full armed i{<NIC_RX.roce> <NIC_RX.length>}",
        "rings.status: o_request{address}",
    )),
    ("doorbells", (
        "csr: *_prod_stb *_cons_stb",
        "csr: adamap__link_doorbell_stb adamap__link_doorbell<LINK_DOORBELL.qpn> "
        "adamap__link_doorbell<LINK_DOORBELL.nodes>",
        "csr: adamap__cum_doorbell_stb adamap__cum_doorbell<CUM_DOORBELL.qpn> adamap__cum_doorbell<CUM_DOORBELL.psn>",
    )),
    ("command", (
        "command: fsm_state command<COMMAND.opcode> command<COMMAND.tag> status:CommandStatus done retire",
        "command: drain_request drain_done qp_control__destroyed",
        "command.qp: fsm_state",
        "command.qp.port: fsm_state",
        "command: qp_write__en qp_write__index qp_write__entry.state:QpState",
    )),
    ("transmit", (
        "transmit.header: i{packet.opcode:Opcode packet.dqpn packet.psn packet.rsn packet.length packet.ack_req "
        "packet.ring reason:Reason}",
        "transmit.payload: i{last empty error data}",
        "transmit.frame: o{last empty error data}",
        "transmit: retire_send retire_retransmit drop__stb drop__reason:Reason",
    )),
    ("receive", (
        "receive.parse: o_header{kind reason:Reason opcode:Opcode dest_qp psn rsn retransmission ack_req length}",
        "receive.parse: drop__stb drop__reason:Reason",
        "receive.check: o{header.kind header.opcode:Opcode header.psn header.rsn reason:Reason segment0.address "
        "segment0.length}",
        "receive.window_check: o_check{qpn psn rsn retransmission probe ack_req ticket} i_verdict{verdict psn base}",
        "receive.window_check: drop__stb drop__reason:Reason",
        "receive.place: i{action ticket length} o_request{address length} placed_ticket",
    )),
    ("window", (
        "adamap.window: fsm_state i{qpn generation psn rsn retransmission probe ack_req ticket} match_space unmatched",
        "adamap.window: o{verdict psn base holes progress} result.bitmap",
        "adamap.window: o_run{qpn psn length seal ticket} o_match{qpn psn rsn probe} count_window_stall_cycles",
    )),
    ("builder", (
        "adamap.builder: fsm_state i{qpn psn length seal}",
        "adamap.builder: draft.base draft.counts.count draft.counts.end draft.counts.runs encoding:Encoding",
        "adamap.builder: o{entry<REPORT_NODE.kind> entry<NODE.qpn> entry<NODE.count> entry<NODE.encoding> "
        "entry<NODE.base_psn> entry<NODE.body>}",
    )),
    ("matcher", (
        "adamap.*matcher: i{qpn psn rsn probe ticket} space unmatched *_state idle",
        "adamap.*cache: match__qpn match__rsn match__hit match__index match__next match__mark_en match__mark_index",
        "adamap.*matcher: drop__stb drop__reason:Reason",
        "adamap.*matcher: count_cache_hits count_cache_misses count_match_stall_cycles count_nodes_retired "
        "count_nodes_residue",
        "adamap.*matcher: o_demand{} i_force{qpn}",
        "adamap.*matcher: o_report{entry<REPORT_RETIRE.kind> entry<REPORT_RETIRE.qpn> entry<REPORT_RETIRE.line> "
        "entry<REPORT_RETIRE.rsn> entry<REPORT_RETIRE.residue> entry<REPORT_RETIRE.open>}",
    )),
    ("head cache", (
        "adamap.*cache: fill__free_count fill__reserve_en fill__fill_en fill__fill_index fill__fill_node.qpn "
        "fill__fill_node.rsn fill__fill_node.count fill__fill_node.encoding:Encoding fill__release_en match__flush_en",
        "adamap.*cache: tag*.valid tag*.qpn tag*.rsn tag*.count",
    )),
    ("prefetch", (
        "adamap.*prefetch: fsm_state row_index=qpn ahead cache__cached=cached",
        "adamap.*prefetch.row: o.live=live o.generation=generation o.block=block",
        "adamap.*prefetch.fill: fsm_state part no_entry",
        "adamap.*prefetch.evict: fsm_state requester exclusive",
        "adamap.*prefetch: o_line{line count tag} i_line{tag error}",
        "adamap.*fetches: valid whole fetch*.qpn fetch*.block fetch*.lines",
        "adamap.*prefetch.broken: fsm_state reason:Reason o_qp_error{}",
        "adamap.*ahead_table: took took_qpn took_nodes",
        "adamap.*control: fsm_state op.kind op.qpn destroyed",
    )),
    ("reports", (
        "reporter: placed_ticket space",
        "reporter.out: i{<REPORT_EVENT.kind> <REPORT_EVENT.qpn> <REPORT_EVENT.reason> <REPORT_EVENT.psn>}",
    )),
    ("DMA", (
        "endpoint.dma_read.bulk0: i{address length last} o_read{address dwords tag} used busy",
        "endpoint.dma_read.bulk1: i{address length last} o_read{address dwords tag} used busy",
        "endpoint.dma_read.line: o_read{address dwords tag} in_flight busy",
        "endpoint.dma_read: completion_valid completion.tag completion.done completion.error",
        "endpoint.dma_read.credit: used0 used1 used2",
        "endpoint.dma_write.arbiter: source o{address length last}",
        "endpoint.msix: i{} pending",
    )),
    ("PCIe", tuple(
        f"endpoint: {stream}__tvalid {stream}__tready {stream}__tlast {stream}__tuser {stream}__tdata"
        for stream in ("m_axis_rq", "s_axis_rc", "s_axis_cq", "m_axis_cc"))),
)
