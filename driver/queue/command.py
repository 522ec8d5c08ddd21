"""Command queue of the card: several commands in flight, identified by tags."""

import errno
from dataclasses import dataclass

from weft.hdl.contract import abi

from ..device.health import DeviceFatal
from ..terms.errors import PyverbsRDMAError


class CommandError(PyverbsRDMAError):
    """The card rejected a command.

    Attributes
    ----------
    opcode, status
        Of the command and its response.
    """

    def __init__(self, opcode, status):
        super().__init__(f"{abi.CommandOpcode(opcode).name} failed: {getattr(status, 'name', status)}", errno.EIO)
        self.opcode, self.status = opcode, status


class CommandTimeout(PyverbsRDMAError):
    """The card has not responded yet: it may still execute the command, and use memory that the command names.

    Attributes
    ----------
    pending : PendingCommand
        For :meth:`CommandQueue.finish`.
    """

    def __init__(self, pending, timeout_ns):
        super().__init__(f"{pending.opcode.name}: no response within {timeout_ns} ns", errno.ETIMEDOUT)
        self.pending = pending


class PendingCommand:
    """A command whose response a thread waits for.

    Attributes
    ----------
    response : namespace or None
        Response of the card.
    forgotten : bool
        The card was reset before a response.
    """

    def __init__(self, opcode):
        self.opcode, self.response, self.forgotten = abi.CommandOpcode(opcode), None, False

    def __call__(self, response):
        self.response = response


@dataclass
class _Submission:
    """A command without a response."""

    opcode: abi.CommandOpcode
    fields: dict
    done: object          # callable(response) or None
    failed: object        # callable(exception) or None
    times: int = 0        # it was pushed into the ring


