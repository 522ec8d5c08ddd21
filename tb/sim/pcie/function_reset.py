"""A host that resets the card's function in the midst of everything."""

from cocotb.triggers import RisingEdge
from cocotbext.pcie.core.tlp import CplStatus, Tlp
from cocotbext.pcie.core.utils import PcieId
from cocotbext.pcie.xilinx.us import usp_model
from cocotbext.pcie.xilinx.us.tlp import ErrorCode

from weft.hdl.contract import abi

ENTRY_DWORDS = 4
PATIENCE_CYCLES = 50_000


async def msix_table(host):
    """What the MSI-X table holds: pairs of offset and dword."""
    places = [abi.MSIX_TABLE_OFFSET + 4 * k for k in range(ENTRY_DWORDS * len(host.function.msi_vectors))]
    return [(place, await host.bar.read_dword(place)) for place in places]


async def reset_function(host, table=None):
    """Function-level reset, as the hard block and the host's kernel see it through.

    The hard block ends what the function had asked for, and lets nothing of it out; the card says when it is reset.
    Then the host gives it back what it had: bus mastering and the MSI-X table.

    Parameters
    ----------
    table : list, optional
        What :func:`msix_table` said. Otherwise it is read first, which takes time: what was in flight may be over then.

    Returns
    -------
    int
        Reads that were cut off.
    """
    host.strict = False              # what the memory still answers belongs to no request
    block = host.device
    function, clk = block.functions[0], RisingEdge(block.user_clk)
    table = table or await msix_table(host)
    function.bus_master_enable = False
    block.configured()
    block.cfg_flr_in_process.value = 1
    cut_off = [request for request in block.active_request if request is not None]
    for request in cut_off:
        block.active_request[request.tag] = None
        end = usp_model.Tlp_us(Tlp.create_completion_for_tlp(request, PcieId(0, 0, 0), status=CplStatus.SC))
        end.error_code, end.request_completed = ErrorCode.FLR, True
        block.rc_queue.put_nowait(end)
    for _ in range(PATIENCE_CYCLES):
        await clk
        if int(block.cfg_flr_done.value) & 1:
            break
    else:
        raise AssertionError("the card does not say that its function is reset")
    block.cfg_flr_in_process.value = 0
    function.bus_master_enable = True
    block.configured()
    for place, word in table:
        await host.bar.write_dword(place, word)
    return len(cut_off)
