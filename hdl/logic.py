"""Logic in few levels: trees where the plain way to write it is a chain."""

from operator import add, or_

from amaranth.hdl import Cat, Const, Mux, Signal, Value

BELOW_LOW = 4           # bits of a number whose steps all rows of `below` share


def tree(values, op):
    """``op`` over all values, an associative one, by halves: as many levels as the number of values has bits."""
    values = [Value.cast(value) for value in values]
    while len(values) > 1:
        pairs = [op(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[len(values) & ~1:]
    return values[0]


def total(values):
    """Sum of values, as wide as it needs."""
    return tree(values, add)


def choose(chosen, values):
    """The value whose bit of ``chosen`` is set; 0 if none is, and at most one is."""
    return tree((Mux(bit, Value.cast(value), 0) for bit, value in zip(chosen, values, strict=True)), or_)


def up_to(m, values, op, name):
    """Signals of ``op`` over each value and all before it, all as wide as the first value (Sklansky's prefix tree:
    as many levels as the number of values has bits)."""
    values = [Value.cast(value) for value in values]
    at, width = 1, len(values[0])
    while at < len(values):
        level = list(values)
        for k in range(len(values)):
            if k & at:
                level[k] = Signal(width, name=f"{name}{at}_{k}")
                m.d.comb += level[k].eq(op(values[(k & ~(at - 1)) - 1], values[k]))
        values, at = level, at << 1
    return values


def one_hot(enable, index, width):
    """``width`` bits: that with number ``index`` is set, while ``enable``."""
    return Cat(enable & (index == k) for k in range(width))


def lowest(m, bits, name):
    """One-hot: the lowest of ``bits`` that is set."""
    bits = list(bits)
    before = up_to(m, bits, or_, name)
    return Cat(bits[0], *(bit & ~passed for bit, passed in zip(bits[1:], before, strict=False)))


def above(value, number):
    """Whether a value is larger than a constant, without the carry chain that ``>`` becomes."""
    if number < 0 or number >> len(value):
        return Const(number < 0, 1)
    larger = Const(0, 1)
    for k, bit in enumerate(value):
        larger = bit & larger if number >> k & 1 else bit | larger
    return larger


def below(m, value, width, name):
    """``width`` bits, of which as many low ones are set as ``value`` says."""
    low = min(BELOW_LOW, len(value))
    fine, coarse, steps = value[:low], value[low:], Signal(1 << low, name=f"{name}_steps")
    m.d.comb += steps.eq(Cat(above(fine, k) for k in range(len(steps))))
    rows = ((steps | above(coarse, row).replicate(len(steps))) & above(coarse, row - 1).replicate(len(steps))
            for row in range(-(-width // len(steps))))
    ones = Signal(width, name=name)
    m.d.comb += ones.eq(Cat(rows))
    return ones
