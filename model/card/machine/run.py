"""The compiled events of all cards, up to the next thing that Python has to do."""

from pathlib import Path

from ...machine_code import compiled, entries, inlined
from .events import call_at, pop, top
from .frames import free_frame, full, new_frame
from .line import judge, line, next_arrival, send
from .pcie import answer, draws_run_out, new_read, release, wanted
from .pcie import line as ask_line
from .pcie import write as pcie_write
from .pcie import write_payload as pcie_write_payload
from .state import (
    AFTER_DATA,
    AFTER_RAW,
    ANSWER,
    ANSWERED,
    CHOOSE,
    CHOOSE_RAW,
    DONE,
    FINISH,
    FINISHED,
    FRAMED,
    JOBS,
    JUDGE,
    LINE,
    PACKET,
    RAW,
    RAW_LANE,
    REFILL,
    RETIRE,
    SEND,
    SEND_RAW,
    SPARE_DRAWS,
    START,
    STEP_BITS,
    TURN,
    WAKE,
    WANT,
)
from .table import world
from .transmit import answered, choose, enter, frame_next, next_read, turn

RAW_RING = 0     # of a job; those of the streams are behind it
HERE = Path(__file__).parent
NUMBERS = ("hdl/abi.py", "hdl/wire.py", *(f"model/card/{name}.py" for name in ("pcie", "timing", "transmit")))
entry = entries((*sorted(HERE.glob("*.py")), *(HERE.parents[2] / name for name in NUMBERS)))


@compiled
def steps(t, c):
    """What is left of the program of a card's transmit path; why Python is needed, or DONE."""
    w = world(t)
    card, g = w.card[c], w.g[0]
    while card.program:
        step = card.program & (1 << STEP_BITS) - 1
        if step == CHOOSE:
            code = choose(w.t, c)
            if code != DONE:
                return code
        card.program >>= STEP_BITS
        if step == CHOOSE_RAW:
            if card.raw_ready and w.lane[c, RAW_LANE].free:
                return RAW
        elif step == WANT:
            at = next_read(w, c, card.lane)
            if at >= 0.0:
                wanted(w, c, at)
        elif step == LINE:
            code = framed(w, c)
            if code != DONE:
                return code
        elif step == RETIRE:
            job = w.job[c, card.lane, (card.framing - 1) & (JOBS - 1)]
            if job.last:
                lag = card.retire_raw if card.lane == RAW_LANE else card.retire
                call_at(w, card.framed_at + lag, FINISH, c, job.ring)
            card.framing = 0
        elif step != CHOOSE:
            frame_next(w.t, c)
    g.a = 0
    return DONE


@inlined
def framed(w, c):
    """The frame that has left the framer goes to the line."""
    card, g = w.card[c], w.g[0]
    job, lane = w.job[c, card.lane, (card.framing - 1) & (JOBS - 1)], w.lane[c, card.lane]
    lane.head += 1
    lane.free += job.slots
    raw = card.lane == RAW_LANE
    time = line(w, c, job.length, card.framed_at + (card.send_raw if raw else card.send), card.beats_framed)
    if not raw and card.compiled_line:
        send(w.t, c, job.frame, time)
        return DONE
    g.a, g.x = job.frame, time
    return SEND_RAW if raw else SEND


@compiled
def event(t, kind, c, a):
    """Carry out an event; why Python is needed, or DONE."""
    w = world(t)
    card, g = w.card[c], w.g[0]
    if kind == JUDGE:
        handle = next_arrival(w, c)
        if not judge(w.t, c, handle):
            g.a = handle
            return PACKET
    elif kind == ANSWER:
        found = w.read[a]
        done = answer(w.t, c, a)
        if found.cookie >= 0:
            g.a, g.x = found.cookie, done
            release(w, a)
            return ANSWERED
        answered(w.t, c, found.lane, found.job, found.slot, done)
        release(w, a)
    elif kind == TURN:
        turn(w.t, c)
    elif kind == FRAMED:
        card.program = AFTER_RAW if card.lane == RAW_LANE else AFTER_DATA
    elif kind == WAKE:
        card.program = START
    elif kind == FINISH:
        g.a = a
        return FINISHED
    return DONE


@inlined
def until_python(w):
    """Run; why Python is needed, or DONE."""
    g = w.g[0]
    while True:
        if g.resume:
            code = steps(w.t, g.c)
            if code != DONE:
                return code
            g.resume = 0
        if not g.events or not g.heap_size:
            return DONE
        first = w.heap[0]
        if first.time > g.limit_time or (first.time == g.limit_time and first.number > g.limit_number):
            return DONE
        g.c = first.c
        if draws_run_out(w, g.c, SPARE_DRAWS):
            return REFILL
        g.now, kind, c, a = pop(w.t)
        code = event(w.t, kind, c, a)
        if code != DONE:
            return code
        g.resume = w.card[c].program != 0


@entry
def go(t):
    """Run events up to the limit, or the program of card ``c`` alone; why Python is needed, or DONE."""
    w = world(t)
    code = until_python(w)
    top(w)
    return code


@entry
def line_read(t, c, time, count, need0, need1, need2, cookie):
    """A read of Python; see :func:`weft.model.card.machine.pcie.line`."""
    w = world(t)
    ask_line(w.t, c, time, new_read(w, c, count, need0, need1, need2, -1, 0, 0, cookie))
    top(w)


@entry
def write(t, c, time, length, ahead):
    """See :func:`weft.model.card.machine.pcie.write`."""
    w = world(t)
    return pcie_write(w.t, c, time, length, ahead)


@entry
def write_payload(t, c, time, length):
    """See :func:`weft.model.card.machine.pcie.write_payload`."""
    w = world(t)
    return pcie_write_payload(w.t, c, time, length)


@entry
def enter_raw(t, c, cookie, length, last, at, address, count):
    """A raw frame becomes a job."""
    w = world(t)
    enter(w, c, RAW_LANE, cookie, length, RAW_RING, last, at, address, count, 0, 0)
    top(w)


@entry
def place(t, length):
    """Place of a new frame; -1 if there is none."""
    w = world(t)
    return -1 if full(w) else new_frame(w, length)


@entry
def free(t, handle):
    """See :func:`weft.model.card.machine.frames.free_frame`."""
    w = world(t)
    free_frame(w, handle)
