"""Search of small channels: no state is bad, each rejected threshold leads to one, each planted fault is found."""

import itertools
import re

import pytest

from weft.driver.channel.capacities import Capacities
from weft.tb.test.driver.channel.faults import FAULTS
from weft.tb.test.driver.channel.states import Search, Violation
from weft.tb.test.driver.channel.sweep import capacities_up_to, thresholds_up_to, verdict

LARGEST, LARGEST_WITH_THRESHOLDS = 3, 2     # 4 in `python -m weft.tb.test.driver.channel states`


def sizes(capacities):
    """Return the test ID of a parameter."""
    return f"{capacities.max_send_data_wr}-{capacities.max_send_imm_wr}"


@pytest.mark.parametrize("capacities", capacities_up_to(LARGEST), ids=sizes)
def test_no_state_is_invalid(capacities):
    totals = Search(capacities).run()
    print(totals)
    assert totals.states > 400 and totals.acks > 1


@pytest.mark.parametrize(("data", "imm"), [(1, 1), (2, 1), (1, 2)])
def test_no_state_is_invalid_with_local_credits_counted(data, imm):
    totals = Search(Capacities(data, imm), exact=True).run()
    print(totals)
    assert totals.states > 4 * Search(Capacities(data, imm)).run().states


@pytest.mark.parametrize("capacities", capacities_up_to(LARGEST_WITH_THRESHOLDS), ids=sizes)
def test_only_thresholds_that_lead_to_invalid_states_are_rejected(capacities):
    found = [(thresholds, refused, verdict(thresholds)) for thresholds, refused in thresholds_up_to(capacities)]
    assert {refused for _, refused, _ in found} == {True, False}
    for thresholds, refused, bad in found:
        assert refused == (bad is not None), f"{thresholds}: {bad}"


@pytest.mark.parametrize(("data", "imm"), [(1, 4), (3, 2)])
def test_ends_may_differ_in_their_thresholds(data, imm):
    possible = [thresholds for thresholds, refused in thresholds_up_to(Capacities(data, imm)) if not refused]
    assert len(possible) > 1
    for one, other in itertools.combinations(possible, 2):
        print(one, other, Search(one, other=other).run())


def test_ends_with_one_acknowledgement_credit_may_not_differ():
    """The yielding end must know when the peer has received enough messages to acknowledge."""
    for thresholds in ((0, 1), (1, 0)):
        one, other = (Capacities(2, 1, data_threshold=threshold) for threshold in thresholds)
        with pytest.raises(Violation, match="deadlock"):
            Search(one, other=other).run()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f[0].__name__}{[*f[2].items()] or ''}")
def test_fault_is_found(fault):
    rules, capacities, options, subject = fault
    with pytest.raises(Violation) as caught:
        Search(capacities, rules=rules, **options).run()
    print(caught.value)
    message, *path = str(caught.value).splitlines()
    assert re.search(subject, message) and path
