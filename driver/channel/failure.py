"""Why a channel ends."""


class ChannelError(ConnectionError):
    """The channel failed, and nothing more goes over it."""


class PeerError(ChannelError):
    """The peer broke the rules."""
