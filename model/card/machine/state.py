"""What the compiled card remembers, as arrays: one :class:`World` holds all cards of an event loop.

Queues are rings: heads and tails count on without end, a place is a count modulo the ring's size.
"""

from collections import namedtuple

import numpy as np

from ..write_engine import ANSWERS, CLIENTS, TICKETS

# Kinds of events.
ANSWER, FRAMED, WAKE, JUDGE, FINISH, TURN, LOOK, MERGE, RAW_FRAMED, COMPLETE, PASSED = range(11)
# Why machine code returns to Python: nothing left to do, or something that Python does, see ``machine.py``.
DONE, HEAD, NEXT, RAW, SEND, SEND_RAW, PACKET, ANSWERED, FINISHED, REFILL, GROW, GRANTED = range(12)
# Steps of the transmit path, three bits each in a program.
END, CHOOSE, CHOOSE_RAW, WANT, NEXT_FRAME, LINE, RETIRE, AGAIN, READ_RAW = range(9)
STEP_BITS = 4
SEND_STREAM, AGAIN_STREAM = 0, 1
DATA_LANE, RAW_LANE = 0, 1
JOBS, SLOTS, WRITES, BUFFERED, DRAWS, WORKS, LINES, FREED = 512, 96, 4096, 1024, 8192, 1 << 14, 1024, 1024
GROUPS, STORES, TOLD, MERGING, TAGS, STOOD, EMPTY = 4096, 128, 64, 64, 256, 16, 16
WRITE_FIELDS, TOLD_FIELDS = 5, 3
SPARE_DRAWS = 512     # more than one event takes
PAGE = 4096


def program(*steps):
    """Steps of the transmit path as a number."""
    return sum(step << STEP_BITS * at for at, step in enumerate(steps))


START = program(CHOOSE, CHOOSE_RAW)
AFTER_DATA = program(RETIRE, NEXT_FRAME)
AFTER_RAW = program(RETIRE, WANT, CHOOSE_RAW, READ_RAW)
PASS = program(LINE, AGAIN)
PASS_BITS = 2 * STEP_BITS


def _dtype(floats, integers):
    return np.dtype([(name, "f8") for name in floats.split()] + [(name, "i8") for name in integers.split()])


GLOBAL = _dtype("now limit_time top_time x", "number limit_number top_number code c a resume events looking "
                "heap_size frame_head frame_tail byte_head byte_tail")
EVENT = _dtype("time", "number kind c a")
CARD = _dtype(
    # PCIe, as weft.model.card.pcie has them
    "request_free completion_free down_free down_reserved down_late "
    "pace read_latency read_jitter read_tail read_tail_ns pcie_bytes_per_ns "
    "pcie_hop next_turn "
    # its write engine
    "look_next grant_free stream_free split_at lined0 lined1 lined2 used_at ordered0 ordered1 ordered2 ordered3 "
    "last_beat rq_free link_was wrote read_out read_left raw_free placed_at backlog up_free grant_moved grant_beat "
    # transmit
    "next_choice entered translated0 translated1 framer_free line_free woken gbps check payload raw_payload send "
    "retire retire_raw room merge_free merge_next hold_at pass_end raw_read raw_passed raw_from "
    "rows_end slot_free "
    # line and receive
    "loss delay mac_free asked_at window_free judge asked place",
    "used0 used1 used2 trusted runs1 runs2 max_payload split write_header message_header completion_header write_head "
    "write_tail owner keyed ticket placed told group_head group_tail stored_head stored_tail stored_beats grant_begun "
    "line_head line_tail line_client answer_head answer_tail "
    "freed_head freed_tail held source draw line_draw full framing most pending "
    "merge_head0 merge_tail0 merge_head1 merge_tail1 holds hold_index merge_turn pass_lane pass_index raw_behind "
    "buffered_head buffered_tail beats "
    "tx_places rx_beats lane ready0 ready1 raw_ready program slow compiled_line peer mac ip qpn_width "
    "rx_head rx_tail rx_count stood_head stood_tail jobs_asked empty_head empty_tail "
    "tx_packets tx_retransmissions tx_bytes rx_frames rx_packets rx_bytes sent0 sent1 sent2 sent3 "
    "lost0 lost1 lost2 lost3")
LANE = _dtype("", "free head tail asking_head asking_tail freed_head freed_tail")
JOB = _dtype("at chosen", "frame length ring last open slots first first_left second second_left merging")
STREAM = _dtype("at", "active work known psn rsn local remote length last cut index "
                "now_psn now_rsn now_local now_remote now_length now_last now_frame segments")
WORK = _dtype("", "refs odd retransmit ack_req imm inline dst_mac dst_ip src_ip dqpn rkey psn rsn local remote length "
              "pmtu first_page header")
FRAME = _dtype("judged", "used at length bytes work psn rsn local remote last next number end")
READ = _dtype("", "c bytes need0 need1 need2 lane job slot cookie next")
QP = _dtype("", "state generation pd access ip plain psn")
MR = _dtype("", "valid tag access pd va length pte small")

World = namedtuple("World", "t g heap card lane job done rows asking stream work frame bytes read writes buffered "
                   "draws line_draws qp mr page lines freed asks groups stored tickets told merging "
                   "free_at answers stood empty")


def blank(cards, params, frames, size):
    """A World for so many cards, of whose sizes ``params`` are the largest, frames, and bytes of payload."""
    def records(dtype, *shape):
        return np.zeros(shape, dtype).view(np.recarray)

    w = World(
        t=None, g=records(GLOBAL, 1), heap=records(EVENT, 4096), card=records(CARD, cards),
        lane=records(LANE, cards, 2), job=records(JOB, cards, 2, JOBS), done=np.zeros((cards, 2, JOBS, SLOTS)),
        rows=np.zeros((cards, 2, JOBS, SLOTS), np.int64), asking=np.zeros((cards, 2, JOBS), np.int64),
        stream=records(STREAM, cards, 2), work=records(WORK, WORKS), frame=records(FRAME, frames),
        bytes=np.zeros(size, np.uint8), read=records(READ, 1024 * cards + 1),
        writes=np.zeros((cards, WRITES, WRITE_FIELDS)), buffered=np.zeros((cards, BUFFERED, 3)),
        draws=np.zeros((cards, DRAWS)), line_draws=np.zeros((cards, DRAWS)),
        qp=records(QP, cards, params.qps), mr=records(MR, cards, params.mrs),
        page=np.zeros((cards, params.ptes), np.int64), lines=np.zeros((cards, LINES, 3)),
        freed=np.zeros((cards, FREED, 6)), asks=np.zeros((cards, CLIENTS, 3)), groups=np.zeros((cards, GROUPS, 8)),
        stored=np.zeros((cards, STORES, 2)), tickets=np.zeros((cards, TICKETS, 2)),
        told=np.zeros((cards, TOLD, TOLD_FIELDS)), merging=np.zeros((cards, 2, MERGING, 5)),
        free_at=np.zeros((cards, TAGS)), answers=np.zeros((cards, ANSWERS, 2)),
        stood=np.zeros((cards, STOOD, 2)), empty=np.zeros((cards, EMPTY), np.int64))
    w.read.next[:-1] = np.arange(1, len(w.read))    # place 0 is the head of the free ones
    w.g[0].top_time = np.inf
    return w
