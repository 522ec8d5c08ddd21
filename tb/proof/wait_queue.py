"""What is proven of the queue of waiting headers: none is lost or doubled, and the oldest that may be tried is."""

from amaranth.hdl import Array, Cat, Mux, Signal
from amaranth.lib import data

from weft.hdl.adamap.wait_queue import WaitQueue
from weft.hdl.params import preset
from weft.tb.proof.broken import Broken
from weft.tb.proof.specification import Spec

PLACES, NUMBER_BITS = 4, 5


class WaitQueueSpec(Spec):
    """Headers of two QPs, with numbers; a matcher that does what the ports allow, at any time.

    What lies where is kept beside the queue, place by place; the place of a new header is read inside it.
    """

    name = "wait_queue"
    block = WaitQueue

    def specify(self, m):
        m.submodules.dut = dut = self.block(preset("test").with_(qps=2, match_queue=PLACES))
        self.free_members(dut, "insert_item", "wake_qpn", "ask_qpn", "waiting_qpn", "count_qpn")
        header = data.StructLayout({"valid": 1, "qpn": 1, "awake": 1, "busy": 1, "number": NUMBER_BITS})
        places = Array(Signal(header, name=f"place{k}") for k in range(PLACES))
        number, new = Signal(NUMBER_BITS), Signal(1)
        where = self.inside("dut.free_place", range(PLACES))
        wakes, asks, waits, counted = (self.free(1, name) for name in ("wakes", "asks", "waits", "counted"))
        m.d.comb += [new.eq(self.free(1, "qpn")), dut.insert_item.qpn.eq(new), dut.insert_item.rsn.eq(number),
                     dut.wake_qpn.eq(wakes), dut.ask_qpn.eq(asks), dut.waiting_qpn[0].eq(waits),
                     dut.count_qpn.eq(counted)]
        m.d.sync += number.eq(number + dut.insert_en)
        self.assume(dut.insert_en + dut.remove_en + dut.put_back_en <= 1)
        self.assume(~dut.insert_en | ~Cat(p.valid for p in places).all())
        self.assume(~(dut.remove_en | dut.put_back_en) | (places[dut.place].valid & places[dut.place].busy))
        self.assume(~dut.ask_queued | places[dut.ask_place].valid)
        self.assume(~dut.pick_en | dut.offered)

        def older(a, b):
            return (a.number - b.number)[NUMBER_BITS - 1]

        may = [p.valid & p.awake & ~p.busy for p in places]
        mates = [p.valid & (p.qpn == new) for p in places]
        best, slept = Signal(range(PLACES)), places[dut.place].qpn
        for k, p in enumerate(places):
            first = Cat(~may[j] | (j == k) | older(p, q) for j, q in enumerate(places)).all()
            with m.If(may[k] & first):
                m.d.comb += best.eq(k)
            with m.If(dut.insert_en & (where == k)):
                m.d.sync += [p.valid.eq(1), p.qpn.eq(new), p.busy.eq(0), p.number.eq(number), p.awake.eq(
                    Mux(Cat(mates).any(), Cat(e & q.awake for e, q in zip(mates, places, strict=True)).any(),
                        dut.insert_awake) | (dut.wake_stb & (wakes == new)))]
            with m.Elif(dut.remove_en & (dut.place == k)):
                m.d.sync += p.valid.eq(0)
            with m.Else():
                with m.If(dut.put_back_en & dut.sleep & (p.qpn == slept)):
                    m.d.sync += p.awake.eq(0)
                with m.If(dut.wake_stb & (p.qpn == wakes)):
                    m.d.sync += p.awake.eq(1)
                with m.If(dut.put_back_en & (dut.place == k)):
                    m.d.sync += p.busy.eq(0)
                with m.If(dut.pick_en & (best == k)):
                    m.d.sync += p.busy.eq(1)
        picked, expected, its = Signal(), Signal(range(PLACES)), Signal(NUMBER_BITS)
        m.d.sync += [picked.eq(dut.pick_en), expected.eq(best), its.eq(places[best].number)]
        asked = places[dut.ask_place]
        before = Cat(p.valid & (p.qpn == asks) & (~dut.ask_queued | older(p, asked)) for p in places)
        count, counting = Signal(range(PLACES + 1)), Signal()
        m.d.sync += [count.eq(sum(p.valid & (p.qpn == counted) for p in places)), counting.eq(dut.count_en)]

        bound = {"bound": 10, "seconds": 300}
        self.check("a new header gets a free place", ~dut.insert_en | ~places[where].valid, **bound)
        self.check("the oldest header that is awake is picked", ~picked | (dut.picked_place == expected), **bound)
        self.check("the header picked is the one that lies there", ~picked | (dut.picked.rsn == its), **bound)
        self.check("a header is offered as long as one may be tried", dut.offered == Cat(may).any(), **bound)
        self.check("an older header of the QP is known", dut.older == before.any(), **bound)
        self.check("whose headers wait is known",
                   dut.waiting[0] == Cat(p.valid & (p.qpn == waits) for p in places).any(), **bound)
        self.check("headers are counted", ~counting | (dut.count == count), **bound)
        self.check("empty means that none waits", dut.empty == ~Cat(p.valid for p in places).any(), **bound)
        full, removed = Signal(), Signal()
        m.d.sync += [full.eq(full | Cat(p.valid for p in places).all()), removed.eq(removed | dut.remove_en)]
        self.cover("all places are taken, then one again", full & removed & Cat(p.valid for p in places).all())
        self.cover("a header is picked though an older one waits", picked & Cat(
            p.valid & ~p.busy & older(p, places[expected]) for p in places).any())
        put_back = Signal()
        m.d.sync += put_back.eq(put_back | dut.put_back_en)
        self.cover("a header that was put back is picked again", picked & put_back & (number == 1))


SPECS = [WaitQueueSpec]
BROKEN = [
    Broken(WaitQueueSpec, "a new header gets a free place",
           ("m.d.sync += line[n - 1].place.eq(self.place)", "m.d.sync += line[n - 1].place.eq(0)")),
    Broken(WaitQueueSpec, "the oldest header that is awake is picked",
           ("for k in reversed(range(n)):", "for k in range(n):")),
    Broken(WaitQueueSpec, "the header picked is the one that lies there",
           ("write.addr.eq(free_place)", "write.addr.eq(used)")),
    Broken(WaitQueueSpec, "a header is offered as long as one may be tried",
           ("after[k].busy.eq(0)\n", "after[k].busy.eq(1)\n")),
    Broken(WaitQueueSpec, "an older header of the QP is known", ("passed = passed | own", "passed = own")),
    Broken(WaitQueueSpec, "whose headers wait is known",
           ("there & (e.qpn == qpn[:width])", "there & e.awake & (e.qpn == qpn[:width])")),
    Broken(WaitQueueSpec, "headers are counted",
           ("(k < used) & (e.qpn == self.count_qpn)", "(e.qpn == self.count_qpn)")),
    Broken(WaitQueueSpec, "empty means that none waits", ("self.empty.eq(used == 0)", "self.empty.eq(~picking)")),
]
