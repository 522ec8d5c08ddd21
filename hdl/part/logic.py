"""Combinational functions with few levels of logic: trees instead of chains."""

from operator import add, or_

from amaranth.hdl import Cat, Const, Mux, Signal, Value

BELOW_LOW = 4           # low bits of a number whose thermometer code all rows of `thermometer` share


def reduce_tree(values, op):
    """Reduce ``values`` by the associative operator ``op`` in a balanced tree of ceil(log2(n)) levels."""
    values = [Value.cast(value) for value in values]
    while len(values) > 1:
        pairs = [op(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[len(values) & ~1:]
    return values[0]


def adder_tree(values):
    """Return the sum of values at full width."""
    return reduce_tree(values, add)


def group_counts(m, bits, size, name):
    """Registered population counts of groups of ``size`` bits.

    A sum of many bits becomes a sum of a few numbers, one cycle later. Inside an ``m.If`` the registers are written
    under its condition.
    """
    counts = [Signal(range(size + 1), name=f"{name}{k}") for k in range(-(-len(bits) // size))]
    m.d.sync += [count.eq(adder_tree(bits[k * size:(k + 1) * size])) for k, count in enumerate(counts)]
    return counts


def one_hot_mux(chosen, values):
    """Return the value whose bit of ``chosen`` is set, or 0 if none is. At most one bit may be set."""
    return reduce_tree((Mux(bit, Value.cast(value), 0) for bit, value in zip(chosen, values, strict=True)), or_)


def prefix(m, values, op, name):
    """Prefix reduction: signals of ``op`` over each value and all before it, as wide as the first value.

    Sklansky's prefix tree: ceil(log2(n)) levels.
    """
    values = [Value.cast(value) for value in values]
    width, at = len(values[0]), 0

    def kept(value, k):
        held = Signal(width, name=f"{name}{at}_{k}")
        m.d.comb += held.eq(value)
        return held

    values = [kept(value, k) for k, value in enumerate(values)]
    at = 1
    while at < len(values):
        values = [kept(op(values[(k & ~(at - 1)) - 1], value), k) if k & at else value
                  for k, value in enumerate(values)]
        at <<= 1
    return values


def sum_equals(a, b, c):
    """Return whether ``a + b == c`` modulo the width of ``c``: a LUT per bit, no carry."""
    width = len(c)
    a, b = (Cat(n, Const(0, width))[:width] for n in (a, b))
    carries = Cat(Const(0, 1), (a & b) | ((a | b) & ~c))[:width]     # correct if all lower bits are equal
    return ((a ^ b ^ c) == carries)


def sum_of_three(width, a, b, c, one=0):
    """Return the sum of three numbers, plus ``one``, modulo the width: one LUT and one carry chain."""
    a, b, c = (Cat(n, Const(0, width))[:width] for n in (a, b, c))
    return (a ^ b ^ c) + Cat(Const(one, 1), (a & b) | (a & c) | (b & c))[:width]


def one_hot(enable, index, width):
    """Return ``width`` bits of which bit ``index`` is set while ``enable`` is."""
    return Cat(enable & (index == k) for k in range(width))


def lowest_one_hot(m, bits, name):
    """Return the lowest set bit of ``bits``, one-hot."""
    bits = Cat(bits)
    first = Signal(len(bits), name=f"{name}_first")
    before = prefix(m, bits, or_, name)
    m.d.comb += first.eq(bits & ~(Cat(before) << 1))
    return first


def encode_one_hot(bits):
    """Return the index of the set bit; 0 if none is. At most one may be set; the number of bits is a power of two."""
    return Cat(Cat(bit for k, bit in enumerate(bits) if k >> digit & 1).any()
               for digit in range((len(bits) - 1).bit_length()))


def priority_encode(bits):
    """Return the index of the lowest set bit, by halves; the number of bits is a power of two."""
    bits = Cat(bits)
    if len(bits) == 1:
        return Const(0, 0)
    low, high = bits[:len(bits) // 2], bits[len(bits) // 2:]
    if len(low) == 1:
        return ~low     # a Mux of no bits would be a wire of no bits, which lint rejects
    return Cat(Mux(low.any(), priority_encode(low), priority_encode(high)), ~low.any())


def thermometer_count(steps):
    """Return the number of set bits of a thermometer code: no bit is set above one that is clear.

    The number of bits is a power of two. Each digit of the result depends on single bits.
    """
    last = len(steps) - 1
    return Cat(Cat(steps[k] & ~steps[k + size] if k < last else steps[k]
                   for k in range(size - 1, last + 1, 2 * size)).any()
               for size in (1 << digit for digit in range(last.bit_length() + 1)))


def shift_by_thermometer(value, steps):
    """Return ``value`` shifted right by the thermometer code ``steps``.

    The large shifts come first: they depend on single bits of ``steps`` only.
    """
    number, size = thermometer_count(steps), len(steps)
    value = Mux(steps[size - 1], value[size:], Mux(steps[size // 2 - 1], value[size // 2:], value))
    for digit in reversed(range(len(number) - 2)):
        value = Mux(number[digit], value[1 << digit:], value)
    return value


def greater_than(value, number):
    """Return whether a signal is greater than a constant, without the carry chain that ``>`` becomes."""
    if number < 0 or number >> len(value):
        return Const(number < 0, 1)
    larger = Const(0, 1)
    for k, bit in enumerate(value):
        larger = bit & larger if number >> k & 1 else bit | larger
    return larger


def saturate(limit, value):
    """Return the smaller of a signal and a constant."""
    return Mux(greater_than(value, limit), limit, value)


def thermometer_min(limit, *values):
    """Return the minimum of ``limit`` and some signals as a thermometer code of ``limit`` bits.

    The signals are compared with constants only: a comparison of two signals would be a carry chain.
    """
    return Cat(Cat(greater_than(value, k) for value in values).all() for k in range(limit))


def distance_to_overflow(limit, value):
    """Return the distance of a signal to its overflow, at most ``limit``, a power of two smaller than its range."""
    low = limit.bit_length() - 1
    return Mux(value[low:].all(), limit - value[:low], limit)


def thermometer(m, value, width, name):
    """Return the thermometer code of ``value``: ``width`` bits, the low ``value`` of them set."""
    number = Signal(len(value), name=f"{name}_number")
    low = min(BELOW_LOW, len(value))
    steps, rows = Signal(1 << low, name=f"{name}_steps"), -(-width >> low)
    begun, whole, ones = (Signal(size, name=f"{name}_{part}")
                          for size, part in ((rows, "begun"), (rows, "whole"), (width, "ones")))
    m.d.comb += [
        number.eq(value), steps.eq(Cat(greater_than(number[:low], k) for k in range(len(steps)))),
        begun.eq(Cat(greater_than(number[low:], row - 1) for row in range(rows))),
        whole.eq(Cat(greater_than(number[low:], row) for row in range(rows))),
        ones.eq(Cat((steps | whole[row].replicate(len(steps))) & begun[row].replicate(len(steps))
                    for row in range(rows))),
    ]
    return ones


def read_word(m, memory, index):
    """Return the word at ``index`` of a distributed memory, in the same cycle."""
    port = memory.read_port(domain="comb")
    m.d.comb += port.addr.eq(index)
    return port.data
