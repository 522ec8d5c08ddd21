"""UDP source ports of RoCEv2, by which routers choose among equal paths."""

import random

FIRST_PORT, PORT_MASK = 0xC000, 0x3FFF     # 0xC000 to 0xFFFF


class PortDraw:
    """Random ports by a seed."""

    def __init__(self, seed):
        self._random = random.Random(seed)

    def draw(self):
        """Return a port."""
        return FIRST_PORT | self._random.getrandbits(PORT_MASK.bit_length())
