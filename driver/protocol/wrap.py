"""Numbers that wrap on the wire, kept as plain growing integers inside the driver."""


def near(value, reference, bits):
    """The integer nearest to ``reference`` whose low ``bits`` bits are ``value``.

    Ties go down. The result may be negative when ``reference`` is near zero.
    """
    span = 1 << bits
    distance = (value - reference + (span >> 1)) % span - (span >> 1)
    return reference + distance
