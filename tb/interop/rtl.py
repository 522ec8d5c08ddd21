"""The RTL card at the guest's wire.

Two clocks meet there. The guest's runs as time does, the simulation's some ten thousand times slower. No frame is lost
between them: each waits for the other in memory without a bound. What remains are time-outs. The simulated side counts
its own by its own clock, and to that the guest answers within microseconds. Those of the guest's queue pairs are set to
2^21 * 4.096 µs = 8.6 s: the simulation needs less for a whole message.
"""

from pathlib import Path

from weft.hdl.params import preset
from weft.tb.flow.simulate import simulate
from weft.tb.world.two_cards import TOP, two_cards_text

GUEST_TIMEOUT = 21
NUMBERS = "WEFT_GUEST"      # TCP ports of the guest, for the process of the simulator


def over_rtl(guest):
    """The endpoint over the card's Simple NIC, and WRITEs by its hardware path: small numbers of both."""
    guest.release()
    try:
        simulate(verilog=two_cards_text(preset("test")), top=TOP, name="two-cards-test", sim="verilator",
                 optimize="run", cases=Path(__file__).with_name("rtl_cases.py"),
                 env={NUMBERS: " ".join(map(str, guest.numbers))})
    finally:
        guest.take()
    return "every operation, then WRITEs by hardware; no frame was dropped"
