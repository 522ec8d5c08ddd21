"""Revocation of memory windows."""


class WindowRevocation:
    """Memory windows of one side of a QP that the card must remove.

    Parameters
    ----------
    windows : WindowTable
    wake : callable
        Called after each removal.

    Attributes
    ----------
    leaving : int
        Windows that the card may still have.
    """

    def __init__(self, windows, wake):
        self._windows, self._wake = windows, wake
        self.leaving = 0

    def take(self, owner, gone=lambda: None):
        """Revoke all ``windows`` of an operation. ``gone()`` is called after each removal."""
        windows, owner.windows = owner.windows, []

        def window_closed():
            self.leaving -= 1
            gone()
            self._wake()

        self.leaving += len(windows)
        for window in windows:
            self._windows.close(window, window_closed)

    def forget(self, owners):
        """Drop all windows of these operations: the card was reset and has none."""
        self.leaving = 0
        for owner in owners:
            owner.windows = []
