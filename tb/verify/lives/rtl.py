"""Lives of Adamap nodes in the RTL, by number: starts the simulator with :mod:`~weft.tb.verify.lives.rtl_cases`."""

import json

from weft.hdl.adamap.adamap import Adamap
from weft.tb.sim.block.adamap.with_qp_table import WithQpTable
from weft.tb.sim.flow.simulate import simulate
from weft.tb.verify.lives import rtl_cases
from weft.tb.verify.lives.rtl_cases import PARAMS


def live_in_rtl(count, *, seed=None, **environment):
    """The sums of :class:`~weft.tb.verify.lives.rtl_cases.RoomLives` when ``count`` nodes have lived."""
    run = simulate(WithQpTable(Adamap(PARAMS)), name="room_lives", cases=rtl_cases.__file__, sim="verilator",
                   seed=seed, env={"WEFT_LIVES": str(count), **environment})
    return json.loads((run / "lives.json").read_text())
