"""Exception that ends a command with a message for the user and no traceback."""


class Failure(Exception):
    """Error that the user can fix. The message states the cause and the remedy."""
