"""The main job with a planted fault: the first write of payload never reaches the memory of host B.

The card's reports and actions are unchanged: it counts the packet and acknowledges it.
"""

from weft.tb.app.job.job_cases import main_job  # noqa: F401 (cocotb runs it from here)
from weft.tb.sim.pcie.host import Host

PAYLOAD_BYTES = 256     # the PMTU of the run; other writes of a card are shorter
_write, _lost = Host.handle_mem_write_tlp, []


async def _lose_one(host, tlp):
    if not _lost and tlp.get_payload_size_dw() * 4 >= PAYLOAD_BYTES:
        _lost.append(tlp.address)
        return
    await _write(host, tlp)


Host.handle_mem_write_tlp = _lose_one
