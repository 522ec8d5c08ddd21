"""Rounds of a random bench: as many as needed until every required case has occurred."""


def rounds(seen, wanted, *, least=1, most, times=1):
    """Yield the numbers of the rounds, from 0; assert at the end that every case has occurred.

    A rare case occurs by chance, and a run of a fixed length sometimes misses it. So the bench continues.

    Parameters
    ----------
    seen : Counter
        Cases that have occurred; the rounds add to it.
    wanted : iterable
        Cases, the keys of ``seen``.
    least, most : int
        Minimum number of rounds; number of rounds after which a missing case fails the test.
    times : int
        Required number of occurrences of each case.

    Examples
    --------
    ::

        for _ in rounds(seen, ["full", "empty"], least=20, most=1000):
            seen[await something_random()] += 1
    """
    wanted = list(wanted)
    for number in range(most):
        if number >= least and all(seen[case] >= times for case in wanted):
            return
        yield number
    missing = {case: seen[case] for case in wanted if seen[case] < times}
    assert not missing, f"not {times} times in {most} rounds: {missing}"
