"""Where every list goes on, and how many nodes of it were linked and not fetched yet."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..params import CardParams
from ..table.kinds import QP_STATES
from .block import dead, stray
from .doorbell_check import DoorbellCheck


class AheadKind(enum.Enum, shape=2):
    """What becomes of a list."""

    LAND = 0        # a node was fetched: one less is ahead
    BACK = 1        # a node will be fetched again: one more
    END = 2         # the list ends


def ahead_step(params):
    """A list goes on with ``block``, or ends. ``adjacent``: that is the one behind the node that was fetched."""
    return data.StructLayout({"qpn": params.qpn_width, "kind": AheadKind, "block": params.block_bits, "adjacent": 1})


def ahead_row(params):
    """``count`` nodes are ahead; ``inverse`` is the block of the next one, inverted, 0 if there is no list: so an empty
    memory holds none. ``adjacent``: nodes behind each other may lie there. Where a list ends, the block is a stray
    one."""
    return data.StructLayout({"count": params.block_bits, "inverse": params.block_bits, "adjacent": 1})


class AheadTable(wiring.Component):
    """Nodes linked ahead of the card, of every QP: link doorbells add, fetched nodes take away.

    Takes one doorbell per cycle, always; a step when there is none, nor was one for its QP in the cycle before: a step
    goes with what the last doorbell told. A doorbell of another generation than the QP's, of no QP, or of a QPN beyond
    the table, is ignored. The count stops at its largest value: a driver cannot have linked more nodes than there are
    blocks. A doorbell that finds none ahead says where the list goes on, for the node before may be gone. A list ends
    with nodes ahead, or with its QP, of which no doorbell is taken then. A row can be read two cycles after a step,
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
        Start of a QP's life: a list of which nothing is linked; held until ``create_done``.
    create_done : Out(1)
    step : In(stream.Signature(ahead_step(params)))
        ``ready`` is that of the QP that stood there a cycle ago.
    took : Out(1)
        A doorbell was taken (two cycles after it): ``took_qpn`` says whose, ``took_nodes`` how many.
    read_en, read_index, read_data : arrays of ports
        Data comes one cycle after ``read_en`` and stays.
    idle : Out(1)
        No doorbell is between ``post_stb`` and ``took``.
    """

    def __init__(self, params: CardParams, *, readers):
        self.params, self.readers = params, readers
        super().__init__({
            "post_stb": In(1), "post_qpn": In(24), "post_generation": In(8), "post_nodes": In(8), "post_block": In(24),
            "qp": Out(QP_STATES.read_port(params)),
            "create_stb": In(1), "create_qpn": In(24), "create_done": Out(1),
            "step": In(stream.Signature(ahead_step(params))),
            "took": Out(1), "took_qpn": Out(params.qpn_width), "took_nodes": Out(8),
            "read_en": In(1).array(readers),
            "read_index": In(params.qpn_width).array(readers),
            "read_data": Out(ahead_row(params)).array(readers),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        bits, strayed, step = self.params.block_bits, stray(self.params), self.step
        m.submodules.memory = memory = Memory(shape=ahead_row(self.params), depth=self.params.qps, init=[])
        write = memory.write_port()
        check = memory.read_port()

        m.submodules.doorbell = doorbell = DoorbellCheck(self.params)
        wiring.connect(m, doorbell.qp, wiring.flipped(self.qp))

        # A doorbell waits for a cycle, so that a step knows early whether one comes in its stead.
        post = Signal(data.StructLayout({"stb": 1, "qpn": 24, "generation": 8, "nodes": 8, "block": bits}))
        ready, same = Signal(), Signal()
        m.d.comb += [self.create_done.eq(self.create_stb & ~post.stb & ~step.valid), step.ready.eq(ready),
                     same.eq(post.stb & (post.qpn[:len(step.p.qpn)] == step.p.qpn))]
        m.d.sync += [
            post.stb.eq(self.post_stb), post.qpn.eq(self.post_qpn), post.generation.eq(self.post_generation),
            post.nodes.eq(self.post_nodes),
            post.block.eq(Mux(self.post_block >= dead(self.params), strayed, self.post_block)),
            ready.eq(~self.post_stb & ~same),
        ]

        asked, creating, stepping = Signal(), Signal(), Signal()
        kind, block, adjacent, nodes = Signal(AheadKind), Signal(bits), Signal(), Signal(8)
        m.d.comb += [
            doorbell.stb.eq(post.stb), doorbell.qpn.eq(post.qpn), doorbell.generation.eq(post.generation),
            check.en.eq(1),
            check.addr.eq(Mux(post.stb, post.qpn, Mux(step.valid, step.p.qpn, self.create_qpn))),
        ]
        m.d.sync += [
            asked.eq(post.stb), creating.eq(self.create_done), stepping.eq(step.valid & step.ready),
            kind.eq(step.p.kind), adjacent.eq(step.p.adjacent), nodes.eq(post.nodes),
            block.eq(Mux(post.stb, post.block, step.p.block)), write.addr.eq(check.addr),
        ]
        # The operation before may be of the same QP: its row is not read, but kept. Whose turn it is comes late.
        passed, kept, old = Signal(), Signal(ahead_row(self.params)), Signal(ahead_row(self.params))
        by_post, by_step, by_create = (qpn[:len(write.addr)] == write.addr
                                       for qpn in (post.qpn, step.p.qpn, self.create_qpn))
        m.d.sync += [passed.eq(write.en & Mux(post.stb, by_post, Mux(step.valid, by_step, by_create))),
                     kept.eq(write.data)]
        m.d.comb += old.eq(Mux(passed, kept, check.data))
        new, more, begins = write.data, Signal(bits + 1), Signal()
        # Which of the three it is is known early, whether the doorbell is a good one is not.
        m.d.comb += [
            self.took.eq(doorbell.good), self.took_qpn.eq(write.addr), self.took_nodes.eq(nodes),
            self.idle.eq(~post.stb), write.en.eq(self.took | creating | stepping),
            more.eq(old.count + nodes), begins.eq(old.count == 0),
        ]
        with m.If(asked):
            m.d.comb += [new.count.eq(more[:bits] | more[bits].replicate(bits)),
                         new.inverse.eq(Mux(begins, ~block, old.inverse)), new.adjacent.eq(begins | old.adjacent)]
        with m.Elif(creating):
            m.d.comb += new.inverse.eq(~strayed)
        with m.Elif(kind == AheadKind.END):
            m.d.comb += new.count.eq(old.count)
        with m.Else():
            m.d.comb += [new.count.eq(old.count + Cat(1, (kind == AheadKind.LAND).replicate(bits - 1))),
                         new.inverse.eq(~block), new.adjacent.eq(adjacent)]
        for k in range(self.readers):
            port = memory.read_port()
            m.d.comb += [port.en.eq(self.read_en[k]), port.addr.eq(self.read_index[k]), self.read_data[k].eq(port.data)]
        return m
