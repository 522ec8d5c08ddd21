"""Tests of fences between the slots of a ring and its indices, for processors with a weak memory order."""

import ctypes

import pytest

from weft.driver.serve import ring, shared_memory
from weft.driver.serve.ring import CONS, PROD, SharedRing


class Watched:
    """Words that log their loads and stores."""

    def __init__(self, words, log):
        self._words, self._log = words, log

    def __getitem__(self, at):
        self._log.append(("load", at))
        return self._words[at]

    def __setitem__(self, at, value):
        self._log.append(("store", at))
        self._words[at] = value

    def release(self):
        self._words.release()


@pytest.fixture
def watched(monkeypatch):
    """Return a ring and the log of the accesses to its words, including fences."""
    log, made = [], SharedRing("test", 4, 16)
    monkeypatch.setattr(shared_memory, "IN_ORDER", False)
    monkeypatch.setattr(shared_memory, "_fence_of_c", lambda: lambda order: log.append(("fence", order)))
    made.words = Watched(made.words, log)
    yield made, log
    made.close()


FENCE = ("fence", 5)      # memory_order_seq_cst of C


@pytest.mark.parametrize(("method", "expected"), [
    ("put", [FENCE, ("store", PROD)]),                # slots before their index
    ("took", [FENCE, ("store", CONS)]),               # read before they may be filled again
    ("filled", [("load", PROD), FENCE]),              # the index before the slots
    ("waiting", [("load", CONS), FENCE])])
def test_index_is_visible_after_its_slots(watched, method, expected):
    made, log = watched
    found = getattr(made, method)
    if callable(found):
        found()
    assert log == expected


def test_c_fence_is_loaded_where_needed_or_its_absence_reported(monkeypatch):
    shared_memory._fence_of_c.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: (_ for _ in ()).throw(OSError(name)))
    with pytest.raises(NotImplementedError, match="libatomic1"):
        shared_memory._fence_of_c()


def test_ordered_processors_need_no_fence(watched, monkeypatch):
    made, log = watched
    monkeypatch.setattr(shared_memory, "IN_ORDER", True)
    made.put()
    ring.ordered()
    assert log == [("store", PROD)]
