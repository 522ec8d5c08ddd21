"""Channels that the search covers: all capacities up to a limit, and all thresholds, including rejected ones."""

from weft.driver.channel.capacities import Capacities
from weft.tb.test.driver.channel.states import Search, Violation


def capacities_up_to(most):
    """Return all :class:`Capacities` from 1 to ``most`` messages and acknowledgements."""
    return [Capacities(data, imm) for data in range(1, most + 1) for imm in range(1, most + 1)]


def thresholds_up_to(capacities):
    """Yield (Capacities, rejected) with every threshold from 0 to the capacity."""
    for data in range(capacities.max_send_data_wr + 1):
        for imm in range(capacities.max_send_imm_wr + 1):
            drawn = {"data_threshold": data, "imm_threshold": imm}
            try:
                yield Capacities(capacities.max_send_data_wr, capacities.max_send_imm_wr, **drawn), False
            except ValueError:
                forced = Capacities(capacities.max_send_data_wr, capacities.max_send_imm_wr)
                for name, value in drawn.items():
                    object.__setattr__(forced, name, value)     # bypass the check
                yield forced, True


def verdict(capacities):
    """Return the violation that the search finds with these capacities, or None."""
    try:
        Search(capacities).run()
    except Violation as violation:
        return str(violation).partition(";")[0]
    return None
