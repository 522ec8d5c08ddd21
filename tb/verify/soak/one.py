"""One run in the simulator."""

import json
import time

from weft.tb.sim.flow.simulate import simulate
from weft.tb.sim.pair.two_cards import TOP, two_cards_text
from weft.tb.verify.soak import run_cases
from weft.tb.verify.soak.plan import CARDS, CYCLES, draw

TIMEOUT_S = 3600


def run(seed, cycles=CYCLES, hazards=None):
    """The run of a seed, with ``hazards`` instead of its own if they are given.

    Returns
    -------
    dict
        ``seed``, ``cycles``, ``met``, ``hazards``, ``completed``, ``seconds``; or ``seed`` and ``failed``, why.
    """
    card, began = draw(seed, cycles).card, time.monotonic()
    environment = {"WEFT_SOAK_CYCLES": str(cycles)} | ({"WEFT_SOAK_HAZARDS": ",".join(hazards)} if hazards else {})
    try:
        folder = simulate(verilog=two_cards_text(CARDS[card]), top=TOP, name=f"two-cards-{card}", sim="verilator",
                          optimize="run", cases=run_cases.__file__, seed=seed, timeout_s=TIMEOUT_S,
                          env=environment)
    except AssertionError as error:
        return {"seed": seed, "failed": str(error)}
    return {**json.loads((folder / "soak.json").read_text()), "seconds": time.monotonic() - began}
