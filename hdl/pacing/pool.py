"""Pool of descriptors, linked to lists."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..contract.params import exact_log2
from ..part.layouts import WORK

DISTRIBUTED = 1024      # entries up to which the links are in distributed memory, for synthesis
_KEPT = ("ack_req", "retransmit", "pmtu", "ect", "dqpn", "local_va", "lkey", "remote_va", "rkey", "psn", "length",
         "rsn", "sport", "imm", "dst_ip", "dst_mac")
# A descriptor in the pool: the QP is known from its list, and opcode WRITE_IMM is `with_imm`.
POOLED = data.StructLayout({"with_imm": 1} | {name: WORK.members[name] for name in _KEPT})


class Pool(wiring.Component):
    """Storage of descriptors in block memory. Entries have links, by which the user makes lists; so are free ones.

    One operation of each kind per cycle, but only one of ``link_stb`` and ``release_stb``, one of ``put_stb``,
    ``read_en`` and ``release_stb``, and one of ``put_stb`` and ``update_stb``. After ``put_stb``, the next one may
    come 3 cycles later, and so may ``release_stb``; after ``read_en``, ``put_stb`` may come 2 cycles later.

    Parameters
    ----------
    entries : int
        A power of two.

    Members
    -------
    full : Out(1)
    free : Out(range(entries))
        Unless full: the entry that is taken next.
    put_stb, put : In(1), In(POOLED)
        Store a descriptor in entry ``free``; it can be read two cycles later.
    update_stb, update_index, update : In
        Replace a descriptor; the new one can be read two cycles later.
    link_stb, link_index, link_to : In
        Let an entry point to another one.
    read_en, read_index : In
    descriptor, link : Out
        The entry, one cycle later, and its link, three cycles later, until the next read or ``put_stb``.
    release_stb, first, last : In
        Free a list of entries, linked from ``first`` to ``last``.
    """

    def __init__(self, entries):
        self.entries, width = entries, exact_log2(entries)
        super().__init__({
            "full": Out(1), "free": Out(width), "put_stb": In(1), "put": In(POOLED),
            "update_stb": In(1), "update_index": In(width), "update": In(POOLED),
            "link_stb": In(1), "link_index": In(width), "link_to": In(width),
            "read_en": In(1), "read_index": In(width), "descriptor": Out(POOLED), "link": Out(width),
            "release_stb": In(1), "first": In(width), "last": In(width),
        })

    def elaborate(self, platform):
        m = Module()
        width = len(self.free)
        m.submodules.descriptors = descriptors = Memory(shape=POOLED, depth=self.entries, init=[])
        m.submodules.links = links = Memory(shape=width, depth=self.entries, init=[], attrs=(
            {"ram_style": "distributed"} if self.entries <= DISTRIBUTED else {}))
        write, read = descriptors.write_port(), descriptors.read_port()
        link_write, link_read = links.write_port(), links.read_port()
        fresh = Signal(width + 1)           # entries used since the reset: the others are free and not in the list
        some, head, tail = Signal(), Signal(width), Signal(width)       # list of free entries
        pops, popped = Signal(), Signal(2)
        m.d.comb += [
            self.full.eq(fresh[-1] & ~some), self.free.eq(Mux(fresh[-1], head, fresh)),
            pops.eq(self.put_stb & fresh[-1]),
            read.en.eq(self.read_en), read.addr.eq(self.read_index), self.descriptor.eq(read.data),
            self.link.eq(link_read.data),
        ]
        read_en, read_index = Signal(), Signal(width)
        # Registered, as the memories are large and thus far away from what decides.
        m.d.sync += [
            write.en.eq(self.put_stb | self.update_stb), write.addr.eq(Mux(self.put_stb, self.free, self.update_index)),
            write.data.eq(Mux(self.put_stb, self.put.as_value(), self.update.as_value())),
            read_en.eq(self.read_en), read_index.eq(self.read_index),
            link_read.en.eq(read_en | self.put_stb), link_read.addr.eq(Mux(self.put_stb, head, read_index)),
            link_write.en.eq(self.link_stb | self.release_stb),
            link_write.addr.eq(Mux(self.release_stb, self.last, self.link_index)),
            link_write.data.eq(Mux(self.release_stb, head, self.link_to)),
            popped.eq(Cat(pops, popped[0])),
        ]
        with m.If(self.put_stb & ~fresh[-1]):
            m.d.sync += fresh.eq(fresh + 1)
        with m.If(pops):
            m.d.sync += some.eq(head != tail)
        with m.If(popped[1]):
            m.d.sync += head.eq(link_read.data)
        with m.If(self.release_stb):
            m.d.sync += [head.eq(self.first), some.eq(1)]
            with m.If(~some):
                m.d.sync += tail.eq(self.last)
        return m
