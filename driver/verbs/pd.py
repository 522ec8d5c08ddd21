"""Protection domains."""


class PD:
    """A protection domain: QPs may only use MRs of their own."""

    def __init__(self, context):
        self.context = context
        self.handle = context.new_pd()
        self.children = set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Destroy the MRs and QPs of the domain."""
        for child in list(self.children):
            child.close()
