"""QPs that their programs destroyed and that their peers may still ask."""

from weft.hdl.contract import abi


class Departed:
    """A program destroys its QP when the last message came and was acknowledged; but that acknowledgement may be lost,
    and then its peer, which asks again, would end with RETRY_EXC_ERR for what did arrive. So the card keeps the last of
    such QPs in ERR: it takes nothing of the peer and reports its probes, and if all that the peer sent had been
    acknowledged, that is said again. They make room for new ones, oldest first, and need no time of their own.

    It is what TIME-WAIT is to TCP (RFC 9293, 3.3.2); InfiniBand's TimeWait (volume 1, 12.9.8.3) only keeps the number.

    Parameters
    ----------
    card : CardEngine
    most : int
        That are kept; 0 keeps none.
    """

    def __init__(self, card, most):
        self._card, self.most = card, most
        self._commands = {}      # QpEngine -> its RememberedCommand; oldest first

    def __len__(self):
        return len(self._commands)

    def takes(self, qp):
        """``qp``, which is about to be destroyed, is worth being kept."""
        return bool(self.most and qp.on_card and not qp.looped and qp.receiver.all_acknowledged
                    and qp.path.mac is not None)

    def add(self, qp, commands):
        """Keep ``qp``, which is in ERR and of which nothing is in flight.

        Raises
        ------
        CommandError, CommandTimeout, DeviceFatal
            If the card does not confirm that the oldest one is gone.
        """
        while len(self) >= self.most:
            self._end_oldest()
        qp.depart()
        self._commands[qp] = commands

    def make_room(self):
        """For another QP, if every number is in use."""
        if self._commands and self._card.qps.full:
            self._end_oldest()

    def end(self):
        """All of them."""
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
        """The card was reset: it does not know them any more."""
        for qp in self._commands:
            self._card.qps.free_number(qp.qp_num)
        self._commands.clear()
