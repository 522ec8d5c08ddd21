"""Commands that the card could not read: the driver repeats them, and finally treats the card as failed."""

from functools import partial

import pytest

from weft.driver.device.health import DeviceFatal
from weft.driver.terms.enums import AccessFlag, EventType, QPState
from weft.driver.verbs.mr import MR
from weft.hdl.contract import abi
from weft.tb.sim.pair.functional_pair import close_and_check, make_endpoints, make_pair, transfer

Command = abi.Ring.COMMAND


def skip(device, which):
    """Make the card of ``device`` skip the commands for which ``which(number)`` is true; return the list of those."""
    rings, passed, seen = device.card.rings, [], [0]
    peek = rings.peek

    def look(ring):
        while ring is Command and (entry := peek(ring)) is not None:
            seen[0] += 1
            if not which(seen[0]):
                return entry
            passed.append(abi.COMMAND.unpack(entry).opcode)
            rings.finish(ring)
        return peek(ring)

    rings.peek = look
    return passed


@pytest.mark.parametrize("every", [2, 3, 5])
def test_unread_commands_are_submitted_again(every):
    pair = make_pair(seed=3)
    ends = make_endpoints(pair, 20_000, qps=2)
    passed, context = skip(pair.devices[0], lambda number: number % every == 0), pair.contexts[0]
    began = pair.loop.now_ns
    for _ in range(20):
        MR(ends[0].pd, 4_096, AccessFlag.LOCAL_WRITE).close()
    assert len(passed) == context.commands.repeated > 10 and pair.loop.now_ns - began < 3_000_000
    ends[0].mr.write(bytes(20_000))
    transfer(pair, ends)
    close_and_check(pair, ends)


def test_other_commands_are_answered():
    pair = make_pair(seed=4)
    context, answers = pair.contexts[0], []
    passed = skip(pair.devices[0], lambda number: number in (2, 3, 6))
    for number in range(6):
        context.commands.submit(abi.CommandOpcode.QP_QUERY, lambda _, number=number: answers.append(number),
                                qpn=number)
    context.run_until(lambda: len(answers) == 6, 10**6)
    assert sorted(answers) == list(range(6)) and answers[:3] == [0, 3, 4] and len(passed) == 3
    space = context.rings[Command]
    assert space.space == space.depth and not context.commands.waiting


def test_command_that_is_never_read_is_fatal():
    pair = make_pair(seed=5)
    ends, context = make_endpoints(pair, 4_096), pair.contexts[0]
    passed = skip(pair.devices[0], lambda _: True)
    with pytest.raises(DeviceFatal, match="could not read a command, QP_QUERY, 4 times"):
        context.commands.call(abi.CommandOpcode.QP_QUERY, qpn=0)
    assert len(passed) == 4 and context.get_async_event(0).event_type is EventType.DEVICE_FATAL
    assert ends[0].qps[0].qp_state is QPState.ERR
    context.close()
    assert not pair.devices[0].memory._pages


def test_response_without_a_command_is_fatal():
    pair = make_pair(seed=6)
    context = pair.contexts[0]
    pair.devices[0].card.rings.put(abi.Ring.RESPONSE, abi.RESPONSE.pack(tag=999))
    context.progress()
    assert "tag 999" in context.get_async_event(0).reason
    context.close()


def test_status_that_is_older_than_the_responses_repeats_nothing():
    """A card writes its consumer index after the response; on a busy host much later."""
    pair = make_pair(seed=7)
    ends, context, device = make_endpoints(pair, 4_096), pair.contexts[0], pair.devices[0]
    late = {"write32": (device, 50_000), "write64": (device, 50_000), "notify": (device.card.rings, 200_000)}
    for name, (owner, delay_ns) in late.items():
        setattr(owner, name, partial(pair.loop.call_in, delay_ns, getattr(owner, name)))
    for _ in range(20):
        MR(ends[0].pd, 4_096, AccessFlag.LOCAL_WRITE).close()
    for name, (owner, _) in late.items():
        delattr(owner, name)
    pair.loop.run(pair.loop.now_ns + 300_000)
    assert context.commands.repeated == 0
    close_and_check(pair, ends)
