"""Port for all changes of the QP table."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract.abi import QpState
from ..part.layouts import qp_entry
from ..table.kinds import QP_TABLE


class QpOperation(enum.Enum, shape=2):
    """Operation on an entry."""

    READ = 0
    CREATE = 1     # write the given entry
    MODIFY = 2     # change state and access of the given incarnation; a QP in ERR stays there until it is RESET


def qp_update(params):
    """Return the shape of an operation on the QP table; ``generation`` of the entry selects the incarnation."""
    return data.StructLayout({"operation": QpOperation, "index": params.qpn_width, "entry": qp_entry(params)})


class QpPort(wiring.Component):
    """Serialises commands on the QP table with the errors that the card itself detects.

    Each operation takes four cycles, including the acceptance of the response. An error has priority over a command
    and has no response, so it never waits for one.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    i : In(stream.Signature(qp_update(params)))
    o : Out(stream.Signature(qp_entry(params)))
        The old entry. Accepted before the next operation begins.
    i_error : In(stream.Signature(24))
        Index of a QP that goes to ERR, if it is active.
    read, write : Out(read_port), Out(write_port)
        To the QP table.
    """

    def __init__(self, params):
        self.params = params
        super().__init__({
            "i": In(stream.Signature(qp_update(params))),
            "o": Out(stream.Signature(qp_entry(params))),
            "i_error": In(stream.Signature(24)),
            "read": Out(QP_TABLE.read_port(params)),
            "write": Out(QP_TABLE.write_port(params)),
        })

    def elaborate(self, platform):
        m = Module()
        update, is_error = Signal(qp_update(self.params)), Signal()
        waiting = Signal()  # a response that was not yet accepted
        old = self.read.entry
        m.d.comb += [
            self.read.index.eq(update.index), self.write.index.eq(update.index),
            self.o.valid.eq(waiting),
        ]
        with m.If(self.o.ready):
            m.d.sync += waiting.eq(0)
        with m.FSM():
            with m.State("IDLE"):  # waits for an error or a command
                with m.If(self.i_error.valid):
                    m.d.comb += self.i_error.ready.eq(1)
                    m.d.sync += [
                        update.operation.eq(QpOperation.MODIFY), update.index.eq(self.i_error.payload),
                        update.entry.state.eq(QpState.ERR), is_error.eq(1),
                    ]
                    with m.If(~self.i_error.payload[self.params.qpn_width:].any()):
                        m.next = "READ"
                with m.Elif(self.i.valid & ~waiting):
                    m.d.comb += self.i.ready.eq(1)
                    m.d.sync += [update.eq(self.i.payload), is_error.eq(0)]
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += self.read.en.eq(1)
                m.next = "WRITE"
            with m.State("WRITE"):  # the old entry is at the read port
                to_state = update.entry.state
                meant = is_error | (old.generation == update.entry.generation)
                live = (old.state != QpState.RESET) & meant
                stuck = (old.state == QpState.ERR) & (to_state != QpState.RESET)
                with m.Switch(update.operation):
                    with m.Case(QpOperation.CREATE):
                        m.d.comb += [self.write.en.eq(1), self.write.entry.eq(update.entry)]
                    with m.Case(QpOperation.MODIFY):
                        m.d.comb += [self.write.en.eq(live & ~stuck), self.write.entry.eq(old),
                                     self.write.entry.state.eq(to_state)]
                        with m.If(~is_error):
                            m.d.comb += self.write.entry.access.eq(update.entry.access)
                with m.If(~is_error):
                    m.d.sync += [waiting.eq(1), self.o.payload.eq(old)]
                m.next = "IDLE"
        return m
