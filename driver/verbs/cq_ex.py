"""Extended completion queues: completions are read one by one, in place."""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from ..terms.checks import instance, unsigned
from ..terms.errors import InvalidValue, NotSupported
from ..terms.init_enums import CqAttrFlag, CqInitAttrMask, CqWcFlag
from ..terms.wc import WC
from .cq import CQ, CompChannel, check_creator
from .locking import locked
from .qp_init_attr import MASK_BITS

if TYPE_CHECKING:
    from .context import Context


@dataclass
class CqInitAttrEx:
    """Creation attributes of a :class:`CQEX` (ibv_cq_init_attr_ex).

    ``flags`` and ``parent_domain`` are valid only if their bits in ``comp_mask`` are set.
    """

    cqe: int = 100
    channel: CompChannel | None = None
    comp_vector: int = 0
    wc_flags: CqWcFlag = CqWcFlag(0)
    comp_mask: CqInitAttrMask = CqInitAttrMask(0)
    flags: CqAttrFlag = CqAttrFlag(0)
    parent_domain: object = None

    def check(self) -> None:
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


def _reader(name: str) -> Callable[["CQEX"], int]:
    def read(self: "CQEX") -> int:
        return getattr(self._at_hand, name)

    read.__name__, read.__doc__ = f"read_{name}", f"``{name}`` of the completion at hand."
    return read


class CQEX(CQ):
    """CQ whose completions are read one by one (ibv_cq_ex): :meth:`start_poll`, :meth:`poll_next`, :meth:`end_poll`.

    Between :meth:`start_poll` and :meth:`end_poll`, ``wr_id``, ``status`` and the methods ``read_...`` return fields of
    the current completion. Polling it as a :class:`CQ` is possible, too.

    Parameters
    ----------
    creator : Context
    init_attr : CqInitAttrEx or None
    """

    def __init__(self, creator: "Context", init_attr: CqInitAttrEx | None = None) -> None:
        init = CqInitAttrEx() if init_attr is None else init_attr
        instance("init_attr", init, CqInitAttrEx)
        check_creator(self, creator)
        init.check()
        super().__init__(creator, init.cqe, None, init.channel, init.comp_vector)
        self._wc: WC | None = None

    def start_poll(self, attr: PollCqAttr | None = None) -> int:
        """Make the first completion current and return 0, or return ENOENT if there is none."""
        if attr is not None:
            instance("attr", attr, PollCqAttr)
            if attr.comp_mask:
                raise InvalidValue(f"Failed to poll: comp_mask is {attr.comp_mask!r}, and no field can be requested")
        return self._look()

    def poll_next(self) -> int:
        """Make the next completion current and return 0, or return ENOENT if there is none."""
        if self._wc is None:
            raise InvalidValue("Failed to poll: there is a next completion only after a first one")
        return self._look()

    def end_poll(self) -> None:
        """End the poll: there is no current completion any more."""
        self._wc = None

    @locked
    def _look(self) -> int:
        _, wcs = self.poll(1)
        if not wcs:
            return errno.ENOENT
        self._wc = wcs[0]
        return 0

    @property
    def _at_hand(self) -> WC:
        if self._wc is None:
            raise InvalidValue("no completion is at hand: it is between start_poll and end_poll")
        return self._wc

    wr_id = property(lambda self: self._at_hand.wr_id)
    status = property(lambda self: self._at_hand.status)
    read_opcode = _reader("opcode")
    read_vendor_err = _reader("vendor_err")
    read_byte_len = _reader("byte_len")
    read_imm_data = _reader("imm_data")
    read_qp_num = _reader("qp_num")
    read_src_qp = _reader("src_qp")
    read_wc_flags = _reader("wc_flags")
    read_slid = _reader("slid")
    read_sl = _reader("sl")
    read_dlid_path_bits = _reader("dlid_path_bits")

    def read_timestamp(self) -> NoReturn:
        raise NotSupported("Failed to read a time stamp: completions have none here")

    read_completion_wallclock_ns = read_timestamp

    def read_cvlan(self) -> NoReturn:
        raise NotSupported("Failed to read a VLAN tag: there are none here")

    def read_flow_tag(self) -> NoReturn:
        raise NotSupported("Failed to read a flow tag: there are none here")

    def read_tm_info(self) -> NoReturn:
        raise NotSupported("Failed to read of matched tags: there are none here")
