"""Frames of the compiled cards: where their bytes are while they are under way."""

from ...machine_code import inlined
from .copy import copy
from .state import PAGE

LONGEST = 4096


@inlined
def full(w):
    """Whether there is no place for another frame."""
    g = w.g[0]
    return g.frame_head - g.frame_tail == len(w.frame) or g.byte_head - g.byte_tail + 2 * LONGEST > len(w.bytes)


@inlined
def new_frame(w, length):
    """A frame with room for so many bytes of payload; there has to be place."""
    g = w.g[0]
    handle = g.frame_head
    g.frame_head = handle + 1
    at, size = g.byte_head, len(w.bytes)
    if (at & (size - 1)) + length > size:
        at = (at // size + 1) * size
    found = w.frame[handle & (len(w.frame) - 1)]
    found.used, found.at, found.length, found.end = 1, at & (size - 1), length, at + length
    g.byte_head = at + length
    return handle


@inlined
def free_frame(w, handle):
    """The frame is gone."""
    g, mask = w.g[0], len(w.frame) - 1
    found = w.frame[handle & mask]
    found.used = 0
    w.work[found.work].refs -= 1
    while g.frame_tail != g.frame_head and not w.frame[g.frame_tail & mask].used:
        g.byte_tail = w.frame[g.frame_tail & mask].end
        g.frame_tail += 1


@inlined
def copy_pages(w, c, first_page, va, length, buffer, out):
    """Bytes between a buffer and an MR whose page table begins at ``first_page`` for page 0 of its addresses."""
    while length:
        piece = min(length, PAGE - va % PAGE)
        there = w.page[c, first_page + va // PAGE] + va % PAGE
        if out:
            copy(there, buffer, piece)
        else:
            copy(buffer, there, piece)
        va, buffer, length = va + piece, buffer + piece, length - piece
