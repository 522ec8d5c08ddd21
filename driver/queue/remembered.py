"""A command that was not answered in time is still a command."""

from .command import CommandError, CommandTimeout


class RememberedCommand:
    """Commands about one object, one after the other; the last one may have stayed unanswered.

    Parameters
    ----------
    commands : CommandQueue
    """

    def __init__(self, commands):
        self.commands = commands
        self.pending = None

    def call(self, opcode, **fields):
        """As :meth:`~weft.driver.queue.command.CommandQueue.call`; if no answer comes, :meth:`settle` waits for it."""
        try:
            return self.commands.call(opcode, **fields)
        except CommandTimeout as timeout:
            self.pending = timeout.pending
            raise

    def settle(self):
        """Wait for the answer that did not come: (opcode, whether it was done), or None if none is missing.

        Raises
        ------
        CommandTimeout
            If it still does not come.
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
