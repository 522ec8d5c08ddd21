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


def group_counts(m, bits, size, name):
    """Registers that say how many bits of each ``size`` are set: so a sum of many bits is one of few numbers, a cycle
    later. Within a condition they wait for it."""
    counts = [Signal(range(size + 1), name=f"{name}{k}") for k in range(-(-len(bits) // size))]
    m.d.sync += [count.eq(total(bits[k * size:(k + 1) * size])) for k, count in enumerate(counts)]
    return counts


def choose(chosen, values):
    """The value whose bit of ``chosen`` is set; 0 if none is, and at most one is."""
    return tree((Mux(bit, Value.cast(value), 0) for bit, value in zip(chosen, values, strict=True)), or_)


def up_to(m, values, op, name):
    """Signals of ``op`` over each value and all before it, all as wide as the first value (Sklansky's prefix tree:
    as many levels as the number of values has bits)."""
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


def sums_to(a, b, c):
    """Whether ``c`` is the sum of two numbers, modulo its width: a LUT per bit, no carry."""
    width = len(c)
    a, b = (Cat(n, Const(0, width))[:width] for n in (a, b))
    carries = Cat(Const(0, 1), (a & b) | ((a | b) & ~c))[:width]     # if all lower bits are right
    return ((a ^ b ^ c) == carries)


def sum_of_three(width, a, b, c, one=0):
    """The sum of three numbers, and 1 if need be, modulo the width: one carry chain, behind a LUT."""
    a, b, c = (Cat(n, Const(0, width))[:width] for n in (a, b, c))
    return (a ^ b ^ c) + Cat(Const(one, 1), (a & b) | (a & c) | (b & c))[:width]


def one_hot(enable, index, width):
    """``width`` bits: that with number ``index`` is set, while ``enable``."""
    return Cat(enable & (index == k) for k in range(width))


def lowest(m, bits, name):
    """One-hot: the lowest of ``bits`` that is set."""
    bits = Cat(bits)
    first = Signal(len(bits), name=f"{name}_first")
    before = up_to(m, bits, or_, name)
    m.d.comb += first.eq(bits & ~(Cat(before) << 1))
    return first


def encoded(bits):
    """Number of the bit that is set, of a power of two; 0 if none is, and at most one is."""
    return Cat(Cat(bit for k, bit in enumerate(bits) if k >> digit & 1).any()
               for digit in range((len(bits) - 1).bit_length()))


def first(bits):
    """Number of the lowest bit that is set, of a power of two, by halves."""
    bits = Cat(bits)
    if len(bits) == 1:
        return Const(0, 0)
    low, high = bits[:len(bits) // 2], bits[len(bits) // 2:]
    if len(low) == 1:
        return ~low     # a choice of no bits would be a wire of no bits, which lint refuses
    return Cat(Mux(low.any(), first(low), first(high)), ~low.any())


def height(steps):
    """How many low bits of ``steps`` are set, of which there is a power of two, and none is set above one that is not:
    each digit comes of single steps."""
    last = len(steps) - 1
    return Cat(Cat(steps[k] & ~steps[k + size] if k < last else steps[k]
                   for k in range(size - 1, last + 1, 2 * size)).any()
               for size in (1 << digit for digit in range(last.bit_length() + 1)))


def passed_over(value, steps):
    """``value`` without as many low bits as ``steps`` says, as :func:`height` has them: the large ones first, which
    wait for single steps only."""
    number, size = height(steps), len(steps)
    value = Mux(steps[size - 1], value[size:], Mux(steps[size // 2 - 1], value[size // 2:], value))
    for digit in reversed(range(len(number) - 2)):
        value = Mux(number[digit], value[1 << digit:], value)
    return value


def above(value, number):
    """Whether a signal is larger than a constant, without the carry chain that ``>`` becomes."""
    if number < 0 or number >> len(value):
        return Const(number < 0, 1)
    larger = Const(0, 1)
    for k, bit in enumerate(value):
        larger = bit & larger if number >> k & 1 else bit | larger
    return larger


def at_most(limit, value):
    """A signal, but not more than a constant."""
    return Mux(above(value, limit), limit, value)


def steps_of_least(limit, *values):
    """``limit`` bits, of which as many low ones are set as the smallest of some signals says, none of which is more:
    see :func:`height`. No comparison of signals, each of which would be a carry chain."""
    return Cat(Cat(above(value, k) for value in values).all() for k in range(limit))


def to_overflow(limit, value):
    """How many steps a signal is from 0 again, but not more than ``limit``, a power of two that is less."""
    low = limit.bit_length() - 1
    return Mux(value[low:].all(), limit - value[:low], limit)


def below(m, value, width, name):
    """``width`` bits, of which as many low ones are set as ``value`` says."""
    number = Signal(len(value), name=f"{name}_number")
    low = min(BELOW_LOW, len(value))
    steps, rows = Signal(1 << low, name=f"{name}_steps"), -(-width >> low)
    begun, whole, ones = (Signal(size, name=f"{name}_{part}")
                          for size, part in ((rows, "begun"), (rows, "whole"), (width, "ones")))
    m.d.comb += [
        number.eq(value), steps.eq(Cat(above(number[:low], k) for k in range(len(steps)))),
        begun.eq(Cat(above(number[low:], row - 1) for row in range(rows))),
        whole.eq(Cat(above(number[low:], row) for row in range(rows))),
        ones.eq(Cat((steps | whole[row].replicate(len(steps))) & begun[row].replicate(len(steps))
                    for row in range(rows))),
    ]
    return ones


def word_of(m, memory, index):
    """The word of a memory, distributed, that ``index`` names: in the same cycle."""
    port = memory.read_port(domain="comb")
    m.d.comb += port.addr.eq(index)
    return port.data
