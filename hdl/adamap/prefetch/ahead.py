"""Next block of every list, and the number of its nodes that were linked and not fetched yet."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...contract.abi import LINK_DOORBELL
from ...contract.params import CardParams
from ...part.select import LateMux
from ...table.kinds import QP_STATES
from ..cache.cached import null_block, stray
from ..window.cum import DoorbellCheck

NODES_BITS = LINK_DOORBELL.by_name["nodes"].width       # width of the count in a doorbell


class AheadKind(enum.Enum, shape=2):
    """Update of a list."""

    FILL = 0        # a node was fetched: one less is ahead
    BACK = 1        # a node will be fetched again: one more
    END = 2         # the list ends


def ahead_update(params):
    """Return the layout of an update: the list continues with ``block``, or ends.

    ``adjacent``: that is the block after the node that was fetched.
    """
    return data.StructLayout({"qpn": params.qpn_width, "kind": AheadKind, "block": params.block_bits, "adjacent": 1})


def ahead_place(params):
    """Return the layout of the next block of a list.

    ``inverse`` is the block of the next node, inverted, 0 if there is no list: an empty memory holds none.
    ``adjacent``: consecutive nodes may follow there. If a list ends, the block is the one of :func:`stray`.
    """
    return data.StructLayout({"inverse": params.block_bits, "adjacent": 1})


def ahead_row(params):
    """Return the layout of a row: ``count`` nodes are ahead, and the members of :func:`ahead_place`."""
    return data.StructLayout({"count": params.block_bits, **ahead_place(params).members})


class AheadTable(wiring.Component):
    """Nodes linked ahead of the card, of every QP: link doorbells add, fetched nodes subtract.

    One doorbell per cycle, never stalled; a step when there is none, and was none for its QP in the cycle before: a
    step includes the last doorbell. A doorbell of another generation than the QP's, of no QP, or of a QPN beyond the
    table, is ignored. The count saturates: a driver cannot have linked more nodes than there are blocks. A doorbell
    that finds none ahead provides the next block of the list, for the node before may have retired. A list ends with
    nodes ahead, or with its QP, for which no doorbell is accepted then. A row can be read two cycles after a step,
    three after a doorbell.

    Parameters
    ----------
    params : CardParams
    readers : int
        Read ports.

    Members
    -------
    post_stb, post_qpn, post_generation, post_nodes, post_block : In
        A doorbell; a block number that is too large is that of a block outside all extents.
    qp : Out(QP_STATES.read_port(params))
    create_stb, create_qpn : In
        Start of an incarnation of a QP, with no linked nodes; held until ``create_done``.
    create_done : Out(1)
    step : In(stream.Signature(ahead_step(params)))
        ``ready`` is for the QP of the cycle before, whose count was read then.
    took : Out(1)
        A doorbell was accepted (two cycles after it), for ``took_qpn`` and ``took_nodes`` nodes.
    read_en, read_index, read_data : arrays of ports
        Data comes one cycle after ``read_en`` and is held.
    idle : Out(1)
        No doorbell is between ``post_stb`` and ``took``.
    """

    def __init__(self, params: CardParams, *, readers):
        self.params, self.readers = params, readers
        super().__init__({
            "post_stb": In(1), "post_qpn": In(24), "post_generation": In(8), "post_nodes": In(NODES_BITS),
            "post_block": In(24),
            "qp": Out(QP_STATES.read_port(params)),
            "create_stb": In(1), "create_qpn": In(24), "create_done": Out(1),
            "step": In(stream.Signature(ahead_update(params))),
            "took": Out(1), "took_qpn": Out(params.qpn_width), "took_nodes": Out(NODES_BITS),
            "read_en": In(1).array(readers),
            "read_index": In(params.qpn_width).array(readers),
            "read_data": Out(ahead_row(params)).array(readers),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        params, bits, step = self.params, self.params.block_bits, self.step
        m.submodules.counts = counts = Memory(shape=bits, depth=params.qps, init=[])
        m.submodules.places = places = Memory(shape=ahead_place(params), depth=params.qps, init=[])
        write, place = counts.write_port(), places.write_port()
        for k in range(self.readers):
            count, where = counts.read_port(), places.read_port()
            m.d.comb += [part.eq(self.read_en[k]) for part in (count.en, where.en)]
            m.d.comb += [part.eq(self.read_index[k]) for part in (count.addr, where.addr)]
            m.d.comb += self.read_data[k].eq(Cat(count.data, where.data))
        # An update reads the count a cycle before, so that its conditions come from registers: that the count is not
        # 0, and whether all its bits above the width of a doorbell's count are ones, so that an addition may overflow.
        check, count = counts.read_port(), Signal(bits, name="count")
        some, near = Signal(name="some"), Signal(name="near")
        m.d.comb += check.addr.eq(Mux(self.post_stb, self.post_qpn, step.p.qpn))
        m.d.sync += [count.eq(check.data), some.eq(check.data.any()), near.eq(Cat(check.data, 1)[NODES_BITS:].all())]

        m.submodules.doorbell = doorbell = DoorbellCheck(params)
        wiring.connect(m, doorbell.qp, wiring.flipped(self.qp))

        # A doorbell waits for a cycle, so that a step knows early whether it is delayed by one.
        post = Signal(data.StructLayout({"stb": 1, "qpn": 24, "generation": 8, "nodes": NODES_BITS, "block": bits}))
        ready, same = Signal(), Signal()
        m.d.comb += [self.create_done.eq(self.create_stb & ~post.stb & ~step.valid), step.ready.eq(ready),
                     same.eq(post.stb & (post.qpn[:len(step.p.qpn)] == step.p.qpn))]
        m.d.sync += [
            post.stb.eq(self.post_stb), post.qpn.eq(self.post_qpn), post.generation.eq(self.post_generation),
            post.nodes.eq(self.post_nodes),
            post.block.eq(Mux(self.post_block >= null_block(params), stray(params), self.post_block)),
            ready.eq(~self.post_stb & ~same),
        ]

        # The addend and the next block are known before the count is; but a doorbell that finds nodes ahead does not
        # change the next block.
        requested, acts, added = Signal(name="requested"), Signal(name="acts"), Signal(bits, name="added")
        next_place, index = place.data, Signal(params.qpn_width, name="index")
        m.d.comb += [
            doorbell.stb.eq(post.stb), doorbell.qpn.eq(post.qpn), doorbell.generation.eq(post.generation),
            index.eq(Mux(post.stb, post.qpn, Mux(step.valid, step.p.qpn, self.create_qpn))),
            self.took.eq(doorbell.good), self.took_qpn.eq(write.addr), self.took_nodes.eq(added),
            self.idle.eq(~post.stb), write.en.eq(self.took | acts), place.addr.eq(write.addr),
        ]
        m.d.sync += [
            requested.eq(post.stb), acts.eq(self.create_done | (step.valid & step.ready)), write.addr.eq(index),
        ]
        with m.If(post.stb):
            m.d.sync += [added.eq(post.nodes), next_place.inverse.eq(~post.block), next_place.adjacent.eq(1)]
        with m.Elif(~step.valid):       # a new incarnation
            m.d.sync += [added.eq(0), next_place.inverse.eq(~stray(params)), next_place.adjacent.eq(0)]
        with m.Elif(step.p.kind == AheadKind.END):
            m.d.sync += [added.eq(0), next_place.eq(0)]
        with m.Else():
            m.d.sync += [added.eq(Cat(1, (step.p.kind == AheadKind.FILL).replicate(bits - 1))),
                         next_place.inverse.eq(~step.p.block), next_place.adjacent.eq(step.p.adjacent)]

        # One of the two operations before may be of the same QP: its count is bypassed, not read, as is the 0 of a new
        # incarnation. The select is late: so both counts are added to.
        last, kept = Signal(bits, name="last"), LateMux(bits)
        m.submodules.kept = kept
        again, passed = Signal(name="again"), Signal(name="passed")
        late, late_addr = Signal(name="late"), Signal.like(write.addr, name="late_addr")

        def is_at(en, addr):
            by_post, by_step = (qpn[:len(addr)] == addr for qpn in (post.qpn, step.p.qpn))
            return en & Mux(post.stb, by_post, by_step)

        m.d.comb += again.eq(is_at(write.en, write.addr))
        m.d.sync += [
            passed.eq(self.create_done | again | is_at(late, late_addr)),
            last.eq(write.data), late.eq(write.en), late_addr.eq(write.addr),
        ]
        m.d.comb += [
            kept.late_en.eq(write.en & ~self.create_done & is_at(1, write.addr)), kept.late.eq(write.data),
            kept.early_en.eq(1), kept.early.eq(Mux(self.create_done, 0, last)),
        ]

        # An overflow carries through `requested`.
        low = slice(NODES_BITS)
        of_kept, of_read = Cat(kept.o, requested) + added, count + added
        over = (Cat(count[low], near, requested) + added[low])[-1]
        m.d.comb += [
            write.data.eq(Mux(passed, of_kept[:bits] | of_kept[-1].replicate(bits), Cat(
                of_read[low] | over.replicate(NODES_BITS),
                of_read[NODES_BITS:bits] | (near & requested).replicate(bits - NODES_BITS)))),
            place.en.eq(acts | (self.took & ~Mux(passed, kept.o.any(), some))),
        ]
        return m
