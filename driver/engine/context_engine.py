"""What moves everything on an open card: status, reports, frames and time in; work and doorbells out."""

from weft.hdl import abi

from ..queue.simple_nic import parse_control


class ContextEngine:
    """The part of a :class:`~weft.driver.verbs.context.Context` that makes progress, and waits for it."""

    def progress(self):
        """One round of everything, without waiting; true if something happened."""
        status = abi.STATUS_BLOCK.unpack(self._status.read(0, abi.BLOCK_BYTES))
        busy = self._turns.advance(status, self.device.now_ns())
        busy |= self.commands.progress()
        busy |= self.reports.progress()
        now = self.device.now_ns()
        for entry, frame in self.nic.poll():
            busy = True
            self._take_frame(entry, frame, now)
        for qp in self.qps.due(now):
            qp.progress(now)
            self._turns.offer(qp)
        self._turns.fill()
        self.nic.flush()
        self.knitting.balance(now)
        return busy or self.qps.any_active

    def _take_frame(self, entry, frame, now):
        control = parse_control(frame) if entry.roce else None
        qp = self.qps.find(control.dest_qp) if control else None
        if qp is not None:
            qp.on_control(control, now)
            return
        self.counts["raw_frames"] += 1
        for handler in self.raw_frame_handlers:
            handler(frame, entry)

    @property
    def transmitting(self):
        """Descriptors are in the card or wait for ring room: no interrupt tells when they are finished."""
        return self._turns.busy or self.nic.busy

    def wait(self, timeout_ns):
        """Sleep until the card has something, a QP's timer is due or the time is over, but never for less than
        the device can act in.

        Whoever looks at memory again within ``tx_poll_ns`` asks for no interrupt: a register would be written for
        nothing.
        """
        now = self.device.now_ns()
        poll_ns = self.config.tx_poll_ns
        if (due := self.qps.deadline) is not None:
            timeout_ns = min(timeout_ns, due - now)
        if self.transmitting:
            timeout_ns = min(timeout_ns, poll_ns)
        if timeout_ns > poll_ns:
            for ring in abi.CARD_TO_HOST:
                self.rings[ring].arm()
        return self.device.wait(max(self.device.shortest_wait_ns, timeout_ns))

    def run_until(self, condition, timeout_ns=None):
        """Make progress until ``condition()`` holds.

        Raises
        ------
        TimeoutError
        """
        deadline = None if timeout_ns is None else self.device.now_ns() + timeout_ns
        while True:
            busy = self.progress()
            if condition():
                return
            now = self.device.now_ns()
            if deadline is not None and now >= deadline:
                raise TimeoutError(f"nothing came within {timeout_ns} ns")
            if not busy:
                self.wait(1_000_000 if deadline is None else deadline - now)

    def drain_transmit(self, qp, timeout_ns=100_000_000):
        """Wait until no descriptor of ``qp`` is in the card."""
        if qp.sender is not None:
            qp.sender.abandon()
            self.run_until(lambda: not qp.sender.in_card, timeout_ns)
