"""Hosts on a fabric with a timed or functional card each."""

from functools import partial

from weft.model.fabric.description import Fabric
from weft.model.fabric.frame.fabric import FrameFabric
from weft.model.fabric.frame.on_loop import LoopFabric
from weft.model.link import Link, LinkConfig
from weft.model.loop import EventLoop
from weft.tb.sim.pair.loop_pair import LoopPair
from weft.tb.sim.pair.pair import Pair
from weft.tb.sim.pair.settings import LETTERS, MAC, BySide

WIRE = LinkConfig(delay_ns=0)       # from a card to the fabric, which has the delays


def sides_of(network):
    """Return the sides of the hosts of a description, in their order."""
    return tuple(LETTERS[:len(network.hosts)])


def fabric_of(network, seed):
    """Return the fabric between the cards of these sides."""
    return FrameFabric(network, [MAC[side].to_bytes(6) for side in sides_of(network)], f"{seed}/fabric")


class Network(Pair):
    """:class:`~weft.tb.sim.pair.pair.Pair` whose sides are hosts of a fabric.

    Attributes
    ----------
    network : Fabric
        Its description.
    fabric : FrameFabric
    inbound : BySide
        Link on which the frames of the fabric reach each side.
    """

    network: Fabric
    fabric: FrameFabric
    inbound: BySide

    def side(self, host):
        """Return the side of a host of the description."""
        return LETTERS[self.network.hosts.index(host)]

    def _watch_links(self):
        for side in self.sides:
            self._score(side, self.inbound[side])


class LoopNetwork(Network, LoopPair):
    """:class:`LoopPair` with more than two hosts; captures have the names of the description's hosts."""

    def __init__(self, device_type, context_config, network, **options):
        self.network = network
        super().__init__(device_type, context_config, sides=sides_of(network), **options)

    def _made(self, device_type, seed, **options):
        self.loop, self.fabric = EventLoop(), fabric_of(self.network, seed)
        devices = [device_type(self.loop, seed=f"{seed}/{side}", **options) for side in self.sides]
        carrier = LoopFabric(self.loop, self.fabric, lambda host, frame: self.inbound[host].send(frame))
        links, self.inbound = [], BySide()
        for number, (name, device) in enumerate(zip(self.network.hosts, devices, strict=True)):
            sent, arrived = self._captures.taps(name)
            links.append(Link(self.loop, partial(carrier.send, number), WIRE, f"{seed}/{name}", sent))
            self.inbound.append(Link(self.loop, device.card.receive, WIRE, f"{seed}/{name}", None, arrived))
            device.transmit = links[-1].send
        return devices, links

    @property
    def frames_in_flight(self):
        return super().frames_in_flight + self.fabric.in_flight + sum(link.in_flight for link in self.inbound)
