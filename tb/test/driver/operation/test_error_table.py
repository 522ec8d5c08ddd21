"""Error statuses of completions, provoked over two functional cards.

:mod:`~weft.tb.test.driver.operation.error_table` lists them.
"""

import pytest

from weft.driver.terms.enums import WCStatus, WROpcode
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.sim.pair.operation_pair import OperationPair
from weft.tb.test.driver.operation import error_table
from weft.tb.test.driver.operation.error_table import ABSENT, ADD, READ, TABLE, WRITE, check, failed_card, wrong_rkey

FAST = {"timeout": 4, "retry_cnt": 1, "rnr_retry": 1, "min_rnr_timer": 1}


@pytest.mark.parametrize(("sender", "receiver", "provoke"), TABLE, ids=[how.__name__ for *_, how in TABLE])
def test_every_error_of_the_table_occurs(sender, receiver, provoke):
    """No resource leaks."""
    pair = OperationPair(pair=make_pair(preset="test"), **FAST)
    check(pair, sender, receiver, provoke)
    pair.pair.links[1].drop = None
    if provoke is not failed_card:
        pair.close()


@pytest.mark.parametrize("opcode", [WRITE, WROpcode.RDMA_WRITE_WITH_IMM, READ, ADD, WROpcode.ATOMIC_CMP_AND_SWP])
def test_every_operation_with_a_wrong_key_is_rejected(opcode):
    pair = OperationPair(**FAST)
    pair.hosts[1].recv()
    wrong_rkey(pair, opcode)
    assert pair.statuses(0, 1) == [WCStatus.REM_ACCESS_ERR]


def test_the_table_is_complete():
    provoked = {status.name for *both, _ in TABLE for status in both if status is not None}
    assert provoked | ABSENT == set(WCStatus.__members__) and not provoked & ABSENT
    for name in provoked | ABSENT - {"SUCCESS"}:
        assert f"``{name}``" in error_table.__doc__
