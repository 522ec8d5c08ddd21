"""Random operations with two RTL cards; ``python -m weft.tb.verify.operations rtl`` runs more of them."""

from weft.tb.verify.operations.rtl_cases import run_operations


def test_random_operations():
    run_operations(150)
