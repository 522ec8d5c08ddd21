"""All compiled cards of an event loop, and what Python does for them in between."""

import heapq
import math
from array import array

import numpy as np

from ...functional.transmit import TxPacket
from ..frame import DataFrame
from . import run
from .cells import Cells
from .state import (
    ANSWER,
    ANSWERED,
    CARD,
    COMPLETE,
    DATA_LANE,
    DONE,
    EVENT,
    FINISHED,
    FRAME,
    GLOBAL,
    GRANTED,
    GROW,
    HEAD,
    JOBS,
    LINES,
    MERGING,
    NEXT,
    PACKET,
    QP,
    RAW,
    REFILL,
    SEND,
    SEND_RAW,
    WORKS,
    blank,
)
from .table import table

NEVER, MASK = 1 << 62, (1 << 64) - 1
_NEVER = math.inf, NEVER
_FIELDS = {dtype: {name: at for at, name in enumerate(dtype.names)} for dtype in (GLOBAL, CARD, QP)}
_G = _FIELDS[GLOBAL]
NOW, LIMIT, TOP, X = (_G[name] for name in ("now", "limit_time", "top_time", "x"))
_FRAME_FIELDS = len(FRAME.names)
NUMBER, LIMIT_NUMBER, TOP_NUMBER, CODE, C, A, RESUME, EVENTS = (
    _G[name] for name in ("number", "limit_number", "top_number", "code", "c", "a", "resume", "events"))


