"""Extended tag enable of the host, read from the configuration space, since no port shows it."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..contract import pci

_offset_of = pci.EXPRESS_CAPABILITY.offset_of
DEVICE_CONTROL = pci.EXPRESS + _offset_of("error_reporting_enable") // 8      # whose first field that is
EXTENDED_TAGS = _offset_of("extended_tag_enable") - _offset_of("error_reporting_enable")
PAUSE_LOG2 = 8            # cycles between two reads


class DeviceControl(wiring.Component):
    """Reads Device Control of function 0 periodically through the configuration interface.

    Members
    -------
    cfg_mgmt_addr, cfg_mgmt_read : Out
        A read of a double word, held until it is done.
    cfg_mgmt_read_data, cfg_mgmt_read_write_done : In
    cfg_ext_tag_enable : Out(1)
        0 until the first read is done; at most a pause and an access old.
    """

    cfg_mgmt_addr: Out(10)
    cfg_mgmt_read: Out(1)
    cfg_mgmt_read_data: In(32)
    cfg_mgmt_read_write_done: In(1)
    cfg_ext_tag_enable: Out(1)

    def elaborate(self, platform):
        m = Module()
        pause = Signal(PAUSE_LOG2)
        m.d.comb += self.cfg_mgmt_addr.eq(DEVICE_CONTROL // 4)
        m.d.sync += pause.eq(pause + 1)
        with m.If(self.cfg_mgmt_read):
            m.d.sync += pause.eq(0)
            with m.If(self.cfg_mgmt_read_write_done):
                m.d.sync += [self.cfg_mgmt_read.eq(0),
                             self.cfg_ext_tag_enable.eq(self.cfg_mgmt_read_data[EXTENDED_TAGS])]
        with m.Elif(pause.all()):
            m.d.sync += self.cfg_mgmt_read.eq(1)
        return m
