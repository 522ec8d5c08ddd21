"""Outages that a host causes to a working card: function-level reset, loss of bus mastering, hot reset, removal."""

from cocotb.triggers import RisingEdge, Timer
from cocotbext.pcie.xilinx.us.tlp import ErrorCode

from weft.hdl.contract import abi
from weft.tb.sim.pcie.hard_block import cut_off

ENTRY_DWORDS = 4
TIMEOUT_CYCLES, AFTER_EDGE_PS = 50_000, 500


async def msix_table(host):
    """Return the contents of the MSI-X table: pairs of offset and dword."""
    places = [abi.MSIX_TABLE_OFFSET + 4 * k for k in range(ENTRY_DWORDS * len(host.function.msi_vectors))]
    return [(place, await host.bar.read_dword(place)) for place in places]


async def reset_function(host, table=None):
    """Perform a function-level reset, with the parts of the hard block and of the host's kernel.

    The hard block ends the function's outstanding reads with an error and sends none of its requests; the card signals
    the end of its reset. Then the host restores bus mastering and the MSI-X table.

    ``table`` is a result of :func:`msix_table`. By default it is read first, which takes time in which outstanding
    requests may complete. Return the number of aborted reads.
    """
    table = table or await msix_table(host)
    aborted = await begin_again(host)
    await _restore(host, table)
    return aborted


async def begin_again(host):
    """Perform the hard block's part of a function-level reset; return the number of aborted reads."""
    host.strict = False              # late completions from memory belong to no request
    block = host.device
    _may_be_master(block, False)
    block.cfg_flr_in_process.value = 1
    requests = [request for request in block.active_request if request is not None]
    for request in requests:
        block.rc_queue.put_nowait(cut_off(block, request, ErrorCode.FLR))
    for _ in range(TIMEOUT_CYCLES):
        await RisingEdge(block.user_clk)
        if int(block.cfg_flr_done.value) & 1:
            break
    else:
        raise AssertionError("the card does not report the reset of its function")
    block.cfg_flr_in_process.value = 0
    return len(requests)


async def clear_bus_master(env, side):
    """Disable bus mastering of a side's card; outstanding reads still get their completions."""
    env.host(side).strict = False        # the hard block's contents are dropped with a warning
    _may_be_master(env.host(side).device, False)


async def set_bus_master(env, side):
    """Enable bus mastering of a side's card."""
    _may_be_master(env.host(side).device, True)


async def pull_out(env, side):
    """Remove a side's card: no packet crosses the link any more in either direction."""
    env.host(side).strict = False        # packets in flight have no receiver
    env.host(side).unplugged.set()


async def hot_reset(env, side, down_ns):
    """Take the slot's link down for ``down_ns`` and reset the whole card; then restore bus mastering and MSI-X table.

    The models around the card cannot be reset inside a packet, so the reset comes between packets.
    """
    end = env.sides[side]
    host, block, reset = end.host, end.hard_block, getattr(env.dut, f"{side}_rst")
    clk = RisingEdge(env.clock(side))
    table = await msix_table(host)
    await pull_out(env, side)
    for _ in range(TIMEOUT_CYCLES):
        await clk
        await Timer(AFTER_EDGE_PS, "ps")     # the card samples the reset at the next edge, together with current beats
        if not _inside_a_packet(end):
            break
    else:
        raise AssertionError("the card never comes to the end of a packet")
    reset.value = 1
    _may_be_master(block, False)
    block.active_request[:] = [None] * len(block.active_request)
    await Timer(down_ns, "ns")
    reset.value = 0
    await clk
    host.unplugged.clear()
    await _restore(host, table)


def _may_be_master(block, allowed):
    block.functions[0].bus_master_enable = allowed
    block.configured()


async def _restore(host, table):
    _may_be_master(host.device, True)
    for place, word in table:
        await host.bar.write_dword(place, word)


def _inside_a_packet(end):
    """Return whether a packet is on one of the card's streams, or is about to be."""
    block, mac = end.hard_block, end.mac_tx
    return any(int(sink.bus.tvalid.value) for sink in (block.rq_sink, block.cc_sink, mac)) or bool(
        block.rq_sink._content or block.cc_sink._content or not block.rc_source.idle() or block.rc_source._valid
        or not block.cq_source.idle() or block.cq_source._valid or not block.rc_queue.empty()
        or not block.cq_queue.empty() or not block.rq_seq_num.empty() or not mac.idle() or mac._finished
        or end.mac_rx.waiting)
