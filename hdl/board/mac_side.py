"""MAC side of a board: link state and counters in the MAC's clock domain."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

COUNTER_BITS = 48

# Counters: name, width of the increment, description. The first ones come from the MAC, by the names of its
# ports without `stat_`; the others from the MAC, the card, and this block.
MAC_EVENTS = (
    ("tx_total_packets", 1, "Frames sent."),
    ("tx_total_bytes", 6, "Their bytes, with FCS."),
    ("tx_frame_error", 1, "Frames sent with the error mark."),
    ("rx_total_packets", 3, "Frames received, bad ones too."),
    ("rx_total_bytes", 7, "Their bytes, with FCS."),
    ("rx_bad_fcs", 3, "Received with a wrong FCS."),
    ("rx_undersize", 3, "Received with less than 64 bytes."),
    ("rx_toolong", 1, "Received longer than the limit."),
    ("rx_rsfec_corrected_cw_inc", 1, "RS-FEC code words that were corrected."),
    ("rx_rsfec_uncorrected_cw_inc", 1, "RS-FEC code words that could not be corrected."),
)
OWN_EVENTS = (
    ("tx_overflow", 1, "The MAC could not accept a beat that it had requested."),
    ("tx_underflow", 1, "The MAC found no beat inside a frame. Never, unless the crossing is broken."),
    ("tx_aborted", 1, "Frames cut off because the card was reset."),
    ("tx_dropped", 1, "Frames of the card that were not sent: link down, or a reset."),
    ("rx_dropped", 1, "Frames received that did not reach the card: no space, too long, or a reset."),
    ("link_lost", 1, "Number of times that the link was lost."),
)
EVENTS = MAC_EVENTS + OWN_EVENTS
# Levels from the MAC, bits of a register.
LEVELS = ("rx_aligned", "rx_local_fault", "rx_remote_fault", "rx_hi_ber", "rx_rsfec_hi_ser", "tx_local_fault")


class MacSide(wiring.Component):
    """Status and counters of the MAC, for a card in another clock domain: domains ``sync`` and ``mac``.

    Frames cross domains in the card itself.

    Members
    -------
    levels : In(len(LEVELS))
        From the MAC, in domain ``mac``, in the order of ``LEVELS``.
    events : In(struct)
        ``EVENTS`` but the last, domain ``mac``.
    tx_enable : Out(1)
        To card and MAC, domain ``mac``: frames may be sent. Otherwise the MAC must send remote fault, and the card
        drops its frames.
    status : Out(len(LEVELS))
        The levels in domain ``sync``.
    counter_address, counter_stb : In
        Domain ``sync``. Read a counter; the address is held until ``counter_ack``, and no second read begins before it.
    counter_data, counter_ack : Out
        Domain ``sync``: the response, about ten cycles later; never while the MAC has no clock.
    """

    def __init__(self):
        super().__init__({
            "levels": In(len(LEVELS)), "status": Out(len(LEVELS)), "tx_enable": Out(1),
            "events": In(data.StructLayout({name: width for name, width, _ in EVENTS[:-1]})),
            "counter_address": In(range(len(EVENTS))), "counter_stb": In(1),
            "counter_data": Out(COUNTER_BITS), "counter_ack": Out(1)})

    def elaborate(self, platform):
        m = Module()
        aligned, levels_q = LEVELS.index("rx_aligned"), Signal(len(LEVELS))
        m.d.mac += [levels_q.eq(self.levels), self.tx_enable.eq(levels_q[aligned])]
        m.submodules.status_cdc = FFSynchronizer(levels_q, self.status)
        own = {"link_lost": self.tx_enable & ~levels_q[aligned]}
        self._count(m, [own[name] if name in own else self.events[name] for name, _, _ in EVENTS])
        return m

    def _count(self, m, events):
        """Build the counters in the MAC's clock domain, and the handshake that reads one of them."""
        counters = [Signal(COUNTER_BITS, name=name) for name, _, _ in EVENTS]
        for counter, event in zip(counters, events, strict=True):
            event_q = Signal(len(event), name=f"{counter.name}_event")
            m.d.mac += [event_q.eq(event), counter.eq(counter + event_q)]
        # No reset in the handshake: it would look like a request.
        request_toggle = Signal(reset_less=True)
        request_mac = Signal()
        known = Signal(3, reset_less=True)
        ack = Signal()
        ack_q = Signal(reset_less=True)
        address = Signal(len(self.counter_address), reset_less=True)
        address_mac = Signal(len(self.counter_address), reset_less=True)
        held = Signal(COUNTER_BITS, reset_less=True)
        m.submodules.request_cdc = FFSynchronizer(request_toggle, request_mac, o_domain="mac")
        m.submodules.ack_cdc = FFSynchronizer(known[2], ack)
        with m.If(self.counter_stb):
            m.d.sync += [request_toggle.eq(~request_toggle), address.eq(self.counter_address)]
        # The address is stable from before `request_toggle` changes, and the value until it changes again.
        m.d.mac += known.eq((known << 1) | request_mac)
        with m.If(known[0] != request_mac):
            m.d.mac += address_mac.eq(address)
        with m.If(known[1] != known[0]):
            m.d.mac += held.eq(Array(counters)[address_mac])
        m.d.sync += ack_q.eq(ack)
        m.d.sync += self.counter_ack.eq(ack ^ ack_q)
        with m.If(ack ^ ack_q):
            m.d.sync += self.counter_data.eq(held)
