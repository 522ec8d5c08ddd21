"""The RTL card at the guest's wire.

Two clocks meet there. The guest's runs as time does, the simulation's some ten thousand times slower. No frame is lost
between them: each waits for the other in memory without a bound. What remains are time-outs. The simulated side counts
its own by its own clock, and to that the guest answers within microseconds. Those of the guest's queue pairs are set to
2^21 * 4.096 µs = 8.6 s: the simulation needs less for a whole message.
"""

import json
import tempfile
from pathlib import Path

from weft.hdl.contract.params import preset
from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.pair.two_cards import TOP, two_cards_text

GUEST_TIMEOUT = 21
VARIABLE = "WEFT_GUEST"     # for the process of the simulator: TCP ports of the guest, and where the sentence goes


def endpoint(guest):
    """The endpoint in software at the Simple NIC, packets of 4096 bytes."""
    return _run(guest, "endpoint")


def card(guest):
    """WRITEs of the card's hardware path."""
    return _run(guest, "card")


def _run(guest, case):
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        told = Path(folder, "told")
        guest.release()
        try:
            simulate(verilog=two_cards_text(preset("test")), top=TOP, name="two-cards-test", sim="verilator",
                     optimize="run", cases=Path(__file__).with_name("rtl_cases.py"), tests=f"{case}$",
                     env={VARIABLE: json.dumps({"numbers": guest.numbers, "told": str(told)})})
        finally:
            guest.take()
        return told.read_text()
