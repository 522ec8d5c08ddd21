"""Random and mutated messages, a few thousand of the 100,000 of ``weft bench --only linux-hostile``."""

from weft.tb.sim.flow.seed import drawn_seed
from weft.tb.test.volume import volume
from weft.tb.verify.linux.hostile_messages import MessageFuzz, fuzz


def test_random_messages_are_answered_or_end_the_connection():
    seed, count = drawn_seed(), volume(10_000, 100_000)
    print(f"run again: WEFT_SEED={seed} pytest tb/test/driver/vfio_user/test_fuzz.py")
    found = fuzz(count, seed)
    assert not any(found[name] for name in ("exceptions", "stops", "wrong_bytes", "leaks")), found
    assert found["violations"] > count // 100 and found["answered"] > count // 4 and found["reads"] > count // 1000


def test_an_exception_and_a_changed_page_are_noticed(monkeypatch):
    monkeypatch.setattr(MessageFuzz, "access", lambda self: 1 // 0)
    monkeypatch.setattr(MessageFuzz, "private_changed", True)
    found = fuzz(10, 1)
    assert found["stops"] and found["wrong_bytes"]