class Machine:
    """Runs an :class:`~weft.model.link.EventLoop` together with the compiled events of its cards.

    Attributes
    ----------
    w : World
    pages : memoryview
        Of ``w.page``, of one card behind the other.
    frames, size : int
        Places for frames and bytes of payload to begin with.
    cards : list of CompiledCard
        By their number there.
    """

    frames, size = 4096, 1 << 20

    def __init__(self, loop):
        self.loop, self.cards, self.w, self._params = loop, [], None, []
        self.reads, self._next_read = {}, 0      # of Python, under way
        self.raw = {}                            # raw frames under way to the line
        self.works, self._unused = [None] * WORKS, list(range(WORKS))
        self._handlers = {HEAD: self._head, NEXT: self._next, RAW: self._choose_raw, SEND: self._send,
                          SEND_RAW: self._send_raw, PACKET: self._packet, ANSWERED: self._answered,
                          FINISHED: self._finished, REFILL: self._refill, GROW: self._grow,
                          GRANTED: self._granted}

    @classmethod
    def of(cls, loop):
        """The machine of a loop, made when the first card asks for it."""
        if loop.compiled is None:
            loop.compiled = cls(loop)
        return loop.compiled

    # ---------------------------------------------------------------------------------------------- cards

    def add(self, card):
        """A new card; its number."""
        self.cards.append(card)
        self._params.append(card.params)
        if self.w is None or len(self.cards) > len(self.w.card) or self._larger(card.params):
            self._rebuild()
        number = len(self.cards) - 1
        card.bind(Cells(self.w.card, number))
        return number

    def _larger(self, params):
        w = self.w
        return (params.qps > w.qp.shape[1] or params.mrs > w.mr.shape[1] or params.ptes > w.page.shape[1])

    def _rebuild(self):
        """Arrays for more or larger cards."""
        class Largest:
            qps, mrs, ptes = (max(getattr(params, name) for params in self._params) for name in ("qps", "mrs", "ptes"))

        old, self.w = self.w, blank(max(2, 2 * (len(self.cards) - 1)), Largest, self.frames, self.size)
        if old is not None:
            for name, found in old._asdict().items():
                if name in ("t", "g", "heap", "frame", "bytes", "work"):
                    self.w = self.w._replace(**{name: found})
                else:
                    getattr(self.w, name)[tuple(slice(0, n) for n in found.shape)] = found
            more = self.w.read.next[len(old.read):]
            more[:] = np.arange(len(old.read) + 1, len(self.w.read) + 1)
            more[-1:] = old.read.next[0]
            if len(more):
                self.w.read.next[0] = len(old.read)
        self.bind()

    def bind(self):
        """The arrays are others now."""
        self.table, cells, self._bytes = table(self.w), Cells(self.w.g, 0), memoryview(self.w.bytes)
        self._frames, self._works, self.pages = (
            memoryview(found.view(np.ndarray).reshape(-1).view("i8"))
            for found in (self.w.frame, self.w.work, self.w.page))
        self._floats, self._numbers = cells.floats, cells.numbers
        for number, card in enumerate(self.cards):
            card.bind(Cells(self.w.card, number))

    def forget(self, c):
        """A card is reset: nothing that was under way in it happens."""
        w, g = self.w, self.w.g[0]
        gone = [event for event in w.heap[:g.heap_size] if event.c == c]
        heap = sorted(tuple(event) for event in w.heap[:g.heap_size] if event.c != c)
        card = w.card[c]
        reads = [event.a for event in gone if event.kind in (ANSWER, COMPLETE)] + ([card.held] if card.held else [])
        reads += [int(w.lines[c, at & LINES - 1, 1]) for at in range(card.line_head, card.line_tail)]
        for place in reads:
            w.read.next[place], w.read.next[0] = w.read.next[0], place
        w.heap[:len(heap)] = np.array(heap, dtype=EVENT)
        g.heap_size = len(heap)
        lane, handle = w.lane[c, DATA_LANE], w.card[c].rx_head
        frames = [int(w.job[c, DATA_LANE, at & JOBS - 1].frame) for at in range(lane.head, lane.tail)]
        merging = [*range(card.merge_head0, card.merge_tail0), *[card.hold_index] * int(card.holds == 1 + DATA_LANE)]
        framed = (int(w.merging[c, DATA_LANE, at & MERGING - 1, 3]) for at in merging)
        frames += [frame for frame in framed if frame not in frames]
        for _ in range(w.card[c].rx_count):
            frames.append(handle)
            handle = w.frame[handle & len(w.frame) - 1].next
        for handle in frames:
            run.free(self.table, handle)
        for stream in w.stream[c]:
            w.work.refs[stream.work] -= stream.active
        drawn = w.card[c].line_draw      # the line is what it was
        w.card[c] = np.zeros(1, CARD)[0]
        w.card[c].line_draw = drawn
        w.asks[c] = 0
        g.looking *= g.looking != 1 + c
        w.lane[c] = np.zeros(2, w.lane.dtype)
        w.stream[c] = np.zeros(2, w.stream.dtype)
        w.qp[c], w.mr[c], w.page[c] = (np.zeros_like(found[c]) for found in (w.qp, w.mr, w.page))
        run.show(self.table)

    # ---------------------------------------------------------------------------------------- running

    @property
    def due(self):
        """When the next compiled event is."""
        return self._floats[TOP]

    def run(self, until, condition):
        """As :meth:`weft.model.link.EventLoop.run`."""
        try:
            return self._run(until, condition)
        finally:
            for card in self.cards:
                if card.line:
                    card.line_count()

    def _run(self, until, condition):
        loop, queue = self.loop, self.loop.queue
        while not condition():
            floats, numbers = self._floats, self._numbers
            time, number, *_ = queue[0] if queue else _NEVER
            top = floats[TOP]
            if top <= until and (top < time or (top == time and numbers[TOP_NUMBER] < number)):
                floats[LIMIT], numbers[LIMIT_NUMBER] = (until, NEVER) if until < time else (time, number)
                numbers[EVENTS] = 1
                self._drive()
            elif time > until or not queue:
                loop.now_ns = max(loop.now_ns, until)
                return False
            else:
                loop.now_ns, _, function, arguments = heapq.heappop(queue)
                function(*arguments)
        return True

    def program(self, c):
        """Carry out the program of a card's transmit path."""
        numbers = self._numbers
        numbers[C], numbers[RESUME], numbers[EVENTS] = c, 1, 0
        self._drive()

    def _drive(self):
        loop = self.loop
        while True:
            numbers, floats = self._numbers, self._floats
            numbers[NUMBER], floats[NOW] = loop.number, loop.now_ns
            code = run.go(self.table)
            loop.number, loop.now_ns = numbers[NUMBER], floats[NOW]
            if code == DONE:
                return
            c, resume = numbers[C], numbers[RESUME]
            self._handlers[code](self.cards[c], numbers[A], floats[X])
            numbers = self._numbers
            numbers[C], numbers[RESUME], numbers[EVENTS] = c, resume, 0
            if not resume:
                return

    def step(self):
        """As :meth:`weft.model.link.EventLoop.step`; what machine code does in one go is a step."""
        due = self.loop.due_ns
        if due is None:
            return False
        steps = iter((False, True))
        return self.run(due, lambda: next(steps))

    # ------------------------------------------------------------------------------------ what Python does

    def _head(self, card, stream, _):
        card.transmit_path.head(stream)

    def _next(self, card, stream, _):
        card.transmit_path.next(stream)

    def _choose_raw(self, card, *_):
        card.transmit_path.choose_raw()

    def _send(self, card, handle, time):
        card.send_frame(self.frame(handle), time)

    def _send_raw(self, card, cookie, time):
        card.send_frame(self.raw.pop(cookie), time)

    def _packet(self, card, handle, _):
        card.receive_path.judge(self.frame(handle))

    def _answered(self, card, cookie, time):
        self.reads.pop(cookie).answered(time)

    def _finished(self, card, ring, _):
        card.finished(ring)

    def _granted(self, card, *_):
        card.pcie.writes.tell()

    def _refill(self, card, *_):
        card.refill()

    def _grow(self, *_):
        """More place for frames."""
        w, g = self.w, self.w.g[0]
        if g.frame_head - g.frame_tail == len(w.frame):
            grown = np.zeros(2 * len(w.frame), w.frame.dtype).view(np.recarray)
            live = np.arange(g.frame_tail, g.frame_head)
            grown[live & len(grown) - 1] = w.frame[live & len(w.frame) - 1]
            w = w._replace(frame=grown)
        else:
            size = len(w.bytes)
            grown = np.zeros(2 * size, np.uint8)
            at = g.byte_tail
            while at < g.byte_head:
                end = min((at // size + 1) * size, g.byte_head)
                to = at & 2 * size - 1
                grown[to:to + end - at] = w.bytes[at & size - 1:(at & size - 1) + end - at]
                at = end
            live = np.arange(g.frame_tail, g.frame_head) & len(w.frame) - 1
            ends = w.frame.end[live]
            w.frame.at[live] = ends - w.frame.length[live] & 2 * size - 1
            w = w._replace(bytes=grown)
        self.w = w
        self.bind()

    # ------------------------------------------------------------------------------------- frames and works

    def frame(self, handle):
        """The frame of a place, as an object; the place is free again."""
        place = (handle & len(self.w.frame) - 1) * _FRAME_FIELDS
        _, _, at, length, _, number, psn, rsn, local, remote, last, *_ = (
            self._frames[place:place + _FRAME_FIELDS].tolist())
        work, source = self.works[number]
        packet = TxPacket(work, psn, rsn, local & MASK, remote & MASK, length, bool(last))
        payload = bytes(self._bytes[at:at + length])
        run.free(self.table, handle)
        return DataFrame.of(packet, payload, source)

    def new_work(self, work, source, fields):
        """Number of a descriptor's work, with what machine code has to know of it: the fields of ``state.WORK``."""
        if not self._unused:
            refs = self.w.work.refs
            self._unused = np.flatnonzero(refs == 0).tolist()
            if len(self._unused) < len(refs) // 4:
                grown = np.zeros(2 * len(refs), self.w.work.dtype).view(np.recarray)
                grown[:len(refs)] = self.w.work
                self._unused += range(len(refs), len(grown))
                self.works += [None] * len(refs)
                self.w = self.w._replace(work=grown)
                self.bind()
        number = self._unused.pop()
        self.works[number] = work, source
        self._works[number * len(fields):(number + 1) * len(fields)] = array("l", fields)
        return number

    # ---------------------------------------------------------------------------------------------- PCIe

    def line(self, c, time, client, read):
        """A read of Python."""
        self._next_read += 1
        self.reads[self._next_read] = read
        self.call(run.line_read, c, time, client, read.bytes, *read.needed, self._next_read)

    def call(self, function, c, *arguments):
        """Call machine code of a card: events that it makes are numbered with those of the loop."""
        numbers, loop = self._numbers, self.loop
        numbers[NUMBER], self._floats[NOW] = loop.number, loop.now_ns
        found = function(self.table, c, *arguments)
        loop.number = numbers[NUMBER]
        return found

    def enter_raw(self, c, frame, length, last, lag, address, count):
        """A raw frame becomes a job."""
        self._next_read += 1
        self.raw[self._next_read] = frame
        self.call(run.enter_raw, c, self._next_read, length, last, lag, address, count)
