"""Which MAC address the hosts on the link have, by their IP: given, or asked for with ARP."""

from ..protocol import arp

ASK_NS = 1_000_000     # until the first question is repeated; each further one waits twice as long
ASKS = 9               # half a second in all


class Neighbours:
    """Neighbours of a card.

    Only what somebody wants to know is learned: from an answer to a question of this host, or from a question to it.
    What is known stays.

    Parameters
    ----------
    mac, ip : int
        Of this host: it answers for them.
    send : callable(frame)
    found : callable(ip, mac)
        A neighbour that was wanted is known now.
    missing : callable(ip)
        It did not answer.
    """

    def __init__(self, mac, ip, *, send, found, missing):
        self.mac, self.ip = mac, ip
        self._send, self._found, self._missing = send, found, missing
        self._known = {ip: mac}
        self._asked = {}    # ip -> [questions asked, when the next one is due]

    def add(self, ip, mac):
        """Say what is known anyhow."""
        self._known[ip] = mac
        if self._asked.pop(ip, None) is not None:
            self._found(ip, mac)

    def find(self, ip):
        """MAC address, or None if it is not known."""
        return self._known.get(ip)

    def want(self, ip, now):
        """Ask for a neighbour that is not known, unless that was done already."""
        if ip not in self._known:
            self._asked.setdefault(ip, [0, now])

    def on_frame(self, frame):
        """An ARP frame from the network."""
        if (reply := arp.answer(frame, self.mac, self.ip)) is not None:
            self._send(reply)
        said = arp.parse(frame, self.mac)
        if said is not None and said.tpa == self.ip and said.spa in self._asked:
            self.add(said.spa, said.sha)

    @property
    def deadline(self):
        """When :meth:`progress` wants to be called, or None."""
        return min((due for _, due in self._asked.values()), default=None)

    def progress(self, now):
        """Ask what is due, and give up what was asked often enough."""
        for ip, (asked, due) in list(self._asked.items()):
            if now < due:
                continue
            if asked == ASKS:
                del self._asked[ip]
                self._missing(ip)
            else:
                self._asked[ip] = [asked + 1, now + (ASK_NS << asked)]
                self._send(arp.question(self.mac, self.ip, ip))

    def forget(self):
        """The card was reset: nobody waits for an answer any more."""
        self._asked.clear()
