"""Protection domains."""

from ..terms.closing import Closing
from ..terms.errors import InvalidValue, NotSupported, PyverbsUserError
from .locking import locked, made_locked


class PD(Closing):
    """Protection domain: the QPs of a domain may only use the MRs of the same domain.

    Attributes
    ----------
    qps, srqs, mrs : dict
        Objects of the domain as keys, oldest first.
    """

    @made_locked
    def __init__(self, creator):
        if not hasattr(creator, "new_pd"):
            raise PyverbsUserError(f"Cannot create PD from {type(creator)}")
        creator.check_open()
        self.context = context = creator
        self.handle = context.new_pd()
        self.qps, self.srqs, self.mrs = {}, {}, {}
        self.closed = False
        context.pds[self] = None

    @property
    def lock(self):
        """Lock of the card."""
        return self.context.lock

    def advise_mr(self, advice, flags, sg_list, num_sge=0):
        raise NotSupported("Failed to advise: registered memory is always there, nothing can be prefetched")

    def check_open(self):
        if self.closed:
            raise InvalidValue("the protection domain is closed")
        self.context.check_open()

    @locked
    def close(self):
        """Destroy the QPs of the domain, then its SRQs and MRs, which no QP uses any more."""
        for children in (self.qps, self.srqs, self.mrs):
            for child in list(children):
                child.close()
        self.closed = True
        self.context.pds.pop(self, None)
