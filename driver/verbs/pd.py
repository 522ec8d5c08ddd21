"""Protection domains."""

from ..terms.errors import InvalidValue


class PD:
    """A protection domain: QPs may only use MRs of their own.

    Attributes
    ----------
    qps, mrs : dict
        What lives in it, oldest first, as keys.
    """

    def __init__(self, context):
        context.check_open()
        self.context = context
        self.handle = context.new_pd()
        self.qps, self.mrs = {}, {}
        self.closed = False
        context.pds[self] = None

    def check_open(self):
        if self.closed:
            raise InvalidValue("the protection domain is closed")
        self.context.check_open()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Destroy the QPs of the domain, then its MRs, which none of them uses any more."""
        for child in [*self.qps, *self.mrs]:
            child.close()
        self.closed = True
        self.context.pds.pop(self, None)
