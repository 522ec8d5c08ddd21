"""Random operations of all kinds over functional cards that lose, reorder and repeat frames."""

import os

import pytest

from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.test.driver.operation.traffic import KINDS, WrongTraffic, functional_traffic

SEED, COUNT = drawn_seed(__name__), int(os.environ.get("WEFT_OPERATIONS") or 700)
AGAIN = f"WEFT_SEED={SEED} WEFT_OPERATIONS={COUNT} python -m pytest tb/test/driver/operation/test_operations.py"


def test_random_operations():
    print(AGAIN)
    traffic, links = functional_traffic(SEED)
    counts = traffic.run(COUNT)
    traffic.close()
    for subject in (*(kind.name for kind in KINDS), "inline", "received"):
        assert counts[subject] > 20, counts
    assert counts["completed"] >= COUNT
    for link in links:
        assert min(c.total() for c in (link.counters.lost, link.counters.reordered, link.counters.duplicated)) > 20


def test_random_operations_of_a_few_bytes():
    print(AGAIN)
    traffic, _ = functional_traffic(SEED + 1, qps=8, longest=600, arena=1 << 19)
    counts = traffic.run(1_000)
    traffic.close()
    assert counts["swapped"] > 5 and counts["inline"] > 50, counts


@pytest.mark.parametrize("fault", ["byte", "order", "twice", "atomic"])
def test_faults_are_detected(fault, monkeypatch):
    """The traffic above detects faults of memory, completions and atomics."""
    traffic, _ = functional_traffic(SEED + 2, qps=4, longest=2_000, arena=1 << 19)
    cq, place = traffic.ends[0].cq, traffic.contexts[1].device.card.receive_path._place
    push, held, count = cq.push, [], iter(range(1 << 30))

    def other_byte(segments, payload, judged):
        place(segments, bytes([payload[0] ^ 1]) + payload[1:] if len(payload) > 300 else payload, judged)

    def other_order(wc, solicited=False):
        if wc.opcode < 128 and next(count) == 20:
            held.append(wc)
            return
        push(wc, solicited)
        while held and wc.opcode < 128 and wc.qp_num == held[0].qp_num:
            push(held.pop())

    def once_more(wc, solicited=False):
        push(wc, solicited)
        if next(count) == 20:
            push(wc)

    monkeypatch.setattr(cq, "push_all", lambda wcs: [cq.push(wc) for wc in wcs])
    if fault == "byte":
        monkeypatch.setattr(traffic.contexts[1].device.card.receive_path, "_place", other_byte)
    elif fault == "order":
        monkeypatch.setattr(cq, "push", other_order)
    elif fault == "twice":
        monkeypatch.setattr(cq, "push", once_more)
    else:
        mr = traffic.ends[1].mr
        write = mr.write

        def twice(data, length=None, offset=0):
            if offset >= traffic.ends[1].word(0) and length == 8:
                value = int.from_bytes(data, "little")
                data = (value + 1 if next(count) == 5 else value).to_bytes(9, "little")[:8]
            write(data, length, offset)

        monkeypatch.setattr(mr, "write", twice)
    with pytest.raises(WrongTraffic):
        traffic.run(400)
