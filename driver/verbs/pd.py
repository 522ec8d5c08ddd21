"""Protection domains."""

from typing import TYPE_CHECKING, NoReturn

from ..engine.card_lock import CardLock
from ..terms.closing import Closing
from ..terms.errors import InvalidValue, NotSupported, PyverbsUserError
from .locking import locked, made_locked

if TYPE_CHECKING:
    from .context import Context
    from .mr import MR
    from .qp import QP
    from .srq import SRQ


class PD(Closing):
    """Protection domain: the QPs of a domain may only use the MRs of the same domain.

    Attributes
    ----------
    qps, srqs, mrs : dict
        Objects of the domain as keys, oldest first.
    """

    @made_locked
    def __init__(self, creator: "Context") -> None:
        if not hasattr(creator, "new_pd"):
            raise PyverbsUserError(f"Cannot create PD from {type(creator)}")
        creator.check_open()
        self.context = context = creator
        self.handle = context.new_pd()
        self.qps: dict[QP, None] = {}
        self.srqs: dict[SRQ, None] = {}
        self.mrs: dict[MR, None] = {}
        self.closed = False
        context.pds[self] = None

    @property
    def lock(self) -> CardLock:
        """Lock of the card."""
        return self.context.lock

    def advise_mr(self, advice: int, flags: int, sg_list: object, num_sge: int = 0) -> NoReturn:
        raise NotSupported("Failed to advise: registered memory is always there, nothing can be prefetched")

    def check_open(self) -> None:
        if self.closed:
            raise InvalidValue("the protection domain is closed")
        self.context.check_open()

    @locked
    def close(self) -> None:
        """Destroy the QPs of the domain, then its SRQs and MRs, which no QP uses any more."""
        for child in (*self.qps, *self.srqs, *self.mrs):
            child.close()
        self.closed = True
        self.context.pds.pop(self, None)
