"""The main job with a card that loses one thing: the first write of payload never reaches the memory of host B.

Everything else that the card says and does stays as it is: it counts the packet and acknowledges it.
"""

from weft.tb.app.job.job_cases import main_job  # noqa: F401, which is what cocotb finds here and runs
from weft.tb.sim.pcie.host import Host

PAYLOAD_BYTES = 256     # the PMTU of the run; what else a card writes is shorter
_write, _lost = Host.handle_mem_write_tlp, []


async def _lose_one(host, tlp):
    if not _lost and tlp.get_payload_size_dw() * 4 >= PAYLOAD_BYTES:
        _lost.append(tlp.address)
        return
    await _write(host, tlp)


Host.handle_mem_write_tlp = _lose_one
