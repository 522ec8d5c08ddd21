"""Test that a test draws more cases on request, and otherwise as many as it needs."""

import pytest

from weft.tb.test.volume import LONG, volume


@pytest.mark.parametrize(("said", "tried"), [(None, 3), ("", 3), ("0", 3), ("1", 40)])
def test_more_is_tried_where_that_is_asked_for(monkeypatch, said, tried):
    monkeypatch.delenv(LONG, raising=False)
    if said is not None:
        monkeypatch.setenv(LONG, said)
    assert volume(3, 40) == tried
