"""Two hosts, two cards, one bad link: the environment of the end-to-end benches."""

import gc
import random
from dataclasses import dataclass, field
from pathlib import Path

import cocotb

from weft.tb.flow.clock import start_clock
from weft.tb.flow.ticker import Ticker
from weft.tb.world.bus import Bus
from weft.tb.world.card_device import CardDevice
from weft.tb.world.hard_block import HardBlock
from weft.tb.world.host import Host, HostConfig
from weft.tb.world.link import Impairments, LinkConfig, LinkDirection
from weft.tb.world.mac import MacRx, MacTx
from weft.tb.world.pcap import Captures
from weft.tb.world.two_cards import SIDES

DEFAULT_VECTORS = 8
MAC_IDLE_BYTES = 8 * 1100
GC_ALLOCATIONS = 100_000


@dataclass(frozen=True)
class EnvConfig:
    """Parameters of :class:`TwoCards`.

    Attributes
    ----------
    a_to_b, b_to_a : LinkConfig
        The link's two directions.
    host : HostConfig
        Both hosts.
    mac_idle : float
        Chance after each frame that the sending MAC is idle for as long as up to eight full frames.
    vectors : int
        MSI-X vectors of a card (``CardParams.msix_vectors``).
    straddle : bool
        The cards' hard blocks have straddle (``CardParams.straddle``).
    pcap_folder : Path, optional
        Where four captures go: ``a_to_b.sent.pcap``, ``a_to_b.arrived.pcap`` and the same for ``b_to_a``.
    """

    a_to_b: LinkConfig = field(default_factory=LinkConfig)
    b_to_a: LinkConfig = field(default_factory=LinkConfig)
    host: HostConfig = field(default_factory=HostConfig)
    mac_idle: float = 0.0
    vectors: int = DEFAULT_VECTORS
    straddle: bool = False
    pcap_folder: Path | None = None


@dataclass
class Side:
    """One end: host, hard block, MAC and the link direction that leads away from it."""

    name: str
    host: Host
    hard_block: HardBlock
    mac_tx: MacTx
    mac_rx: MacRx
    link: LinkDirection
    device: CardDevice | None = None


class TwoCards:
    """Owns everything around module ``two_cards``; a bench reads: start, run the applications, compare.

    Parameters
    ----------
    dut
        Module ``two_cards`` (:func:`weft.tb.world.two_cards.two_cards_verilog`).
    config : EnvConfig, optional
    seed : int
        Of memory placement, latencies and the link.

    Examples
    --------
    ::

        env = TwoCards(dut, EnvConfig(a_to_b=LinkConfig(loss=0.01)), seed=bench_seed())
        await env.start()
        sender = cocotb.start_soon(bridge(send)(env.device("a")))     # blocking functions of the driver
        await bridge(receive)(env.device("b"))
        await sender
        env.finish()
    """

    device_type = CardDevice

    def __init__(self, dut, config=None, seed=0):
        self.dut, self.config, self.seed = dut, config or EnvConfig(), seed
        self.sides = {}
        self._captures = Captures(self.config.pcap_folder)

    async def start(self):
        """Clock, reset, models, enumeration of both hosts."""
        dut, config = self.dut, self.config
        await start_clock(dut)
        ticker = Ticker(dut.clk)
        for name in SIDES:
            rng = random.Random(f"{self.seed}/host {name}")
            direction = "a_to_b" if name == "a" else "b_to_a"
            link = LinkDirection(
                Impairments(getattr(config, direction), f"{self.seed}/{direction}"),
                self._deliver_to("b" if name == "a" else "a"), *self._captures.taps(direction))
            # A host begins before its hard block: in a cycle both act in this order.
            self.sides[name] = Side(
                name, Host(config.host, rng),
                HardBlock(dut, f"{name}_", ticker, config.vectors, straddle=config.straddle),
                MacTx(Bus(dut, f"{name}_m_axis_tx", ticker), dut.clk, link.send),
                MacRx(Bus(dut, f"{name}_s_axis_rx", ticker), dut.clk), link)
        self._hold_back()
        for side in self.sides.values():
            side.host.plug(side.hard_block)
        starts = [cocotb.start_soon(side.host.start(config.vectors)) for side in self.sides.values()]
        for start in starts:
            await start
        for side in self.sides.values():
            side.hard_block.configured()
            side.device = self.device_type(side.host)
        # What was made so far stays; looking for cycles among it over and over takes a twentieth of a run.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_ALLOCATIONS)

    def _hold_back(self):
        """Random back pressure, where the configuration asks for it."""
        config = self.config
        for side in self.sides.values():
            rng = random.Random(f"{self.seed}/pauses {side.name}")
            if config.mac_idle:
                side.mac_tx.idle_bytes = lambda rng=rng: (
                    rng.randrange(MAC_IDLE_BYTES) if rng.random() < config.mac_idle else 0)
            if config.host.stall:
                side.hard_block.stall(config.host.stall, rng)

    def _deliver_to(self, name):
        return lambda frame: self.sides[name].mac_rx.receive(frame)

    def host(self, name):
        """The :class:`~weft.tb.world.host.Host` of side ``"a"`` or ``"b"``."""
        return self.sides[name].host

    def device(self, name):
        """The driver's :class:`~weft.driver.device.device.Device` of side ``"a"`` or ``"b"``."""
        return self.sides[name].device

    def link(self, direction):
        """The :class:`~weft.tb.world.link.LinkDirection` ``"a_to_b"`` or ``"b_to_a"``."""
        return self.sides[direction[0]].link

    @property
    def frames_in_flight(self):
        """Frames on the link or waiting in a receiving MAC."""
        return sum(side.link.in_flight + side.mac_rx.waiting for side in self.sides.values())

    def finish(self):
        """Close the captures and check what is checked at the end."""
        self._captures.close()
        for side in self.sides.values():
            assert not side.host.complaints or not side.host.strict, side.host.complaints
