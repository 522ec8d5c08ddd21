"""CRC-32 (IEEE 802.3, reflected) as XOR networks: linear maps over GF(2) computed while elaborating."""

from amaranth.hdl import Cat, Const

POLYNOMIAL = 0xEDB8_8320   # reflected
WIDTH = 32
RESIDUE = 0xDEBB_20E3      # register after a message and its CRC, before the final inversion


def advance(state, zero_bytes):
    """Return the register after ``zero_bytes`` more zero bytes; a negative number removes zero bytes."""
    for _ in range(8 * abs(zero_bytes)):
        if zero_bytes > 0:
            state = state >> 1 ^ (POLYNOMIAL if state & 1 else 0)
        elif state >> (WIDTH - 1):  # the polynomial was added: nothing else sets the top bit
            state = (state ^ POLYNOMIAL) << 1 | 1
        else:
            state <<= 1
    return state


def shift_map(zero_bytes):
    """Return the columns of the map :func:`advance`: the image of each register bit."""
    return [advance(1 << bit, zero_bytes) for bit in range(WIDTH)]


def data_map(length, follow):
    """Return the columns of the map from data to the register.

    The data are ``length`` bytes (byte 0 first, bit 0 first), followed by ``follow`` zero bytes.
    """
    return [advance(1 << bit, length - index + follow) for index in range(length) for bit in range(8)]


def apply(columns, value):
    """Apply the linear map ``columns`` to ``value``: one XOR per output bit."""
    assert len(columns) == len(value)
    rows = []
    for out in range(WIDTH):
        mask = sum(1 << bit for bit, column in enumerate(columns) if column >> out & 1)
        rows.append((value & Const(mask, len(columns))).xor())
    return Cat(*rows)
