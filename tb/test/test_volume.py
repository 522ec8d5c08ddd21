"""Test that a test draws more cases on request, and otherwise as many as it needs."""

import pytest

from weft.tb.test.volume import LONG, volume


@pytest.mark.parametrize(("setting", "tried"), [(None, 3), ("", 3), ("0", 3), ("1", 40)])
def test_volume_grows_on_request(monkeypatch, setting, tried):
    monkeypatch.delenv(LONG, raising=False)
    if setting is not None:
        monkeypatch.setenv(LONG, setting)
    assert volume(3, 40) == tried
