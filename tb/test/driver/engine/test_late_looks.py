"""A process may stand still for any time at any place, as on a loaded machine: a wait ends with a look at the card.

Otherwise it would report a time-out of a card that has answered meanwhile.
"""

import pytest

from weft.driver.device.bringup import STATUS_IDLE, STATUS_RESET_DONE, come_to_rest, reset_card
from weft.driver.queue.command import CommandTimeout
from weft.driver.verbs.context import Context, ContextConfig
from weft.hdl.contract import abi
from weft.model.functional.host import FunctionalDevice
from weft.model.loop import EventLoop
from weft.tb.test.driver.verbs.silent_card import Silent

PATIENCE_NS, PAUSE_NS, LOOKS = 10_000, 10**10, 40


class Pausing(FunctionalDevice):
    """Device whose process stands still before the ``pause_at``-th reading of the clock from :meth:`restart` on."""

    readings, pause_at = 0, -1

    def restart(self, pause_at):
        self.readings, self.pause_at = 0, pause_at

    def now_ns(self):
        self.readings += 1
        if self.readings == self.pause_at:
            self.loop.run(self.loop.now_ns + PAUSE_NS)
        return super().now_ns()


def opened():
    device = Pausing(EventLoop())
    return device, Context(device, mac=2, ip=3, config=ContextConfig(command_timeout_ns=PATIENCE_NS))


def test_the_response_to_a_command():
    device, context = opened()
    silent = Silent(device)
    with pytest.raises(CommandTimeout):
        context.statistics()
    silent.wake()
    for pause_at in range(1, LOOKS):
        silent.quiet = True
        device.loop.call_in(PATIENCE_NS / 2, silent.wake)
        device.restart(pause_at)
        context.statistics()
    assert device.readings < LOOKS
    context.close()


def test_a_condition():
    device, context = opened()
    with pytest.raises(TimeoutError):
        context.run_until(lambda: False, PATIENCE_NS)
    for pause_at in range(1, LOOKS):
        at = device.now_ns() + PATIENCE_NS / 2
        device.restart(pause_at)
        context.run_until(lambda at=at: device.loop.now_ns >= at, PATIENCE_NS)
    context.close()


@pytest.mark.parametrize(("function", "bit"), [(reset_card, STATUS_RESET_DONE), (come_to_rest, STATUS_IDLE)])
def test_a_register(function, bit, monkeypatch):
    device, context = opened()
    read, status, resets = device.card.read, abi.REGISTER["status"].offset, []
    monkeypatch.setattr("weft.driver.device.bringup.RESET_TIMEOUT_NS", PATIENCE_NS)
    write = device.card.write
    monkeypatch.setattr(device.card, "write", lambda offset, value: (
        resets.append(value) if offset == abi.REGISTER["control"].offset else write(offset, value)))
    for pause_at in range(1, LOOKS):
        at = device.now_ns() + PATIENCE_NS / 2
        monkeypatch.setattr(device.card, "read", lambda offset, at=at: (
            bit * (device.loop.now_ns >= at) if offset == status else read(offset)))
        resets.clear()
        device.restart(pause_at)
        function(device)
        assert len(resets) == (2 if function is reset_card else 0)
    monkeypatch.undo()
    context.close()
