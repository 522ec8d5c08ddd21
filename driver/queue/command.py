"""Commands to the card: several in flight, told apart by their tag."""

import errno
from dataclasses import dataclass

from weft.hdl.contract import abi

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


@dataclass
class _Given:
    """A command, until it is answered."""

    opcode: abi.CommandOpcode
    fields: dict
    done: object          # callable(response) or None
    times: int = 0        # it was put into the ring


class CommandQueue:
    """The COMMAND ring and its RESPONSE ring.

    Commands are answered in order of the ring. A command without an answer whose place the card has passed could not
    be read, and was not carried out: it is given again, :attr:`TIMES_MAX` times at most.

    Parameters
    ----------
    device : Device
    ring, responses : HostToCardRing, CardToHostRing
    drain : callable
        Called while somebody waits: the card may need room elsewhere before it can answer, or be gone.
    timeout_ns : int
        How long :meth:`call` waits.
    card_cons : callable
        Consumer index of the COMMAND ring, as the card tells it.
    fail : callable(reason)
        Called when card and driver do not agree any more about what was asked.

    Attributes
    ----------
    fatal : str or None
        Why the card takes no command until it is reset.
    repeated : int
        Commands given again.
    pause : callable(timeout_ns)
        Waits for the card.
    observers : list of callable(opcode, fields)
        Hear of every command that the card did.
    """

    POLL_NS = 2_000
    OVERDUE_NS = 20_000     # an answer may come later than the index that says that the card has passed the command
    TIMES_MAX = 4

    def __init__(self, device, ring, responses, *, drain=lambda: None, timeout_ns=100_000_000,
                 card_cons=lambda: 0, fail=lambda reason: None):
        self.device, self.ring, self.responses, self.timeout_ns = device, ring, responses, timeout_ns
        self.drain, self.card_cons, self.fail, self.fatal, self.repeated = drain, card_cons, fail, None, 0
        self.observers, self.pause = [], device.wait
        self._tag = 0
        self._waiting = {}     # tag -> _Given, in order of the ring
        self._backlog = []     # of _Given: those that found the ring full
        self._passed_at = None  # when the card was first seen to have passed a command without an answer

    def submit(self, opcode, done=None, **fields):
        """Queue a command; ``done(response)`` is called from :meth:`progress`.

        Raises
        ------
        DeviceFatal
        """
        if self.fatal is not None:
            raise DeviceFatal(self.fatal)
        self._backlog.append(_Given(opcode, fields, done))
        self._push()

    @property
    def waiting(self):
        """Some command was not answered yet."""
        return bool(self._waiting or self._backlog)

    @property
    def unanswered(self):
        """The containers of those: given to the card, and not."""
        return self._waiting, self._backlog

    def _push(self):
        while self._backlog and self.ring.room and len(self._waiting) < min(self.ring.depth, self.responses.depth):
            given = self._backlog.pop(0)
            given.times += 1
            self._tag = (self._tag + 1) % (1 << 16)
            self._waiting[self._tag] = given
            self.ring.push(abi.COMMAND.pack(opcode=given.opcode, tag=self._tag, **given.fields))
        self.ring.ring_doorbell()

    def forget(self):
        """No command waits for an answer any more: the card was reset."""
        for given in (*self._waiting.values(), *self._backlog):
            if isinstance(given.done, PendingCommand):
                given.done.forgotten = True
        self._waiting.clear()
        self._backlog.clear()
        self._passed_at = None

    def progress(self):
        """Take responses; true if there were any."""
        entries = self.responses.poll()
        for entry in entries:
            response = abi.RESPONSE.unpack(entry)
            if response.tag not in self._waiting:
                self.fail(f"the card answered a command with tag {response.tag}, which none has")
                return True
            while next(iter(self._waiting), response.tag) != response.tag:
                self._give_again()
            if self.fatal is not None:
                return True
            given = self._retire()
            if response.status is abi.CommandStatus.OK:
                for observer in self.observers:
                    observer(given.opcode, given.fields)
            if given.done is not None:
                given.done(response)
        if entries:
            self._passed_at = None
            self.responses.release()
            self._push()
        elif self._waiting:
            self._look_for_passed()
        return bool(entries)

    def _retire(self):
        """The oldest command is not in the ring any more."""
        self.ring.advance(self.ring.cons + 1)
        return self._waiting.pop(next(iter(self._waiting)))

    def _give_again(self):
        """The card could not read the oldest command."""
        given = self._retire()
        self._backlog.append(given)
        self.repeated += 1
        if given.times >= self.TIMES_MAX:
            self.fail(f"the card could not read a command, {given.opcode.name}, {given.times} times")

    def _look_for_passed(self):
        """Give again what the card passed without an answer, some time ago."""
        now = self.device.now_ns()
        if not self.ring.finished(self.card_cons()):
            self._passed_at = None
        elif self._passed_at is None:
            self._passed_at = now
        elif now - self._passed_at >= self.OVERDUE_NS:
            self._passed_at = None
            while self._waiting and self.ring.finished(self.card_cons()):
                self._give_again()
            self._push()

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
            self.pause(self.POLL_NS)
        response = pending.response
        if response is None and self.fatal is not None:
            raise DeviceFatal(self.fatal)
        if response is not None and response.status is not abi.CommandStatus.OK:
            raise CommandError(pending.opcode, response.status)
        return response
