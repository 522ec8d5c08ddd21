"""Checks of a command's fields."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..contract.abi import BLOCK_BYTES, PAGE_2M, PAGE_4K, CommandOpcode, CommandStatus, QpState
from ..contract.params import exact_log2
from ..part.layouts import COMMAND, mr_entry

PTES_PER_COMMAND = 512
MR_LENGTH_BITS = mr_entry()["length"].width
LINE_SHIFT = exact_log2(BLOCK_BYTES)


class CommandCheck(wiring.Component):
    """Checks opcode, indices and values of a command; the processor checks against the tables.

    BAD_OPCODE for an undefined opcode; BAD_INDEX for an MR, extent or page-table range outside the build's
    tables; then BAD_VALUE for

    * an address or extent length that is not a multiple of 64, an extent of more blocks than have numbers
      (``2 ** extent_blocks_log2 - 1``), one that wraps, or one at address 0, which is the null pointer;
    * a state other than RTR, RTS, ERR in QP_MODIFY;
    * an MR of 2^48 bytes or more, one that wraps, or whose pages are not all in the page table;
    * a page-table count of 0 or more than 512.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    command : In(COMMAND)
    status : Out(8)
        Its :class:`~weft.hdl.contract.abi.CommandStatus`, ``CYCLES`` after ``command`` became stable.
    """

    CYCLES = 4

    def __init__(self, params):
        self.params = params
        super().__init__({"command": In(COMMAND), "status": Out(8)})

    def elaborate(self, platform):
        m = Module()
        params, command = self.params, self.command
        big = command.page_2m
        shift_4k, shift_2m = exact_log2(PAGE_4K), exact_log2(PAGE_2M)

        # Multi-cycle computation: the command is stable while each step uses the result of the one before.
        end, span = Signal(65), Signal(MR_LENGTH_BITS + 1)
        wraps, pages, pte_end = Signal(), Signal(MR_LENGTH_BITS + 1 - shift_4k), Signal(MR_LENGTH_BITS + 1)
        start = Mux(command.opcode == CommandOpcode.MR_CREATE, command.va, command.address)
        first = Mux(big, command.va[:shift_2m], command.va[:shift_4k])
        last = Mux(big, PAGE_2M - 1, PAGE_4K - 1)
        m.d.sync += [
            end.eq(start + command.length),
            span.eq(command.length[:MR_LENGTH_BITS] + first + last),
            wraps.eq(end[64] & end[:64].any()),
            pages.eq(Mux(big, span[shift_2m:], span[shift_4k:])),
            pte_end.eq(command.pte_index + Mux(command.opcode == CommandOpcode.MR_CREATE, pages, command.count)),
        ]
        beyond_table, unaligned, bad_mr = Signal(), Signal(), Signal()
        m.d.comb += [
            beyond_table.eq(pte_end > params.ptes),
            unaligned.eq(command.address[:LINE_SHIFT].any()),
            bad_mr.eq(command.mr_index[params.mr_width:].any()),
        ]
        bad_index, bad_value, bad_opcode = Signal(), Signal(), Signal()
        with m.Switch(command.opcode):
            with m.Case(CommandOpcode.SET_NETWORK, CommandOpcode.QP_CREATE):
                pass
            with m.Case(CommandOpcode.QP_MODIFY):
                state = command.qp_state
                known = (state == QpState.RTR) | (state == QpState.RTS) | (state == QpState.ERR)
                m.d.comb += bad_value.eq(~known)
            with m.Case(CommandOpcode.QP_DESTROY, CommandOpcode.QP_QUERY):
                pass
            with m.Case(CommandOpcode.MR_CREATE):
                too_long = command.length[MR_LENGTH_BITS:].any()
                m.d.comb += [bad_index.eq(bad_mr), bad_value.eq(too_long | wraps | beyond_table)]
            with m.Case(CommandOpcode.MR_DESTROY):
                m.d.comb += bad_index.eq(bad_mr)
            with m.Case(CommandOpcode.PAGE_TABLE_WRITE):
                count_ok = (command.count != 0) & (command.count <= PTES_PER_COMMAND)
                m.d.comb += [bad_index.eq(beyond_table), bad_value.eq(unaligned | ~count_ok)]
            with m.Case(CommandOpcode.EXTENT_SET):
                blocks = command.length[LINE_SHIFT:]
                most = (1 << params.extent_blocks_log2) - 2     # the last two numbers are reserved
                odd_length = command.length[:LINE_SHIFT].any() | (blocks > most)
                m.d.comb += [
                    bad_index.eq(command.extent >= params.knit_extents),
                    bad_value.eq(unaligned | odd_length | wraps | (blocks.any() & ~command.address.any())),
                ]
            with m.Case(CommandOpcode.STATISTICS):
                m.d.comb += bad_value.eq(unaligned)
            with m.Default():
                m.d.comb += bad_opcode.eq(1)
        m.d.sync += self.status.eq(Mux(bad_opcode, CommandStatus.BAD_OPCODE, Mux(
            bad_index, CommandStatus.BAD_INDEX, Mux(bad_value, CommandStatus.BAD_VALUE, CommandStatus.OK))))
        return m
