"""Run of two RTL cards in which the ports of one card are recorded at every rising clock edge.

Host B reads registers and brings its card up; card A sends a write with an immediate, whose payload card A reads and
card B places; card B reports it and raises an interrupt.
"""

from functools import partial

import cocotb
from cocotb.triggers import RisingEdge

from weft.driver.application.file_transfer import Endpoint, post_receives, receive_file, send_file
from weft.hdl.contract.params import preset
from weft.model.link import LinkConfig
from weft.tb.sim.flow.bench import leave
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.settings import context_config
from weft.tb.sim.pair.two_cards import run_cards
from weft.tb.sim.pair.two_hosts import EnvConfig
from weft.tb.sim.pcie.host import HostConfig

PAYLOAD_BYTES = 200
SEED = 1
DELAY_NS, READ_NS = 200, 200
STREAMS = ("m_axis_tx", "s_axis_rx", "m_axis_rq", "s_axis_rc", "s_axis_cq", "m_axis_cc")
WORDS = ("rst", "cfg_function_status", "cfg_interrupt_msix_enable")


async def record(dut, side, found):
    """Append the values of a side's ports before each rising edge to ``found``, once for a series of equal ones.

    A record is ``[cycle, {name: bits}]``; of a stream, the beat if it is valid, and ``tready``.
    """
    names = {name: name if name == "rst" else f"{side}_{name}" for name in WORDS}
    readers = {name: getattr(dut, port)._handle.get_signal_val_binstr for name, port in names.items()}
    for stream in STREAMS:
        for member in ("tready", "beat"):
            readers[f"{stream}__{member}"] = getattr(dut, f"{side}_{stream}__{member}")._handle.get_signal_val_binstr
    rising, cycle, last = RisingEdge(dut.clk), 0, None
    while True:
        await rising
        values = {name: read() for name, read in readers.items()}
        for stream in STREAMS:
            if values[f"{stream}__beat"][0] != "1":
                values[f"{stream}__beat"] = ""
        if values != last:
            found.append((cycle, values))
            last = values
        cycle += 1


@cocotb.test()
async def ports(dut):
    found = {side: [] for side in "ab"}
    tasks = [cocotb.start_soon(record(dut, side, records)) for side, records in found.items()]
    link = LinkConfig(delay_ns=DELAY_NS)
    config = EnvConfig(link, link, host=HostConfig(read_latency_ns=READ_NS))
    pair = RtlPair(dut, config, context_config(1, ring_log2=4), seed=SEED)
    await pair.start()
    ends = {side: await pair.call(Endpoint, pair.contexts[side], PAYLOAD_BYTES) for side in "ab"}
    await pair.connect(ends)
    await pair.call(post_receives, ends["b"])
    await pair.gather(partial(send_file, ends["a"], ends["b"].offer), partial(receive_file, ends["b"]))
    for task in tasks:
        task.cancel()
    leave(found)


def recorded():
    """Run the bench; return ``{side: records}``, see :func:`record`."""
    return run_cards(preset("test"), __file__, seed=SEED)
