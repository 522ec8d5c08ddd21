"""How many work requests of each kind a channel may have outstanding, and what follows from that."""

from dataclasses import dataclass

from ..terms.checks import between

CAPACITY_MAX = 0xFFFF   # an acknowledgement counts in 16 bits


@dataclass(frozen=True)
class Capacities:
    """Capacities of a channel.

    Both ends are made with the same. Their thresholds may differ, unless ``max_send_imm_wr`` is 1.

    An end acknowledges when it has received *more than* ``data_threshold`` messages, or more than ``imm_threshold``
    acknowledgements, since it last did. Half of a capacity is rounded down, so that the default means:

    ======== ========= =======================
    capacity threshold acknowledged after
    ======== ========= =======================
    1        0         1
    2        1         2
    3        1         2
    4        2         3
    ======== ========= =======================

    Other thresholds are possible as far as these rules go; each refused one leads to a deadlock or to a storm:

    - Below the capacity: otherwise nobody acknowledges before the sender waits.
    - ``imm_threshold`` at least 1: an acknowledgement that were answered by one would go back and forth for ever.
    - ``data_threshold`` at least ``max_send_data_wr // max_send_imm_wr``: otherwise the messages that may be under way
      call for all acknowledgements that may be under way. When both ends send theirs before they get one of the
      other's, neither may ever send again.

    With ``max_send_imm_wr`` 1 the last two rules cannot be kept: :class:`~weft.driver.channel.credits.Credits` has
    two conditions more then, and ``imm_threshold`` is 0.

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
        If one of them is impossible.
    """

    max_send_data_wr: int
    max_send_imm_wr: int
    max_read_wr: int = 0
    max_write_wr: int = 0
    data_threshold: int | None = None
    imm_threshold: int | None = None

    def __post_init__(self):
        for name, low in (("max_send_data_wr", 1), ("max_send_imm_wr", 1), ("max_read_wr", 0), ("max_write_wr", 0)):
            between(name, getattr(self, name), low, CAPACITY_MAX)
        data, imm = self.max_send_data_wr, self.max_send_imm_wr
        for name, capacity, low in (("data_threshold", data, data // imm if imm > 1 else 0),
                                    ("imm_threshold", imm, min(1, imm - 1))):
            if getattr(self, name) is None:
                object.__setattr__(self, name, capacity // 2)
            between(name, getattr(self, name), low, capacity - 1)

    @property
    def max_send_wr(self):
        """Send requests of all kinds: what the QP's send queue has to hold."""
        return self.max_send_data_wr + self.max_send_imm_wr + self.max_read_wr + self.max_write_wr

    @property
    def max_recv_wr(self):
        """Receives posted: all sends of the peer find one."""
        return self.max_send_data_wr + self.max_send_imm_wr

    @property
    def max_cqe(self):
        """What the CQ has to hold: everything that is posted may be complete at once."""
        return self.max_send_wr + self.max_recv_wr
