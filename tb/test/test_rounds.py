"""Tests that rounds of a random bench end when every case has occurred, and not before."""

from collections import Counter

import pytest

from weft.tb.test.rounds import rounds


def test_rounds_continue_until_everything_occurred():
    seen, numbers = Counter(), []
    for number in rounds(seen, iter("ab"), least=2, times=2, most=9):
        numbers.append(number)
        seen["a"] += 1
        seen["b"] += number >= 3
    assert numbers == [0, 1, 2, 3, 4] and seen == {"a": 5, "b": 2}
    assert list(rounds(seen, "ab", least=2, most=9)) == [0, 1]


def test_missing_event_fails_the_test_by_name():
    seen, numbers = Counter(a=5), []

    def go():
        for number in rounds(seen, "ab", times=2, most=3):
            numbers.append(number)
            seen["b"] = 1

    with pytest.raises(AssertionError, match="not 2 times in 3 rounds: {'b': 1}"):
        go()
    assert numbers == [0, 1, 2]
