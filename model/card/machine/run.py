"""The compiled events of all cards, up to the next thing that Python has to do."""

from pathlib import Path

from ...machine_code import compiled, entries, inlined
from ..transmit import RAW_FRAMES, RAW_WAITED
from .events import call_at, pop, top
from .frame_merge import merge_again, merge_look
from .frames import free_frame, full, new_frame
from .line import judge, line, next_arrival, send
from .line import judged_at as arrival_judged_at
from .pcie import complete, draws_run_out, new_read, release, waits
from .pcie import down as begin_down
from .pcie import line as ask_line
from .state import (
    AFTER_DATA,
    AFTER_RAW,
    AGAIN,
    ANSWER,
    ANSWERED,
    CHOOSE,
    CHOOSE_RAW,
    COMPLETE,
    DATA_LANE,
    DONE,
    FINISH,
    FINISHED,
    FRAMED,
    GRANTED,
    JOBS,
    JUDGE,
    LINE,
    LOOK,
    MERGE,
    MERGING,
    NEXT_FRAME,
    PACKET,
    PASSED,
    RAW,
    RAW_FRAMED,
    RAW_LANE,
    READ_RAW,
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
from .transmit import answered, choose, enter, frame_next, pass_empty, read_raw, turn, want
from .write_engine import ask, look, look_again, placed, stream

RAW_RING = 0     # of a job; those of the streams are behind it
HERE = Path(__file__).parent
NUMBERS = ("hdl/contract/abi.py", "hdl/contract/wire.py",
           *(f"model/card/{name}.py" for name in ("pcie", "receive", "timing", "transmit", "write_engine")))
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
            if card.raw_ready and w.lane[c, RAW_LANE].tail - w.lane[c, RAW_LANE].head < RAW_FRAMES:
                return RAW
        elif step == WANT:
            want(w, c, card.lane)
        elif step == LINE:
            code = passed(w, c)
            if code != DONE:
                return code
        elif step == AGAIN:
            through(w, c)
        elif step == RETIRE:
            retire(w, c)
        elif step == READ_RAW:
            if w.lane[c, RAW_LANE].head != w.lane[c, RAW_LANE].tail:
                read_raw(w.t, c)
        elif step == NEXT_FRAME and w.lane[c, DATA_LANE].head != w.lane[c, DATA_LANE].tail:
            frame_next(w.t, c)
    g.a = 0
    return DONE


@inlined
def retire(w, c):
    """The first job of the card's lane is out of its reader, and its slots are free, or out of the framer."""
    card = w.card[c]
    lane = w.lane[c, card.lane]
    job = w.job[c, card.lane, lane.head & (JOBS - 1)]
    raw = card.lane == RAW_LANE
    if raw and lane.tail - lane.head == RAW_FRAMES:
        card.raw_from = w.g[0].now + RAW_WAITED
    lane.head += 1
    if raw:
        lane.free += job.slots
    else:
        card.framing = 0
    if raw or job.last:
        call_at(w, w.g[0].now + (card.retire_raw if raw else card.retire), FINISH, c, job.ring)


@inlined
def passed(w, c):
    """The frame that passed the merge goes to the line."""
    card, g = w.card[c], w.g[0]
    one = w.merging[c, card.pass_lane, card.pass_index & (MERGING - 1)]
    raw, frame = card.pass_lane == RAW_LANE, int(one[3])
    time = line(w, c, int(one[4]), card.pass_end + card.send, int(one[2]))
    if not raw and card.compiled_line:
        send(w.t, c, frame, time)
        return DONE
    g.a, g.x = frame, time
    return SEND_RAW if raw else SEND


@inlined
def through(w, c):
    """What waited for a frame to pass."""
    card = w.card[c]
    if card.pass_lane == RAW_LANE:
        card.raw_behind -= int(w.merging[c, RAW_LANE, card.pass_index & (MERGING - 1), 2])
        card.raw_passed = card.pass_end
        if w.lane[c, RAW_LANE].head != w.lane[c, RAW_LANE].tail:
            read_raw(w.t, c)
    merge_again(w, c)


@compiled
def event(t, kind, c, a):
    """Carry out an event; why Python is needed, or DONE."""
    w = world(t)
    card, g = w.card[c], w.g[0]
    if kind == JUDGE:
        if g.now < card.window_free:
            call_at(w, card.window_free, JUDGE, c, 0)
            return DONE
        handle = next_arrival(w, c)
        if not judge(w.t, c, handle):
            g.a = handle
            return PACKET
    elif kind in (ANSWER, COMPLETE):
        if kind == ANSWER and waits(w, c, a):
            return DONE
        found = w.read[a]
        done = complete(w.t, c, a)
        if found.cookie >= 0:
            g.a, g.x = found.cookie, done
            release(w, a)
            return ANSWERED
        answered(w.t, c, found.lane, found.job, found.slot, done)
        release(w, a)
    elif kind == TURN:
        turn(w.t, c)
    elif kind == FRAMED:
        card.lane, card.program = DATA_LANE, AFTER_DATA
    elif kind == RAW_FRAMED:
        card.lane, card.program = RAW_LANE, AFTER_RAW
    elif kind == MERGE:
        merge_look(w.t, c)
    elif kind == LOOK:
        if look(w.t, c):
            g.looking = 1 + c
            if card.told:
                return GRANTED
    elif kind == WAKE:
        card.program = START
    elif kind == PASSED:
        pass_empty(w, c)
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
        if not g.events:
            return DONE
        if g.looking:
            g.looking, c = 0, g.looking - 1
            look_again(w.t, c)
        if not g.heap_size:
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
def show(t):
    """See :func:`weft.model.card.machine.events.top`."""
    top(world(t))


@entry
def line_read(t, c, time, client, count, need0, need1, need2, cookie):
    """A read of Python; see :func:`weft.model.card.machine.pcie.line`."""
    w = world(t)
    ask_line(w.t, c, time, client, new_read(w, c, count, need0, need1, need2, -1, 0, 0, cookie))
    top(w)


@entry
def down(t, c, size):
    """See :func:`weft.model.card.machine.pcie.down`."""
    w = world(t)
    return begin_down(w.t, c, size)


@entry
def judged_at(t, c, read, asked):
    """See :func:`weft.model.card.machine.line.judged_at`."""
    return arrival_judged_at(t, c, read, asked)


@entry
def write_ask(t, c, client, time, address, length):
    """See :func:`weft.model.card.machine.write_engine.ask`."""
    w = world(t)
    ask(w, c, client, time, address, length)
    top(w)


@entry
def write_stream(t, c, time, client, address, first, second_address, second, key):
    """See :func:`weft.model.card.machine.write_engine.stream`."""
    w = world(t)
    ticket = stream(w.t, c, time, client, address, first, second_address, second, key)
    top(w)
    return ticket


@entry
def write_placed(t, c, ticket):
    """See :func:`weft.model.card.machine.write_engine.placed`."""
    w = world(t)
    return placed(w.t, c, ticket)


@entry
def enter_raw(t, c, cookie, length, last, lag, address, count):
    """A raw frame becomes a job."""
    w = world(t)
    enter(w, c, RAW_LANE, cookie, length, RAW_RING, last, lag, address, count, 0, 0)
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
