"""Commands whose response is still outstanding after a time-out."""

from .command import CommandError, CommandTimeout


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
