"""Capacities of a channel: outstanding work requests of each kind, and the resulting queue sizes."""

from dataclasses import dataclass

from ..terms.checks import between

CAPACITY_MAX = 0xFFFF   # an acknowledgement counts in 16 bits


@dataclass(frozen=True)
class Capacities:
    """Capacities of a channel.

    Both ends must have the same capacities. Their thresholds may differ, unless ``max_send_imm_wr`` is 1.

    An end acknowledges when it has received *more than* ``data_threshold`` messages, or more than ``imm_threshold``
    acknowledgements, since its last acknowledgement. Half of a capacity is rounded down, so that the default means:

    ======== ========= =======================
    capacity threshold acknowledged after
    ======== ========= =======================
    1        0         1
    2        1         2
    3        1         2
    4        2         3
    ======== ========= =======================

    Other thresholds are possible within these rules. Each rejected one would lead to a deadlock or to a storm of
    acknowledgements:

    - Below the capacity: otherwise no acknowledgement is sent before the sender waits.
    - ``imm_threshold`` at least 1: otherwise acknowledgements would acknowledge each other forever.
    - ``data_threshold`` at least ``max_send_data_wr // max_send_imm_wr``: otherwise the messages that may be
      outstanding require all acknowledgements that may be outstanding. If both ends send theirs before they receive
      one, neither can ever send again.

    With ``max_send_imm_wr`` 1, the last two rules cannot hold: :class:`~weft.driver.channel.credits.Credits` then has
    two additional conditions, and ``imm_threshold`` is 0.

    Parameters
    ----------
    max_send_data_wr, max_send_imm_wr : int
        Sends of messages and of acknowledgements, 1 to 65,535.
    max_read_wr, max_write_wr : int
        RDMA reads (and atomics) and RDMA writes, 0 to 65,535.
    data_threshold, imm_threshold : int, optional
        Half of the capacities.

    Raises
    ------
    ValueError, TypeError
        If one of them is invalid.
    """

    max_send_data_wr: int
    max_send_imm_wr: int
    max_read_wr: int = 0
    max_write_wr: int = 0
    data_threshold: int = None      # type: ignore[assignment]  # half of the capacity, set below
    imm_threshold: int = None       # type: ignore[assignment]

    def __post_init__(self) -> None:
        for name, low in (("max_send_data_wr", 1), ("max_send_imm_wr", 1), ("max_read_wr", 0), ("max_write_wr", 0)):
            between(name, getattr(self, name), low, CAPACITY_MAX)
        data, imm = self.max_send_data_wr, self.max_send_imm_wr
        for name, capacity, low in (("data_threshold", data, data // imm if imm > 1 else 0),
                                    ("imm_threshold", imm, min(1, imm - 1))):
            if getattr(self, name) is None:
                object.__setattr__(self, name, capacity // 2)
            between(name, getattr(self, name), low, capacity - 1)

    @property
    def max_send_wr(self) -> int:
        """Send requests of all kinds: required capacity of the QP's send queue."""
        return self.max_send_data_wr + self.max_send_imm_wr + self.max_read_wr + self.max_write_wr

    @property
    def max_recv_wr(self) -> int:
        """Posted receives: one for each possible send of the peer."""
        return self.max_send_data_wr + self.max_send_imm_wr

    @property
    def max_cqe(self) -> int:
        """Required capacity of the CQ: all posted requests may be complete at once."""
        return self.max_send_wr + self.max_recv_wr
