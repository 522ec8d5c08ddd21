"""Settings that are impossible are refused when they are given, in one sentence."""

from weft.hdl.contract import wire


def check(settings, ranges):
    """Check a dataclass of settings: numbers, whole where the default is, and the names ``pmtu`` and those of flags.

    Parameters
    ----------
    settings : dataclass instance
        Its class holds the defaults. A setting whose default is None may be None.
    ranges : sequence of (name, least, most)

    Raises
    ------
    ValueError
    """
    for name, low, high in ranges:
        value, default = getattr(settings, name), getattr(type(settings), name)
        if value is None and default is None:
            continue
        whole = isinstance(default, int)
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not low <= value <= high:
            raise ValueError(f"{name} is {value!r}; it must be a {'whole ' * whole}number from {low} to {high}")
    for name, value in vars(settings).items():
        if isinstance(getattr(type(settings), name, None), bool) and not isinstance(value, bool):
            raise ValueError(f"{name} is {value!r}; it must be true or false")
    if settings.pmtu not in wire.PMTUS.values():
        raise ValueError(f"pmtu is {settings.pmtu!r}; choose one of {', '.join(map(str, wire.PMTUS.values()))}")
