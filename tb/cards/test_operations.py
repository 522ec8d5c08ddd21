"""Random operations over two real cards: see ``operation_cases``. The whole: ``python -m weft.tb.cards operations``."""

from weft.tb.cards.operations import run_operations


def test_random_operations():
    run_operations(150)
