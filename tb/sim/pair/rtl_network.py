"""Hosts on a fabric with a card as RTL each."""

from functools import partial

from weft.model.fabric.frame.on_loop import LoopFabric
from weft.model.link import Link
from weft.tb.sim.pair.network import WIRE, Network, fabric_of, sides_of
from weft.tb.sim.pair.rtl_pair import RtlPair
from weft.tb.sim.pair.settings import BySide
from weft.tb.sim.pair.two_hosts import TwoCards


class CardsOnFabric(TwoCards):
    """:class:`TwoCards` around the module of more cards: see :func:`~weft.tb.sim.pair.two_cards.top_of`."""

    def __init__(self, dut, config, seed, network):
        super().__init__(dut, config, seed, sides_of(network))
        self.network, self.fabric, self.inbound = network, fabric_of(network, seed), BySide()
        self._carrier = LoopFabric(self.loop, self.fabric, lambda host, frame: self.inbound[host].send(frame))

    def _link_of(self, name):
        number = len(self.inbound)
        host = self.network.hosts[number]
        sent, arrived = self._captures.taps(host)
        self.inbound.append(Link(self.loop, self._deliver_to(name), WIRE, f"{self.seed}/{host}", None, arrived))
        return Link(self.loop, partial(self._carrier.send, number), WIRE, f"{self.seed}/{host}", sent)

    @property
    def frames_in_flight(self):
        return super().frames_in_flight + self.fabric.in_flight + sum(link.in_flight for link in self.inbound)


class RtlNetwork(Network, RtlPair):
    """:class:`RtlPair` with more than two hosts."""

    def __init__(self, dut, env_config, context_config, network, **options):
        self.network = network
        super().__init__(dut, env_config, context_config, sides=sides_of(network), **options)
        self.fabric, self.inbound = self.env.fabric, self.env.inbound

    def _made(self, dut, env_config, seed):
        return CardsOnFabric(dut, env_config, seed, self.network)
