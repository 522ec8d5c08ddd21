"""Conversion of wrapped numbers to the growing integers of the driver."""


def near(value, reference, bits):
    """Return the integer nearest to ``reference`` whose low ``bits`` bits are ``value``.

    Ties are rounded down. The result may be negative when ``reference`` is near zero.
    """
    span = 1 << bits
    distance = (value - reference + (span >> 1)) % span - (span >> 1)
    return reference + distance
