"""Tests of the design document's formulas against counts, and of its drawings against known blocks."""

from math import ceil

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from weft.hdl.adamap.prefetch.fetches import LINES
from weft.hdl.contract import wire
from weft.tb.verify.document import sizing
from weft.tb.verify.document.mermaid import arrows, diagram, transitions, without_detours
from weft.tb.verify.document.subsystems import edges


def waits(node_ns, depth, watermark, read_ns, *, nodes=200):
    """Return how long a busy matcher waits for nodes of a list, in ns, with one outstanding read."""
    cached, used_up, waited, coming, arrives = depth, 0, 0, 0, None
    left, filling = node_ns, False
    while used_up < nodes:
        if arrives is None and (cached < watermark or filling):
            coming = min(LINES, depth - cached)
            arrives = read_ns + (sizing.LOOK_CYCLES + 5 * (coming - 1)) * sizing.CLOCK_PERIOD_NS if coming else None
            filling = False
        step = min(left if cached else float("inf"), float("inf") if arrives is None else arrives)
        if cached:
            left -= step
        else:
            waited += step
        if arrives is not None:
            arrives -= step
            if arrives <= 0:
                cached, arrives, filling = cached + coming, None, True
        if cached and left <= 0:
            cached, left, used_up = cached - 1, node_ns, used_up + 1
    return waited


@pytest.mark.parametrize("node_ns", [335, 400, 573, 800, 916, 1041, 1800, 5000, 20_000])
@pytest.mark.parametrize("read_ns", [500, 1000, 2000])
def test_prefetch_depth_hides_reads_and_is_not_generous(node_ns, read_ns):
    found = sizing.prefetch(node_ns, read_ns)
    if found is None:
        assert waits(node_ns, 16, 16, read_ns) > 0, "16 nodes would do"
        return
    depth, watermark, _ = found
    assert waits(node_ns, depth, watermark, read_ns) == 0
    fewer = max(1, depth - 2)
    assert waits(node_ns, fewer, fewer, read_ns) > 0, f"{fewer} would do"


def test_both_results_of_the_prefetch_formula_are_tried():
    assert sizing.prefetch(335, 2000) is None and sizing.prefetch(5000, 500) == (2, 2, 1)


def test_wire_time_is_that_of_the_rates_in_the_readme():
    assert 4096 * 8 / sizing.packet_ns(4096) == pytest.approx(97.66, abs=0.005)
    assert 1024 * 8 / sizing.packet_ns(1024) == pytest.approx(91.27, abs=0.005)


def test_holes_per_node_follow_the_encoding():
    assert sizing.holes_per_node(1e-9) == pytest.approx(1, abs=1e-3)
    assert sizing.holes_per_node(1e-2) == 20
    assert sizing.holes_per_node(1.0) == 320
    assert sizing.holes_per_node(1e-2, 1024, 10 * sizing.packet_ns(1024)) == pytest.approx(1.1)


def test_pool_lets_every_qp_hold_its_blocks():
    for qps, blocks, alpha in ((1, 1000, 8), (16, 100, 8), (100, 7, 0.5)):
        size = sizing.pool_size(blocks, qps, alpha)
        held = [0] * qps
        for _ in range(blocks):
            for qp in range(qps):   # as KnittingBuffer.may_take: less than alpha times the free blocks
                held[qp] += held[qp] < alpha * (size - sum(held))
        assert min(held) >= blocks - 1
        assert size <= qps * blocks * (1 + 1 / alpha) + 1


def test_one_qp_fills_a_longer_round_trip_with_larger_packets():
    rtts = [sizing.longest_rtt_ns(pmtu) for pmtu in wire.PMTUS.values()]
    assert rtts == sorted(rtts) and rtts[0] > 100_000_000


def test_bytes_have_a_unit():
    assert [sizing.bytes_of(n) for n in (64, 7296, 1 << 20, ceil(2.3 * 2**20), (1 << 30) - 5)] == [
        "64 bytes", "7.1 KiB", "1 MiB", "2.3 MiB", "1 GiB"]


class Doubler(wiring.Component):
    """Takes a number, outputs twice its value, and pauses."""

    def __init__(self):
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(9))})

    def elaborate(self, platform):
        m = Module()
        again = Signal()
        with m.FSM():
            with m.State("TAKE"):  # waits for a number
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += self.o.payload.eq(self.i.payload << 1)
                with m.If(self.i.valid):
                    m.next = "SHOW"
            with m.State("SHOW"):
                # waits until it is taken
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.sync += again.eq(~again)
                    with m.If(again):
                        m.next = "REST"
                    with m.Else():
                        m.next = "TAKE"
            with m.State("REST"):
                m.next = "TAKE"
        return m


class TwoDoublers(wiring.Component):
    """Two doublers in series."""

    def __init__(self):
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(9))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.first, m.submodules.second = first, second = Doubler(), Doubler()
        connect(m, flipped(self.i), first.i)
        m.d.comb += [second.i.payload.eq(first.o.p[:8]), second.i.valid.eq(first.o.valid),
                     first.o.ready.eq(second.i.ready)]
        connect(m, second.o, flipped(self.o))
        return m


def test_state_machine_is_drawn_as_coded():
    assert set(transitions(Doubler())) == {("TAKE", "SHOW"), ("SHOW", "REST"), ("SHOW", "TAKE"), ("REST", "TAKE")}
    text = diagram(Doubler())
    assert "[*] --> TAKE" in text
    assert "| `TAKE` | waits for a number |" in text and "| `SHOW` | waits until it is taken |" in text


def test_subsystem_is_drawn_as_wired():
    blocks, streams, interfaces = edges(TwoDoublers(), {"i": ("source", "number"), "o": ("sink", None)})
    assert blocks == ["first", "second"]
    assert streams == {("source", "first"): {"number"}, ("first", "second"): {"o"}, ("second", "sink"): {"o"}}
    assert interfaces == {}


def test_imports_are_followed_in_every_form(tmp_path):
    texts = {"a": "from ..b import thing\n", "b": "import weft.driver.c.thing\n", "c": "from weft.driver import d\n",
             "d": "from .thing import x\nfrom weft.hdl import abi\nimport a\n"}
    for name, text in texts.items():
        (tmp_path / "driver" / name).mkdir(parents=True)
        (tmp_path / "driver" / name / "__init__.py").touch()
        (tmp_path / "driver" / name / "thing.py").write_text(text)
    assert arrows("driver", tmp_path) == {("a", "b"), ("b", "c"), ("c", "d")}


def test_transitive_imports_are_left_out():
    assert without_detours({("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("a", "d")}) == {
        ("a", "b"), ("b", "c"), ("c", "d")}
