"""Random operations with two RTL cards; ``WEFT_OPERATIONS`` sets their number."""

import os

from weft.tb.test.cards.operations_cases import run_operations


def test_random_operations():
    run_operations(int(os.environ.get("WEFT_OPERATIONS") or 150))
