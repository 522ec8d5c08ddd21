"""TIME-WAIT: destroyed QPs that still respond to probes of their peers."""

from weft.hdl.contract import abi


class TimeWait:
    """Destroyed QPs in TIME-WAIT.

    A program destroys its QP when the last message was received and acknowledged. If that acknowledgement is lost, the
    peer probes, and without a response its requests would complete with RETRY_EXC_ERR although they were executed.
    Therefore the card keeps the most recent such QPs in ERR: it drops the peer's packets and reports its probes, and if
    everything that the peer sent was acknowledged, the driver repeats that acknowledgement. These QPs are freed when
    new ones need space, oldest first, and have no timer.

    Corresponds to TIME-WAIT of TCP (RFC 9293, 3.3.2). TimeWait of InfiniBand (volume 1, 12.9.8.3) only reserves the
    number.

    Parameters
    ----------
    card : CardEngine
    most : int
        Largest number of QPs to keep; 0 keeps none.
    """

    def __init__(self, card, most):
        self._card, self.most = card, most
        self._commands = {}      # QpEngine -> its RememberedCommand; oldest first

    def __len__(self):
        return len(self._commands)

    def takes(self, qp):
        """Return true if ``qp``, which is about to be destroyed, must be kept."""
        return bool(self.most and qp.on_card and not qp.looped and qp.receiver.all_acknowledged
                    and qp.path.mac is not None)

    def add(self, qp, commands):
        """Keep ``qp``, which is in ERR and has nothing in flight.

        Raises
        ------
        CommandError, CommandTimeout, DeviceFatal
            If the card does not confirm that the oldest QP is destroyed.
        """
        while len(self) >= self.most:
            self._end_oldest()
        qp.enter_time_wait()
        self._commands[qp] = commands

    def make_space(self):
        """Free the oldest QP if every number is in use."""
        if self._commands and self._card.qps.full:
            self._end_oldest()

    def end(self):
        """Free all QPs."""
        while self._commands:
            self._end_oldest()

    def _end_oldest(self):
        qp, commands = next(iter(self._commands.items()))
        if qp.on_card and commands.settle() != (abi.CommandOpcode.QP_DESTROY, True):
            commands.call(abi.CommandOpcode.QP_DESTROY, qpn=qp.qp_num)
        qp.stop()
        self._card.qps.free_number(qp.qp_num)
        del self._commands[qp]

    def forget(self):
        """Free all numbers after a reset of the card, which no longer has the QPs."""
        for qp in self._commands:
            self._card.qps.free_number(qp.qp_num)
        self._commands.clear()
