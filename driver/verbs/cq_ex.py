"""Extended completion queues: completions are read one by one, in place."""

import errno
from dataclasses import dataclass

from ..terms.checks import instance, unsigned
from ..terms.errors import InvalidValue, NotSupported
from ..terms.init_enums import CqAttrFlag, CqInitAttrMask, CqWcFlag
from .cq import CQ, check_creator
from .locking import locked
from .qp_init_attr import MASK_BITS


@dataclass
class CqInitAttrEx:
    """Creation attributes of a :class:`CQEX` (ibv_cq_init_attr_ex).

    ``flags`` and ``parent_domain`` are valid only if their bits in ``comp_mask`` are set.
    """

    cqe: int = 100
    channel: object = None
    comp_vector: int = 0
    wc_flags: CqWcFlag = CqWcFlag(0)
    comp_mask: CqInitAttrMask = CqInitAttrMask(0)
    flags: CqAttrFlag = CqAttrFlag(0)
    parent_domain: object = None

    def check(self):
        """Raise NotSupported, InvalidValue or TypeError if these attributes cannot create a CQ."""
        if unsigned("comp_mask", self.comp_mask, MASK_BITS) & ~int(CqInitAttrMask.FLAGS):
            raise NotSupported(f"Failed to create extended CQ: comp_mask is {self.comp_mask:#x}; only flags can be")
        if absent := unsigned("wc_flags", self.wc_flags, 64) & ~int(CqWcFlag.STANDARD_FLAGS):
            raise NotSupported(f"Failed to create extended CQ: wc_flags {absent:#x} do not exist here")
        if self.comp_mask and unsigned("flags", self.flags, MASK_BITS) & ~int(CqAttrFlag.SINGLE_THREADED):
            raise NotSupported(f"Failed to create extended CQ: flags are {self.flags:#x}; an overrun is an error")


@dataclass
class PollCqAttr:
    """Attributes of a poll (ibv_poll_cq_attr); there are no options."""

    comp_mask: int = 0


class CQEX(CQ):
    """CQ whose completions are read one by one (ibv_cq_ex): :meth:`start_poll`, :meth:`poll_next`, :meth:`end_poll`.

    Between :meth:`start_poll` and :meth:`end_poll`, ``wr_id``, ``status`` and the methods ``read_...`` return fields of
    the current completion. Polling it as a :class:`CQ` is possible, too.

    Parameters
    ----------
    creator : Context
    init_attr : CqInitAttrEx or None
    """

    def __init__(self, creator, init_attr=None):
        init = CqInitAttrEx() if init_attr is None else init_attr
        instance("init_attr", init, CqInitAttrEx)
        check_creator(self, creator)
        init.check()
        super().__init__(creator, init.cqe, None, init.channel, init.comp_vector)
        self._wc = None

    def start_poll(self, attr=None):
        """Make the first completion current and return 0, or return ENOENT if there is none."""
        if attr is not None:
            instance("attr", attr, PollCqAttr)
            if attr.comp_mask:
                raise InvalidValue(f"Failed to poll: comp_mask is {attr.comp_mask!r}, and nothing can be asked for")
        return self._look()

    def poll_next(self):
        """Make the next completion current and return 0, or return ENOENT if there is none."""
        if self._wc is None:
            raise InvalidValue("Failed to poll: there is a next completion only after a first one")
        return self._look()

    def end_poll(self):
        """End the poll: there is no current completion any more."""
        self._wc = None

    @locked
    def _look(self):
        _, wcs = self.poll(1)
        if not wcs:
            return errno.ENOENT
        self._wc = wcs[0]
        return 0

    @property
    def _at_hand(self):
        if self._wc is None:
            raise InvalidValue("no completion is at hand: it is between start_poll and end_poll")
        return self._wc

    wr_id = property(lambda self: self._at_hand.wr_id)
    status = property(lambda self: self._at_hand.status)

    def read_timestamp(self):
        raise NotSupported("Failed to read a time stamp: completions have none here")

    read_completion_wallclock_ns = read_timestamp

    def read_cvlan(self):
        raise NotSupported("Failed to read a VLAN tag: there are none here")

    def read_flow_tag(self):
        raise NotSupported("Failed to read a flow tag: there are none here")

    def read_tm_info(self):
        raise NotSupported("Failed to read of matched tags: there are none here")


def _reader(name):
    def read(self):
        return getattr(self._at_hand, name)

    read.__name__, read.__doc__ = f"read_{name}", f"``{name}`` of the completion at hand."
    return read


for _name in ("opcode", "vendor_err", "byte_len", "imm_data", "qp_num", "src_qp", "wc_flags", "slid", "sl",
              "dlid_path_bits"):
    setattr(CQEX, f"read_{_name}", _reader(_name))