class CommandQueue:
    """COMMAND ring and RESPONSE ring.

    The card responds in ring order. If it consumes a command without a response, it could not read the command and did
    not execute it. Such a command is submitted again, up to :attr:`TIMES_MAX` times in total.

    Parameters
    ----------
    device : Device
    ring, responses : HostToCardRing, CardToHostRing
    timeout_ns : int
        Time-out of :meth:`call`.
    drain : callable
        Called during a wait: the card may need space in another ring before it can respond, or may have failed.
    card_cons : callable
        Returns the consumer index of the COMMAND ring that the card reports.
    fail : callable(reason)
        Called when responses do not match the commands.

    Attributes
    ----------
    fatal : str or None
        Reason for which the card accepts no command until it is reset.
    repeated : int
        Commands submitted again.
    pause : callable(timeout_ns)
        Waits for the card.
    observers : list of callable(opcode, fields)
        Called for every command that the card executed.
    """

    POLL_NS = 2_000
    OVERDUE_NS = 20_000     # a response may arrive later than the consumer index that covers its command
    TIMES_MAX = 4

    def __init__(self, device, ring, responses, *, timeout_ns, drain=lambda: None,
                 card_cons=lambda: 0, fail=lambda reason: None):
        self.device, self.ring, self.responses, self.timeout_ns = device, ring, responses, timeout_ns
        self.drain, self.card_cons, self.fail, self.fatal, self.repeated = drain, card_cons, fail, None, 0
        self.observers, self.pause = [], device.wait
        self._tag = 0
        self._waiting = {}     # tag -> _Given, in order of the ring
        self._backlog = []     # of _Given, waiting for ring space
        self._passed_at = None  # first time at which a consumed command had no response

    def submit(self, opcode, done=None, failed=None, **fields):
        """Queue a command. :meth:`progress` calls ``done(response)``, and ``failed(exception)`` if that raises one.

        Raises
        ------
        DeviceFatal
        """
        if self.fatal is not None:
            raise DeviceFatal(self.fatal)
        self._backlog.append(_Submission(opcode, fields, done, failed))
        self._push()

    @property
    def waiting(self):
        """True if a command has no response yet."""
        return bool(self._waiting or self._backlog)

    @property
    def unanswered(self):
        """The containers of commands without a response: in the ring, and waiting for ring space."""
        return self._waiting, self._backlog

    def _push(self):
        while self._backlog and self.ring.space and len(self._waiting) < min(self.ring.depth, self.responses.depth):
            given = self._backlog.pop(0)
            given.times += 1
            self._tag = (self._tag + 1) % (1 << 16)
            self._waiting[self._tag] = given
            self.ring.push(abi.COMMAND.pack(opcode=given.opcode, tag=self._tag, **given.fields))
        self.ring.ring_doorbell()

    def forget(self):
        """Drop all commands: the card was reset."""
        for given in (*self._waiting.values(), *self._backlog):
            if isinstance(given.done, PendingCommand):
                given.done.forgotten = True
        self._waiting.clear()
        self._backlog.clear()
        self._passed_at = None

    def progress(self):
        """Process responses. Return true if there were any.

        The first exception of a command without ``failed`` is raised again after all responses are processed.
        """
        entries, error = self.responses.poll(), None
        for entry in entries:
            response = abi.RESPONSE.unpack(entry)
            if response.tag not in self._waiting:
                self.fail(f"the card answered a command with tag {response.tag}, which none has")
                return True
            while next(iter(self._waiting), response.tag) != response.tag:
                self._submit_again()
            if self.fatal is not None:
                return True
            try:
                self._answered(self._retire(), response)
            except Exception as raised:
                error = error or raised
        if entries:
            self._passed_at = None
            self.responses.release()
            self._push()
        elif self._waiting:
            self._look_for_passed()
        if error is not None:
            raise error
        return bool(entries)

    def _answered(self, given, response):
        """Report a response to those that it concerns."""
        try:
            if response.status is abi.CommandStatus.OK:
                for observer in self.observers:
                    observer(given.opcode, given.fields)
            if given.done is not None:
                given.done(response)
        except Exception as problem:
            if given.failed is None:
                raise
            given.failed(problem)

    def _retire(self):
        """Remove the oldest command from the ring, and return it."""
        self.ring.advance(self.ring.cons + 1)
        return self._waiting.pop(next(iter(self._waiting)))

    def _submit_again(self):
        """Submit the oldest command again, which the card could not read."""
        given = self._retire()
        self._backlog.append(given)
        self.repeated += 1
        if given.times >= self.TIMES_MAX:
            self.fail(f"the card could not read a command, {given.opcode.name}, {given.times} times")

    def _look_for_passed(self):
        """Submit commands again that the card consumed :attr:`OVERDUE_NS` ago without a response."""
        now = self.device.now_ns()
        if not self._passed():
            self._passed_at = None
        elif self._passed_at is None:
            self._passed_at = now
        elif now - self._passed_at >= self.OVERDUE_NS:
            self._passed_at = None
            while self._passed():
                self._submit_again()
            self._push()

    def _passed(self):
        """Return true if the card has consumed commands that wait for a response.

        The consumer index may be older than the responses that were processed: the card writes it after them.
        """
        return 0 < self.ring.finished(self.card_cons()) <= len(self._waiting)

    def call(self, opcode, **fields):
        """Run a command and return its response.

        Raises
        ------
        CommandError
            With the status that the card returned.
        CommandTimeout
            If there is no response. The objects of the command belong to the card until :meth:`finish` succeeds.
        DeviceFatal
            If the card failed.
        """
        pending = PendingCommand(opcode)
        self.submit(opcode, pending, **fields)
        return self.finish(pending)

    def finish(self, pending):
        """Wait again for the response to a command. Return it, or None if the card was reset.

        Raises
        ------
        CommandError, CommandTimeout, DeviceFatal
            As :meth:`call`.
        """
        deadline = self.device.now_ns() + self.timeout_ns
        while pending.response is None and not pending.forgotten:
            late = self.device.now_ns() >= deadline     # before the look: in between, the process may stand still
            self.drain()
            if self.progress():
                continue
            if late:
                raise CommandTimeout(pending, self.timeout_ns)
            self.responses.arm()
            self.pause(self.POLL_NS)
        response = pending.response
        if response is None and self.fatal is not None:
            raise DeviceFatal(self.fatal)
        if response is not None and response.status is not abi.CommandStatus.OK:
            raise CommandError(pending.opcode, response.status)
        return response


class RememberedCommand:
    """Sequential commands for one object, of which the last one may have no response yet.

    Parameters
    ----------
    commands : CommandQueue
    """

    def __init__(self, commands):
        self.commands = commands
        self.pending = None

    def call(self, opcode, **fields):
        """Run a command as :meth:`~weft.driver.queue.command.CommandQueue.call`. After a time-out, call :meth:`settle`.
        """
        try:
            return self.commands.call(opcode, **fields)
        except CommandTimeout as timeout:
            self.pending = timeout.pending
            raise

    def settle(self):
        """Wait for the outstanding response. Return (opcode, true if it was executed), or None if none is outstanding.

        Raises
        ------
        CommandTimeout
            If there is still no response.
        """
        pending = self.pending
        if pending is None:
            return None
        try:
            done = self.commands.finish(pending) is not None
        except CommandError:
            done = False
        self.pending = None
        return pending.opcode, done
