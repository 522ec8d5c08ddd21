"""What one side of a QP lent and takes back."""


class Returns:
    """Windows that the card is to take away, of all operations of one side.

    Parameters
    ----------
    windows : WindowTable
    wake : callable
        Called with each window that is gone.

    Attributes
    ----------
    leaving : int
        Windows that the card may still have.
    """

    def __init__(self, windows, wake):
        self._windows, self._wake = windows, wake
        self.leaving = 0

    def take(self, owner, gone=lambda: None):
        """Take all :attr:`windows` of an operation away; ``gone()`` is called with each."""
        windows, owner.windows = owner.windows, []

        def one_gone():
            self.leaving -= 1
            gone()
            self._wake()

        self.leaving += len(windows)
        for window in windows:
            self._windows.close(window, one_gone)

    def forget(self, owners):
        """The card was reset, and has no window of these operations, or any other."""
        self.leaving = 0
        for owner in owners:
            owner.windows = []
