"""What ends a command with a sentence for a person, not with a traceback."""


class Failure(Exception):
    """Something that a person can mend. The message says what is wrong and what to do."""
