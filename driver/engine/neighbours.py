"""Which MAC address the hosts on the link have, by their IP: given, or asked for with ARP."""

from ..protocol import arp

ASK_NS = 1_000_000     # until the first question is repeated; each further one waits twice as long
ASKS = 9               # half a second in all
CLAIM_ASKS = 3         # questions that the known one must leave unanswered before another one is believed: 7 ms
CLAIMS_MAX = 64        # addresses that are in doubt at a time


class Neighbours:
    """Neighbours of a card.

    Only what somebody wants to know is learned: from an answer to a question of this host, or from a question to it.
    What is known stays, until somebody else says that the address is his: then it is asked for again, and changes if
    only the new one answers.

    Parameters
    ----------
    mac, ip : int
        Of this host: it answers for them.
    send : callable(frame)
    found : callable(ip, mac)
        A neighbour that was wanted is known now.
    missing : callable(ip)
        It did not answer.

    Attributes
    ----------
    asked : dict
        IP -> [questions asked, when the next one is due].
    """

    def __init__(self, mac, ip, *, send, found, missing):
        self.mac, self.ip = mac, ip
        self._send, self._found, self._missing = send, found, missing
        self._known = {ip: mac}
        self.asked = {}
        self._claims = {}   # ip -> MAC address that somebody else than the known one says it has

    def add(self, ip, mac):
        """Say what is known anyhow."""
        self._known[ip] = mac
        if self.asked.pop(ip, None) is not None:
            self._found(ip, mac)

    def find(self, ip):
        """MAC address, or None if it is not known."""
        return self._known.get(ip)

    def want(self, ip, now):
        """Ask for a neighbour that is not known, unless that was done already."""
        if ip not in self._known:
            self.asked.setdefault(ip, [0, now])

    def on_frame(self, frame):
        """An ARP frame from the network."""
        if (reply := arp.answer(frame, self.mac, self.ip)) is not None:
            self._send(reply)
        said = arp.parse(frame, self.mac)
        if said is None or said.spa == self.ip:
            return
        known = self._known.get(said.spa)
        if known is None:
            if said.tpa == self.ip and said.spa in self.asked:
                self.add(said.spa, said.sha)
        elif said.sha == known:
            if said.tpa == self.ip and said.spa in self._claims:
                del self._claims[said.spa], self.asked[said.spa]
        elif said.spa in self._claims or len(self._claims) < CLAIMS_MAX:
            self._claims[said.spa] = said.sha
            self.asked.setdefault(said.spa, [0, 0])

    @property
    def deadline(self):
        """When :meth:`progress` wants to be called, or None."""
        return min(due for _, due in self.asked.values()) if self.asked else None

    def progress(self, now):
        """Ask what is due, and give up what was asked often enough."""
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
        """The card was reset: nobody waits for an answer any more."""
        self.asked.clear()
        self._claims.clear()
