"""Two hosts, two cards and an impaired link: the environment of the end-to-end benches."""

import gc
import random
from dataclasses import dataclass, field
from pathlib import Path

import cocotb
from cocotb.triggers import ClockCycles, Timer

from weft.hdl.contract.params import preset
from weft.hdl.mac.reset_release import HOLD_LOG2
from weft.model.link import Link, LinkConfig
from weft.tb.sim.link.mac import MacRx, MacTx
from weft.tb.sim.link.pcap import Captures
from weft.tb.sim.link.simulator_loop import SimulatorLoop
from weft.tb.sim.pair.two_cards import SIDES
from weft.tb.sim.pcie.card_device import CardDevice
from weft.tb.sim.pcie.hard_block import HardBlock
from weft.tb.sim.pcie.host import Host, HostConfig
from weft.tb.sim.stream.bus import Bus
from weft.tb.sim.stream.clock import phase_ps, ports, start_clock, start_clocks
from weft.tb.sim.stream.stream import Ticker

MAC_IDLE_BYTES = 8 * 1100
GC_ALLOCATIONS = 100_000
# Periods of unrelated clocks, one per side: 250 MHz +500 and -500 ppm, 322.265625 MHz +332 and -312 ppm. The resolution
# of the simulators is 1 ps, and Ethernet allows only smaller differences; these pass through all phases soon.
CARD_PS, MAC_PS = (3998, 4002), (3102, 3104)
MAC_DOWN_NS = 60
RESET_CYCLES = 8 + (1 << HOLD_LOG2)     # covers the cycles for which the card holds its MAC's reset
CLOCKS = "cards at 250 MHz ± 500 ppm, MACs at 322.27 MHz + 332 and - 312 ppm"


@dataclass(frozen=True)
class EnvConfig:
    """Parameters of :class:`TwoCards`.

    Attributes
    ----------
    host : HostConfig
        Settings of both hosts.
    mac_idle : float
        Probability after each frame that the sending MAC is idle for the time of up to eight full frames.
    vectors, straddle
        ``msix_vectors`` and ``straddle`` of the cards' ``CardParams``.
    pcap_folder : Path, optional
        Folder of four captures: ``a_to_b.sent.pcap``, ``a_to_b.arrived.pcap`` and the same for ``b_to_a``.
    """

    a_to_b: LinkConfig = LinkConfig(delay_ns=10_000)
    b_to_a: LinkConfig = LinkConfig(delay_ns=10_000)
    host: HostConfig = field(default_factory=HostConfig)
    mac_idle: float = 0.0
    vectors: int = preset("test").msix_vectors
    straddle: bool = False
    pcap_folder: Path | None = None


@dataclass
class Side:
    """One side: host, hard block, MAC, and the link direction on which it sends."""

    name: str
    host: Host
    hard_block: HardBlock
    mac_tx: MacTx
    mac_rx: MacRx
    link: Link
    device: CardDevice | None = None


