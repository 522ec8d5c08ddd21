"""Rounds of a random bench: as many as it takes until every case has occurred that is to occur."""


def rounds(seen, wanted, *, least=1, most, times=1):
    """Numbers of the rounds, from 0; what it must have been through at the end is asserted.

    Whether something rare occurs is chance, and a run of a fixed length misses it now and then. So a bench goes on.

    Parameters
    ----------
    seen : Counter
        What has occurred; the rounds add to it.
    wanted : iterable
        Cases, the keys of ``seen``.
    least, most : int
        Rounds in any case; rounds after which a case that has not occurred fails the test.
    times : int
        How often each case is to occur.

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
