"""RoCEv2 invariant CRC over a stream of whole Ethernet frames."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..contract import wire
from . import crc32
from .layouts import BEAT_BYTES, Beat
from .logic import greater_than

GROUP_BYTES = 8
_BTH = wire.BTH_OFFSET
_IPV4 = wire.ETH.size_bytes
_UDP = _IPV4 + wire.IPV4.size_bytes


def _fixed_bytes():
    """Return the value of each byte of the first beat that does not come from the frame.

    Eight bytes of ones precede the IP header. The register starts as ones, which is equal to a
    register of zeros with the first four of those bytes inverted.
    """
    fixed = dict.fromkeys(range(_IPV4 - 4), 0)
    fixed.update(dict.fromkeys(range(_IPV4 - 4, _IPV4), 0xFF))
    variant = [(_IPV4, wire.IPV4, "tos"), (_IPV4, wire.IPV4, "ttl"), (_IPV4, wire.IPV4, "checksum"),
               (_UDP, wire.UDP, "checksum"), (_BTH, wire.BTH, "ecn")]
    for base, layout, field in variant:
        first = base + layout.offset_of(field) // 8
        fixed.update(dict.fromkeys(range(first, first + layout.by_name[field].width // 8), 0xFF))
    return fixed


class Icrc(wiring.Component):
    """ICRC of every frame that passes (IBTA annex A17.3.3, IPv4 without options).

    One beat per cycle, frames back to back, no stall. The result of a frame appears
    ``Icrc.LATENCY`` (7) cycles after the cycle in which its last beat was transferred, that of a check
    ``Icrc.CHECK_LATENCY`` (6), for one cycle. The masking is by position; the result of a frame that is not
    RoCEv2 is undefined, and comes at the same time as that of others.

    The last beat is padded with zeros, so the loop contains only a multiplication by x^512. At the end the padding
    is removed by the inverse map; a check compares with the residue of a correct frame followed by the same padding.

    Parameters
    ----------
    check : bool
        False: frames end with the last byte before the ICRC; the result is the ICRC.
        True: frames end with their ICRC; the result shows whether it is right.

    Members
    -------
    i : In(stream.Signature(Beat, always_ready=True))
        Frames from the Ethernet header; beats may come with gaps. ``error`` is ignored.
    o : Out(stream.Signature(32 or 1, always_ready=True))
        The ICRC (bits 7:0 are its first byte on the wire), or 1 if the frame's ICRC is right.
    """

    LATENCY, CHECK_LATENCY = 7, 6

    def __init__(self, *, check=False):
        self.check = bool(check)
        super().__init__({
            "i": In(stream.Signature(Beat, always_ready=True)),
            "o": Out(stream.Signature(1 if check else crc32.WIDTH, always_ready=True)),
        })

    def elaborate(self, platform):
        m = Module()
        first = Signal(init=1)
        with m.If(self.i.valid):
            m.d.sync += first.eq(self.i.p.last)

        # 1: unused bytes become zero, bytes that routers may change become ones
        fixed = _fixed_bytes()
        masked = Signal(8 * BEAT_BYTES)
        for index in range(BEAT_BYTES):
            byte = self.i.p.data.word_select(index, 8)
            byte = Mux(greater_than(self.i.p.empty, BEAT_BYTES - 1 - index), 0, byte)
            if index in fixed:
                byte = Mux(first, Const(fixed[index], 8), byte)
            m.d.sync += masked.word_select(index, 8).eq(byte)

        # 2: CRC of each group; 3: of the beat; 4: of the frame with its last beat padded
        groups = []
        for index in range(0, BEAT_BYTES, GROUP_BYTES):
            group = Signal(crc32.WIDTH, name=f"group{index}")
            columns = crc32.data_map(GROUP_BYTES, BEAT_BYTES - GROUP_BYTES - index)
            m.d.sync += group.eq(crc32.apply(columns, masked[8 * index:8 * (index + GROUP_BYTES)]))
            groups.append(group)
        beat, state = Signal(crc32.WIDTH), Signal(crc32.WIDTH)
        m.d.sync += beat.eq(Cat(*[Cat(*[g[bit] for g in groups]).xor() for bit in range(crc32.WIDTH)]))

        valid, starts, ends, empty = self.i.valid, first, self.i.p.last, self.i.p.empty
        for stage in range(3):
            valid_q, starts_q, ends_q = (Signal(name=f"{n}{stage}") for n in ("valid", "starts", "ends"))
            empty_q = Signal(6, name=f"empty{stage}")
            m.d.sync += [valid_q.eq(valid), starts_q.eq(starts), ends_q.eq(ends), empty_q.eq(empty)]
            valid, starts, ends, empty = valid_q, starts_q, ends_q, empty_q
        with m.If(valid):
            m.d.sync += state.eq(Mux(starts, 0, crc32.apply(crc32.shift_map(BEAT_BYTES), state)) ^ beat)

        done = Signal()
        m.d.sync += done.eq(valid & ends)
        if self.check:
            result, done = self._compared(m, state, empty, done)
        else:
            result, done = self._taken_back(m, state, empty, done)
        m.d.comb += [self.o.valid.eq(done), self.o.payload.eq(result)]
        return m

    @staticmethod
    def _compared(m, state, empty, done):
        """5: comparison of each byte; 6: of all bytes."""
        expected, equal, right = Signal(crc32.WIDTH), Signal(crc32.WIDTH // 8), Signal()
        compared, done_q = Signal(), Signal()
        behind = [crc32.advance(crc32.RESIDUE, zeros) for zeros in range(BEAT_BYTES)]
        by_zeros = [Const(sum((value >> bit & 1) << zeros for zeros, value in enumerate(behind)), BEAT_BYTES)
                    for bit in range(crc32.WIDTH)]
        m.d.sync += [
            expected.eq(Cat(bits.bit_select(empty, 1) for bits in by_zeros)),
            equal.eq(Cat(state.word_select(k, 8) == expected.word_select(k, 8) for k in range(len(equal)))),
            right.eq(equal.all()), compared.eq(done), done_q.eq(compared),
        ]
        return right, done_q

    @staticmethod
    def _taken_back(m, state, empty, done):
        """5 to 7: remove the padding of the last beat, two bits of its length per cycle."""
        left = Signal(6)
        m.d.sync += left.eq(empty)
        value = state
        for stage, bit in enumerate(range(0, 6, 2)):
            half = Mux(left[0], crc32.apply(crc32.shift_map(-1 << bit), value), value)
            half_q = Signal(crc32.WIDTH, name=f"half{stage}")
            m.d.comb += half_q.eq(half)
            value_next = Mux(left[1], crc32.apply(crc32.shift_map(-2 << bit), half_q), half_q)
            value_q = Signal(crc32.WIDTH, name=f"value{stage}")
            done_q, left_q = Signal(name=f"done{stage}"), Signal(6, name=f"left{stage}")
            m.d.sync += [value_q.eq(value_next), done_q.eq(done), left_q.eq(left >> 2)]
            value, done, left = value_q, done_q, left_q
        return ~value, done
