"""Commands to the card: several in flight, told apart by their tag."""

import errno

from weft.hdl import abi

from ..device.health import DeviceFatal
from ..terms.errors import PyverbsRDMAError


class CommandError(PyverbsRDMAError):
    """The card refused a command.

    Attributes
    ----------
    opcode, status
        What was asked and how it ended.
    """

    def __init__(self, opcode, status):
        super().__init__(f"{abi.CommandOpcode(opcode).name} failed: {getattr(status, 'name', status)}", errno.EIO)
        self.opcode, self.status = opcode, status


class CommandTimeout(PyverbsRDMAError):
    """The card did not answer yet: it may still do what it was asked, and use memory that it was told of.

    Attributes
    ----------
    pending : PendingCommand
        For :meth:`CommandQueue.finish`.
    """

    def __init__(self, pending, timeout_ns):
        super().__init__(f"{pending.opcode.name}: no response within {timeout_ns} ns", errno.ETIMEDOUT)
        self.pending = pending


class PendingCommand:
    """A command that somebody waits for.

    Attributes
    ----------
    response : namespace or None
        The card's.
    forgotten : bool
        The card was reset instead.
    """

    def __init__(self, opcode):
        self.opcode, self.response, self.forgotten = abi.CommandOpcode(opcode), None, False

    def __call__(self, response):
        self.response = response


class CommandQueue:
    """The COMMAND ring and its RESPONSE ring.

    Parameters
    ----------
    device : Device
    ring, responses : HostToCardRing, CardToHostRing
    drain : callable
        Called while somebody waits: the card may need room elsewhere before it can answer, or be gone.
    timeout_ns : int
        How long :meth:`call` waits.

    Attributes
    ----------
    fatal : str or None
        Why the card takes no command until it is reset.
    """

    POLL_NS = 2_000

    def __init__(self, device, ring, responses, *, drain=lambda: None, timeout_ns=100_000_000):
        self.device, self.ring, self.responses, self.timeout_ns = device, ring, responses, timeout_ns
        self.drain, self.fatal = drain, None
        self._tag = 0
        self._waiting = {}     # tag -> callback(response)
        self._backlog = []     # (fields, callback) that found the ring full

    def submit(self, opcode, done=None, **fields):
        """Queue a command; ``done(response)`` is called from :meth:`progress`.

        Raises
        ------
        DeviceFatal
        """
        if self.fatal is not None:
            raise DeviceFatal(self.fatal)
        self._backlog.append((opcode, fields, done))
        self._push()

    @property
    def waiting(self):
        """Some command was not answered yet."""
        return bool(self._waiting or self._backlog)

    def _push(self):
        while self._backlog and self.ring.room and len(self._waiting) < min(self.ring.depth, self.responses.depth):
            opcode, fields, done = self._backlog.pop(0)
            self._tag = (self._tag + 1) % (1 << 16)
            self._waiting[self._tag] = done
            self.ring.push(abi.COMMAND.pack(opcode=opcode, tag=self._tag, **fields))
        self.ring.ring_doorbell()

    def forget(self):
        """No command waits for an answer any more: the card was reset."""
        for done in [*self._waiting.values(), *(done for _, _, done in self._backlog)]:
            if isinstance(done, PendingCommand):
                done.forgotten = True
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
            If no answer came. What the command speaks of belongs to the card until :meth:`finish` says otherwise.
        DeviceFatal
            If the card failed.
        """
        pending = PendingCommand(opcode)
        self.submit(opcode, pending, **fields)
        return self.finish(pending)

    def finish(self, pending):
        """Wait, once more, for the answer to a command and return it; None if the card was reset meanwhile.

        Raises
        ------
        CommandError, CommandTimeout, DeviceFatal
            As :meth:`call`.
        """
        deadline = self.device.now_ns() + self.timeout_ns
        while pending.response is None and not pending.forgotten:
            self.drain()
            if self.progress():
                continue
            if self.device.now_ns() >= deadline:
                raise CommandTimeout(pending, self.timeout_ns)
            self.responses.arm()
            self.device.wait(self.POLL_NS)
        response = pending.response
        if response is None and self.fatal is not None:
            raise DeviceFatal(self.fatal)
        if response is not None and response.status is not abi.CommandStatus.OK:
            raise CommandError(pending.opcode, response.status)
        return response
