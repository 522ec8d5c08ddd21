"""Flow control as the driver configures it, and MAC control frames that a functional card receives."""

import pytest

from weft.driver.terms.errors import InvalidValue
from weft.driver.verbs.context import Context, ContextConfig
from weft.hdl.contract import abi, wire
from weft.model.functional.host import FunctionalDevice
from weft.model.loop import EventLoop
from weft.tb.test.pause_frame import pause_frame

MAC, IP, PEER_MAC = 0x02_0000_0000_0A, 0x0A00_000A, 0x02_0000_0000_0B


def open_one(**config):
    return Context(FunctionalDevice(EventLoop()), mac=MAC, ip=IP, config=ContextConfig(**config))


@pytest.mark.parametrize(("config", "word"), [
    ({}, {}), ({"pfc_quanta": 7}, {}),
    ({"pfc_priority": 0}, {"priority": 0, "send": 1, "obey": 1, "quanta": 0xFFFF}),
    ({"pfc_priority": 7, "pfc_quanta": 1}, {"priority": 7, "send": 1, "obey": 1, "quanta": 1}),
])
def test_bring_up_sets_the_register(config, word):
    context = open_one(**config)
    assert context.device.card.registers["pfc"] == int.from_bytes(abi.PFC_WORD.pack(**word), "little")
    context.close()


@pytest.mark.parametrize(("config", "words"), [
    ({"pfc_priority": 8}, "pfc_priority is 8; 0 to 7"), ({"pfc_priority": -1}, "pfc_priority is -1; 0 to 7"),
    ({"pfc_quanta": 0}, "pfc_quanta is 0; 1 to 65535"), ({"pfc_quanta": 1 << 16}, "pfc_quanta is 65536; 1 to 65535"),
])
def test_unsupported_pause_settings_are_rejected(config, words):
    with pytest.raises(InvalidValue, match=words):
        open_one(**config)
    with pytest.raises(TypeError, match="an integer is needed"):
        open_one(**dict.fromkeys(config, "high"))


def test_mac_control_frames_are_counted_and_dropped():
    context = open_one(pfc_priority=2)
    raw = []
    context.raw_frame_handlers.append(lambda frame, _entry: raw.append(frame))
    ours, other = {2: 0xFFFF}, {k: 0xFFFF for k in range(wire.PRIORITIES) if k != 2}
    sound = [pause_frame(ours | other, src=PEER_MAC), pause_frame({2: 0}, src=PEER_MAC, length=64)]
    bad = [pause_frame(ours, src=PEER_MAC, **wrong) for wrong in (
        {"dst": MAC}, {"opcode": 1}, {"length": 59}, {"length": 14}, {"length": 65}, {"length": 1500})]
    for frame in [*sound, pause_frame(other, src=PEER_MAC), *bad]:
        context.device.card.receive(frame)
    context.device.card.receive(b"\xff" * 12 + b"\x90\x00" + bytes(46))
    context.run_until(lambda: raw, 10**6)
    counted = context.statistics()
    assert counted["rx_pauses"] == len(sound) and counted["drop_bad_pause"] == len(bad)
    assert counted["rx_frames"] == len(raw) == 1
    context.close()