class TwoCards:
    """Environment around module ``two_cards``; a bench starts it, runs the applications, and compares.

    ``config`` is an :class:`EnvConfig`, ``seed`` that of memory placement, latencies and the link.

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

    device_type, host_type = CardDevice, Host

    def __init__(self, dut, config=None, seed=0, names=SIDES):
        self.dut, self.config, self.seed, self.names = dut, config or EnvConfig(), seed, tuple(names)
        self.sides = {}
        self.loop, self._captures = SimulatorLoop(), Captures(self.config.pcap_folder)

    async def start(self):
        """Start clocks, reset and models, and enumerate both hosts."""
        dut, config = self.dut, self.config
        await self._start_clocks()
        for name in self.names:
            ticker, mac_ticker = Ticker.of(self.clock(name)), Ticker.of(self.mac_clock(name))
            rng = random.Random(f"{self.seed}/host {name}")
            link = self._link_of(name)
            # A host begins before its hard block, so that in each cycle both act in this order.
            self.sides[name] = Side(
                name, self.host_type(config.host, rng),
                HardBlock(dut, f"{name}_", ticker, config.vectors, straddle=config.straddle),
                MacTx(Bus(dut, f"{name}_m_axis_tx", mac_ticker), link.send),
                MacRx(Bus(dut, f"{name}_s_axis_rx", mac_ticker)), link)
        self._hold_back()
        for side in self.sides.values():
            side.host.plug(side.hard_block)
        starts = [cocotb.start_soon(side.host.start(config.vectors)) for side in self.sides.values()]
        for start in starts:
            await start
        for side in self.sides.values():
            side.hard_block.configured()
            side.device = self.device_type(side.host)
        # Objects created so far are permanent; collecting garbage among them takes a twentieth of a run.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_ALLOCATIONS)

    async def _start_clocks(self):
        """Start one clock for everything, or one per card and one per MAC, depending on the ports of the cards."""
        if not self.two_clocks:
            await start_clock(self.dut)
            return
        rng, clocks = random.Random(f"{self.seed}/clocks"), {}
        for periods, port in ((CARD_PS, "clk"), (MAC_PS, "mac_clk")):
            for side, period in zip(SIDES, rng.sample(periods, len(SIDES)), strict=True):
                clocks[f"{side}_{port}"] = period, phase_ps(rng, period, odd=port == "mac_clk")
        cocotb.log.debug("periods and phases in ps: %s", clocks)
        await start_clocks(self.dut, clocks, ("rst", *(f"{side}_mac_rst" for side in SIDES)))
        for side in SIDES:
            getattr(self.dut, f"{side}_mac_up").value = 1

    @property
    def two_clocks(self):
        """Return whether the cards have ``CardParams.mac_clock``."""
        return f"{SIDES[0]}_mac_clk" in ports()

    def clock(self, name):
        """Return the clock of a side's card."""
        return getattr(self.dut, f"{name}_clk" if self.two_clocks else "clk")

    def mac_clock(self, name):
        """Return the clock of a side's MAC."""
        return getattr(self.dut, f"{name}_mac_clk" if self.two_clocks else "clk")

    async def reset_mac(self, name):
        """Reset the MAC of a side at any time: its frames, and those that come during the reset, are lost."""
        side, reset = self.sides[name], getattr(self.dut, f"{name}_mac_rst")
        for mac in (side.mac_tx, side.mac_rx):
            mac.stop()
        reset.value = 1
        await Timer(MAC_DOWN_NS, "ns")
        reset.value = 0
        await ClockCycles(self.mac_clock(name), RESET_CYCLES)
        for mac in (side.mac_tx, side.mac_rx):
            mac.go_on()

    def _hold_back(self):
        """Set up random back pressure as the configuration requests."""
        config = self.config
        for side in self.sides.values():
            rng = random.Random(f"{self.seed}/pauses {side.name}")
            if config.mac_idle:
                side.mac_tx.idle_bytes = lambda rng=rng: (
                    rng.randrange(MAC_IDLE_BYTES) if rng.random() < config.mac_idle else 0)
            if config.host.stall:
                side.hard_block.stall(config.host.stall, rng)

    def _link_of(self, name):
        """Return the link on which a side sends."""
        direction = "a_to_b" if name == "a" else "b_to_a"
        return Link(self.loop, self._deliver_to("b" if name == "a" else "a"), getattr(self.config, direction),
                    f"{self.seed}/{direction}", *self._captures.taps(direction))

    def _deliver_to(self, name):
        return lambda frame: self.sides[name].mac_rx.receive(frame)

    def host(self, name):
        """Return the :class:`~weft.tb.sim.pcie.host.Host` of side ``"a"`` or ``"b"``."""
        return self.sides[name].host

    def device(self, name):
        """Return the driver's :class:`~weft.driver.device.device.Device` of side ``"a"`` or ``"b"``."""
        return self.sides[name].device

    def link(self, direction):
        """Return the :class:`~weft.model.link.Link` ``"a_to_b"`` or ``"b_to_a"``."""
        return self.sides[direction[0]].link

    @property
    def frames_in_flight(self):
        """Return the number of frames on the link or queued in a receiving MAC."""
        return sum(side.link.in_flight + side.mac_rx.waiting for side in self.sides.values())

    def finish(self):
        """Close the captures and perform the final checks."""
        self._captures.close()
        for side in self.sides.values():
            assert not side.host.complaints or not side.host.strict, side.host.complaints
