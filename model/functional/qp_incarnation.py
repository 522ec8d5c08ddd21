"""State of a QP on the card besides its table entry."""

from weft.hdl.contract import abi

from .node_list import NodeList
from .window import Window


class QpIncarnation:
    """Window and list of one QP.

    Parameters
    ----------
    window_bits : int
    memory : HostMemory
    in_extent : callable(line)
    qpn, generation : int
    psn : int
        First expected PSN.
    """

    list_type = NodeList

    def __init__(self, window_bits, memory, in_extent, *, qpn, generation, psn):
        self.window = Window(window_bits, psn)
        self.matcher = self.list_type(
            qpn, generation, lambda n: memory.read(n * abi.BLOCK_BYTES, abi.BLOCK_BYTES), in_extent
        )
