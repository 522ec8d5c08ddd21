"""Rates and limits of QPs."""

from amaranth.hdl import Cat, Module
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..contract.abi import RATE_DOORBELL

GAP_BITS = RATE_DOORBELL.by_name["gap"].width
SETTING = data.StructLayout({"gap": GAP_BITS, "limited": 1, "limit": 32})
WORD_BITS = 32          # of the table: a word has the rate of a QP, the other one its limit
ULTRA_LEAST = 1024      # entries from which the table is in UltraRAM, of which it uses a quarter


class Settings(wiring.Component):
    """Rate and limit of each QP, in one table.

    One read and one write per cycle. A write takes effect for reads that begin in the next cycle or later.

    Parameters
    ----------
    params : CardParams

    Members
    -------
    qpn : In(params.qpn_width)
    rate_stb, limit_stb : In(1)
        Write the rate of ``qpn``, that is ``gap`` and ``limited``; write its limit.
    value : In(SETTING)
    read_en, read_qpn : In(1), In(params.qpn_width)
    setting : Out(SETTING)
        Three cycles after ``read_en``, until the result of the next read.
    """

    def __init__(self, params):
        self.depth = params.qps
        width = params.qpn_width
        super().__init__({
            "qpn": In(width), "rate_stb": In(1), "limit_stb": In(1), "value": In(SETTING),
            "read_en": In(1), "read_qpn": In(width), "setting": Out(SETTING),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = Memory(
            shape=data.ArrayLayout(WORD_BITS, 2), depth=self.depth, init=[],
            attrs={"ram_style": "ultra"} if self.depth >= ULTRA_LEAST else {})
        read, write = table.read_port(), table.write_port(granularity=1)
        # Registered on all sides: such a memory is slow, and far from its users.
        m.d.sync += [
            read.en.eq(self.read_en), read.addr.eq(self.read_qpn),
            write.en.eq(Cat(self.rate_stb, self.limit_stb)), write.addr.eq(self.qpn),
            write.data[0].eq(Cat(self.value.gap, self.value.limited)), write.data[1].eq(self.value.limit),
            Cat(self.setting.gap, self.setting.limited).eq(read.data[0]), self.setting.limit.eq(read.data[1]),
        ]
        return m
