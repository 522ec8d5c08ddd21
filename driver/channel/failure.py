"""Errors of a channel."""


class ChannelError(ConnectionError):
    """The channel failed and cannot be used any more."""


class PeerError(ChannelError):
    """The peer violated the protocol."""
