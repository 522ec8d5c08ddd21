"""Commands to the card: several in flight, told apart by their tag."""

from weft.hdl import abi


class CommandError(Exception):
    """The card refused a command.

    Attributes
    ----------
    opcode, status
        What was asked and how it ended.
    """

    def __init__(self, opcode, status):
        super().__init__(f"{abi.CommandOpcode(opcode).name} failed: {getattr(status, 'name', status)}")
        self.opcode, self.status = opcode, status


class CommandTimeout(Exception):
    """The card did not answer."""


class CommandQueue:
    """The COMMAND ring and its RESPONSE ring.

    Parameters
    ----------
    device : Device
    ring, responses : HostToCardRing, CardToHostRing
    timeout_ns : int
        How long :meth:`call` waits.
    """

    POLL_NS = 2_000

    def __init__(self, device, ring, responses, *, timeout_ns=100_000_000):
        self.device, self.ring, self.responses, self.timeout_ns = device, ring, responses, timeout_ns
        self._tag = 0
        self._waiting = {}     # tag -> callback(response)
        self._backlog = []     # (fields, callback) that found the ring full

    def submit(self, opcode, done=None, **fields):
        """Queue a command; ``done(response)`` is called from :meth:`progress`."""
        self._backlog.append((opcode, fields, done))
        self._push()

    def _push(self):
        while self._backlog and self.ring.room and len(self._waiting) < min(self.ring.depth, self.responses.depth):
            opcode, fields, done = self._backlog.pop(0)
            self._tag = (self._tag + 1) % (1 << 16)
            self._waiting[self._tag] = done
            self.ring.push(abi.COMMAND.pack(opcode=opcode, tag=self._tag, **fields))
        self.ring.ring_doorbell()

    def forget(self):
        """No command waits for an answer any more: the card was reset."""
        self._waiting.clear()
        self._backlog.clear()

    def progress(self):
        """Take responses; true if there were any."""
        entries = self.responses.poll()
        for entry in entries:
            response = abi.RESPONSE.unpack(entry)
            if response.tag not in self._waiting:
                raise RuntimeError(f"response with tag {response.tag}, which no command has")
            self.ring.advance(self.ring.cons + 1)   # commands are answered in order of the ring
            done = self._waiting.pop(response.tag)
            if done is not None:
                done(response)
        if entries:
            self.responses.release()
            self._push()
        return bool(entries)

    def call(self, opcode, **fields):
        """Run a command and return its response.

        Raises
        ------
        CommandError
            With the status the card gave.
        CommandTimeout
            If no answer came.
        """
        answers = []
        self.submit(opcode, answers.append, **fields)
        deadline = self.device.now_ns() + self.timeout_ns
        while not answers:
            if self.progress():
                continue
            if self.device.now_ns() >= deadline:
                raise CommandTimeout(f"{abi.CommandOpcode(opcode).name}: no response within {self.timeout_ns} ns")
            self.responses.arm()
            self.device.wait(self.POLL_NS)
        response = answers[0]
        if response.status is not abi.CommandStatus.OK:
            raise CommandError(opcode, response.status)
        return response
