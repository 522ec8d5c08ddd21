"""Signatures between subsystems, each seen from the subsystem that its comment names first."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract import abi
from .layouts import ListCreate, QpRef, RegisterWrite

QUERY_RESULTS = 4

# The PCIe subsystem reads and writes registers. A write of half a word has its data in both halves. A read is a
# byte offset, held until the next read; the response, with `read_ack`, is the aligned 64-bit word.
RegisterBus = wiring.Signature({
    "write": Out(stream.Signature(RegisterWrite)),
    "read_address": Out(16), "read_stb": Out(1), "read_data": In(64), "read_ack": In(1),
})

# The register block reads and writes the MSI-X table. Addresses are BAR offsets of aligned 64-bit words; 32-bit data
# are in their natural half, with byte strobes. Read data come one cycle after the address.
MsixTable = wiring.Signature({
    "w_stb": Out(1), "w_address": Out(16), "w_data": Out(64), "w_mask": Out(8),
    "r_address": Out(16), "r_data": In(64),
})

# The command processor creates and destroys QPs in the Adamap subsystem and queries their state. `destroyed` is a
# strobe, with the acceptance of `destroy` or later. A query is a strobe; `query_qpn` holds until the response, a
# strobe in the same cycle or later.
QpControl = wiring.Signature({
    "create": Out(stream.Signature(ListCreate)), "destroy": Out(stream.Signature(QpRef)), "destroyed": In(1),
    "query_stb": Out(1), "query_qpn": Out(24), "query_done": In(1),
    "query_result": In(data.ArrayLayout(32, QUERY_RESULTS)),
})

# The command processor provides the addresses of the card: transmit puts them into frames, receive compares.
Network = wiring.Signature({"mac": Out(48), "ip": Out(32)})

_INDEX_BITS = abi.RING_LOG2_MAX + 1

# A ring writer provides the position of its next entry, the number of entries that it can take (0 while it does not
# run) out of `size`, and whether half of its entries are taken. An entry may be marked when it is accepted; `marked` is
# high until the host has consumed the newest marked entry.
RingSlot = wiring.Signature({
    "position": Out(abi.RING_LOG2_MAX), "free": Out(_INDEX_BITS), "size": Out(_INDEX_BITS), "half": Out(1),
    "mark": In(1), "marked": Out(1),
})

# State of reports of dropped packets: one is `written` to its ring, some are `unread`, `half` of the ring is taken.
DropReportState = wiring.Signature({"written": Out(1), "unread": Out(1), "half": Out(1)})
