"""State of a QP on the card besides its table entry."""

from weft.hdl.contract import abi

from .window import Window


class QpIncarnation:
    """Window and list of one QP.

    Parameters
    ----------
    window_bits : int
    list_type : type
        :class:`~weft.model.functional.node_list.NodeList`, or one of a timed card.
    memory : HostMemory
    in_extent : callable(line)
    qpn, generation : int
    psn : int
        First expected PSN.

    Attributes
    ----------
    marked : int
        Data packets accepted with the mark CE, 16 bits.
    reported_step : int or None
        Time of the newest report MARKED, in steps.
    """

    def __init__(self, window_bits, list_type, memory, in_extent, *, qpn, generation, psn):
        self.window = Window(window_bits, psn)
        self.marked, self.reported_step = 0, None
        self.matcher = list_type(
            qpn, generation, lambda n: memory.read(n * abi.BLOCK_BYTES, abi.BLOCK_BYTES), in_extent
        )
