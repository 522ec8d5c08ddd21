"""The haul of the model's benchmark: what its programs run in changes nothing in simulated time."""

import os
import random

import pytest

from weft.model.card.machine.device import CompiledDevice
from weft.model.functional.fiber import Fiber
from weft.model.functional.host import App, FunctionalDevice, run_apps
from weft.model.link import EventLoop
from weft.tb.verify.bench.model_card import MESSAGE_BYTES, SHORT_RTT_NS, Haul

SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))


def test_fibers_and_threads_do_the_same_at_the_same_times():
    rng = random.Random(SEED)
    loss, rtt_ns = rng.choice([0.001, 0.01, 0.05]), rng.randrange(SHORT_RTT_NS // 10, SHORT_RTT_NS)
    print(f"again: SEED={SEED} pytest tb/test/verify/bench/test_model_card.py")

    def seen(app_type):
        haul = Haul(4 * MESSAGE_BYTES, loss=loss, rtt_ns=rtt_ns, device_type=CompiledDevice, app_type=app_type).run()
        return (haul.loop.now_ns, haul.loop.number, haul.samples, [+device.card.counters for device in haul.devices],
                [link.counters.as_dict() for link in haul.links], [+context.counts for context in haul.contexts])

    assert seen(Fiber) == seen(App)


def test_a_line_that_its_owner_changes_meanwhile():
    rng = random.Random(SEED)
    print(f"again: SEED={SEED} pytest tb/test/verify/bench/test_model_card.py")
    haul, seen = Haul(MESSAGE_BYTES, loss=0.0, rtt_ns=10_000, pmtu=4096, device_type=CompiledDevice), []
    haul.loop.call_in(rng.randrange(20_000, 60_000), lambda: setattr(haul.links[0], "drop", seen.append))
    haul.run()
    data = [frame for frame in seen if not isinstance(frame, bytes)]
    assert 0 < len(data) < haul.packets, "it is asked of every packet from then on"


@pytest.mark.parametrize("app_type", [App, Fiber])
def test_what_a_program_raises_and_a_program_that_does_not_end(app_type):
    loop = EventLoop()
    devices = [FunctionalDevice(loop, seed=side) for side in range(2)]

    def fails():
        devices[0].wait(1000)
        raise KeyError("found")

    def waits():
        while True:
            devices[1].wait(700)

    with pytest.raises(KeyError, match="found"):
        run_apps(loop, [(devices[0], fails), (devices[1], waits)], 10_000, app_type)
    with pytest.raises(TimeoutError, match="still run"):
        run_apps(loop, [(devices[1], waits)], 10_000, app_type)
    assert loop.now_ns == 11_000


def test_two_programs_of_a_host_are_no_fibers():
    loop = EventLoop()
    device = FunctionalDevice(loop, seed=SEED)
    with pytest.raises(ValueError, match="threads of their own"):
        run_apps(loop, [(device, lambda: None)] * 2, 1000, Fiber)
