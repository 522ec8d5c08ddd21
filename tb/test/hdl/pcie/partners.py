"""Partners of the DMA engines in benches: a completer for reads, a memory for writes."""

from collections import deque

import cocotb
from cocotb.triggers import RisingEdge

from weft.hdl.pcie.tlp import CompletionBeat, ReadTlp, WriteTlp
from weft.tb.sim.stream.payload import pack, unpack

RC_HEADER_DWORDS = 3


def enabled_span(tlp):
    """Return first byte address and length of a TLP's enabled bytes; check the rules of byte enables."""
    if tlp.dwords == 1:
        assert tlp.last_be == 0
        low = (tlp.first_be & -tlp.first_be).bit_length() - 1
        high = tlp.first_be.bit_length()
        assert tlp.first_be == (1 << high) - (1 << low)
        return tlp.address * 4 + low, high - low
    low, high = 4 - tlp.first_be.bit_count(), tlp.last_be.bit_count()
    assert low < 4 and tlp.first_be == (0xF << low) & 0xF and high > 0 and tlp.last_be == (1 << high) - 1
    return tlp.address * 4 + low, tlp.dwords * 4 - low - (4 - high)


class Completer:
    """Answers ReadTlps of ``o_read`` on ``i_completion`` from a function of the byte address.

    Attributes
    ----------
    window : int
        Requests among which the next one to be answered is chosen: 1 answers in order.
    rcb : int
        Completions are split at multiples of this, at random, or everywhere if ``split_all``.
    fail : set
        Page numbers whose reads end in an error.
    fail_lines : set
        Numbers of lines of 64 bytes whose reads do.
    most_lines, most_headers : int
        Largest number of 64-byte lines that unanswered requests covered at one time, and of their completions.
    """

    def __init__(self, dut, rng, *, read, window=1, rcb=64, split_all=False, pause=0.0, latency=0, size=4096):
        self.dut, self.rng, self.read = dut, rng, read
        self.window, self.rcb, self.split_all, self.pause, self.latency = window, rcb, split_all, pause, latency
        self.size, self.fail, self.fail_lines = size, set(), set()
        self.requests, self.active, self.seen, self.most_active = [], {}, [], 0
        self.overtaken = self.split = self.most_lines = self.most_headers = 0
        cocotb.start_soon(self._run())

    def _answer(self, tlp):
        """Return the beats of all completions of one request, a list per completion."""
        address, length = enabled_span(tlp)
        lines = range(address // 64, (address + length - 1) // 64 + 1)
        if address >> 12 in self.fail or self.fail_lines.intersection(lines):
            failure = {"tag": tlp.tag, "last": 1, "error": 1}
            kind = self.rng.randrange(3) if length > self.rcb else 0
            if kind == 0:
                return [[pack(CompletionBeat, **failure, done=1)]]
            cut = address + length // 2 & -self.rcb
            if kind == 1 and cut > address:            # some data, then an error
                return [self._beats(tlp, address, cut, False), [pack(CompletionBeat, **failure, done=1)]]
            return [[pack(CompletionBeat, **failure)], self._beats(tlp, address, address + length, True)]
        cuts = [address, *[c for c in range((address | self.rcb - 1) + 1, address + length, self.rcb)
                           if self.split_all or self.rng.random() < 0.2], address + length]
        self.split += len(cuts) > 2
        return [self._beats(tlp, a, b, b == cuts[-1]) for a, b in zip(cuts, cuts[1:], strict=False)]

    def _beats(self, tlp, start, end, done):
        first, last = start // 4, (end + 3) // 4
        payload = self.read(first * 4, (last - first) * 4)
        stream = self.rng.randbytes(RC_HEADER_DWORDS * 4) + payload
        beats = []
        for at in range(0, len(stream), 64):
            part = stream[at:at + 64]
            lanes = (1 << len(part) // 4) - 1
            if at == 0:
                lanes &= ~0b111
            beats.append(pack(
                CompletionBeat, data=int.from_bytes(part, "little"), lanes=lanes, tag=tlp.tag,
                dword=(first - RC_HEADER_DWORDS + at // 4) % 1024, last=int(at + 64 >= len(stream)),
                done=int(done and at + 64 >= len(stream))))
        return beats

    async def _run(self):
        dut, edge = self.dut, RisingEdge(self.dut.clk)
        open_answers, beats, cycle = [], deque(), 0
        dut.o_read__ready.value = 1
        offered = 0
        while True:
            await edge
            cycle += 1
            if int(dut.o_read__valid.value):
                tlp = unpack(ReadTlp, int(dut.o_read__payload.value))
                if int(dut.o_read__ready.value):
                    address, length = enabled_span(tlp)
                    assert tlp.tag not in self.active, f"tag {tlp.tag} is used twice"
                    assert tlp.dwords * 4 <= self.size and (address >> 12) == (address + length - 1 >> 12)
                    answer = deque(self._answer(tlp))
                    self.active[tlp.tag] = (tlp.dwords + tlp.address % 16 + 15) // 16, len(answer)
                    lines, headers = map(sum, zip(*self.active.values(), strict=True))
                    self.most_lines, self.most_headers = max(self.most_lines, lines), max(self.most_headers, headers)
                    self.most_active = max(self.most_active, len(self.active))
                    self.seen.append((address, length, tlp.tag))
                    open_answers.append((cycle + self.latency, tlp.tag, answer))
            if offered and unpack(CompletionBeat, offered).done:
                del self.active[unpack(CompletionBeat, offered).tag]
            offered = 0
            if not beats:
                choices = [a for a in open_answers[:self.window] if a[0] <= cycle]
                if choices:
                    choice = self.rng.choice(choices)
                    self.overtaken += choice is not open_answers[0]
                    beats.extend(choice[2].popleft())
                    if not choice[2]:
                        open_answers.remove(choice)
            if beats and not (self.pause and self.rng.random() < self.pause):
                offered = beats.popleft()
                dut.i_completion__payload.value = offered
            dut.i_completion__valid.value = int(bool(offered))
            if self.pause:
                dut.o_read__ready.value = int(self.rng.random() >= self.pause)


class WriteMemory:
    """Stores WriteTlp beats in a dictionary of bytes; checks every rule of a write."""

    def __init__(self, size):
        self.size, self.bytes, self.tlps, self.log = size, {}, 0, []
        self._left = None

    def beat(self, word):
        """Take one transferred beat."""
        beat = unpack(WriteTlp, word)
        if self._left is None:
            assert beat.first
            address, length = enabled_span(beat)
            assert address % self.size + length <= self.size, "crosses the maximum payload's boundary"
            self.tlps += 1
            self.log.append((address, length))
            self._span, self._at, self._left = (address, address + length), beat.address * 4, beat.dwords
        else:
            assert not beat.first
        lanes = min(self._left, 16)
        raw = beat.data.to_bytes(64, "little")
        for k in range(lanes * 4):
            if self._span[0] <= self._at + k < self._span[1]:
                self.bytes[self._at + k] = raw[k]
        self._at += 64
        self._left -= lanes
        assert bool(beat.last) == (self._left == 0)
        if not self._left:
            self._left = None
