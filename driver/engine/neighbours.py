"""MAC addresses of the hosts on the link by IP address: configured, or resolved with ARP."""

from ..protocol import arp

ASK_NS = 1_000_000     # until the first request is repeated; the interval doubles with each request
ASKS = 9               # half a second in total
CLAIM_ASKS = 3         # requests that the known address must leave unanswered before a claim is accepted: 7 ms
CLAIMS_MAX = 64        # addresses with a pending claim


class Neighbours:
    """Neighbour table of a card.

    Only requested addresses are learned: from a reply to this host, or from a request to it. An entry stays until
    another host claims its IP address. Then the address is requested again, and the entry changes if only the new host
    replies.

    Parameters
    ----------
    mac, ip : int
        Of this host, which answers requests for them.
    send : callable(frame)
    found : callable(ip, mac)
        Called when a requested neighbour is resolved.
    missing : callable(ip)
        Called when a requested neighbour did not reply.

    Attributes
    ----------
    asked : dict
        IP -> [requests sent, time of the next one].
    """

    def __init__(self, mac, ip, *, send, found, missing):
        self.mac, self.ip = mac, ip
        self._send, self._found, self._missing = send, found, missing
        self._known = {ip: mac}
        self.asked = {}
        self._claims = {}   # ip -> MAC address of another host that claims it

    def add(self, ip, mac):
        """Add an entry."""
        self._known[ip] = mac
        self._claims.pop(ip, None)
        if self.asked.pop(ip, None) is not None:
            self._found(ip, mac)

    def find(self, ip):
        """Return the MAC address, or None if it is unknown."""
        return self._known.get(ip)

    def want(self, ip, now):
        """Request an unknown neighbour, unless a request is pending."""
        if ip not in self._known:
            self.asked.setdefault(ip, [0, now])

    def on_frame(self, frame):
        """Handle an ARP frame from the network."""
        if (reply := arp.answer(frame, self.mac, self.ip)) is not None:
            self._send(reply)
        packet = arp.parse(frame, self.mac)
        if packet is None or packet.spa == self.ip:
            return
        known = self._known.get(packet.spa)
        if known is None:
            if packet.tpa == self.ip and packet.spa in self.asked:
                self.add(packet.spa, packet.sha)
        elif packet.sha == known:
            if packet.tpa == self.ip and packet.spa in self._claims:
                del self._claims[packet.spa], self.asked[packet.spa]
        elif packet.spa in self._claims or len(self._claims) < CLAIMS_MAX:
            self._claims[packet.spa] = packet.sha
            self.asked.setdefault(packet.spa, [0, 0])

    @property
    def deadline(self):
        """Time at which :meth:`progress` must be called, or None."""
        return min(due for _, due in self.asked.values()) if self.asked else None

    def progress(self, now):
        """Send the requests that are due, and give up those that were sent often enough."""
        for ip, (asked, due) in list(self.asked.items()):
            if now < due:
                continue
            if asked == CLAIM_ASKS and ip in self._claims:
                self.add(ip, self._claims.pop(ip))
            elif asked == ASKS:
                del self.asked[ip]
                self._missing(ip)
            else:
                self.asked[ip] = [asked + 1, now + (ASK_NS << asked)]
                self._send(arp.question(self.mac, self.ip, ip))

    def forget(self):
        """Remove all pending requests, after a reset of the card."""
        self.asked.clear()
        self._claims.clear()
