"""Workers of a sweep: Dask threads in this process, or a cluster by its address."""

import contextlib
import dataclasses
import logging
from collections.abc import Iterator
from typing import Any

from distributed import Client, LocalCluster, as_completed

from weft.tb.app.sweep.subject import SUBJECTS, Subject
from weft.tb.sim.flow.failure import Failure

CONNECT_S = 10


class SchedulerUnreachable(Exception):
    """No response at the scheduler's address."""


def point(name: str, settings: dict[str, Any]) -> dict[str, Any] | str:
    """Return the results of a point of the subject with this name, or a sentence about the reason for their absence."""
    subject = SUBJECTS[name]
    try:
        return dataclasses.asdict(subject.measure(subject.settings(**settings)))
    except subject.fails as error:
        return str(error) or "there is not enough memory for it"


@contextlib.contextmanager
def client(scheduler: str | None, jobs: int) -> Iterator[Client]:
    """Return a context with a Dask client. Raises Unreachable."""
    with contextlib.ExitStack() as stack:
        if scheduler is None:
            logging.getLogger("distributed").setLevel(logging.ERROR)
            scheduler = stack.enter_context(LocalCluster(
                n_workers=1, threads_per_worker=jobs, processes=False, dashboard_address=":0", memory_limit=0))
        try:
            dask = stack.enter_context(Client(scheduler, timeout=CONNECT_S))
        except (OSError, ValueError) as error:
            raise SchedulerUnreachable(
                f"no Dask scheduler answers at {scheduler!r}: {error or 'it takes too long'}") from None
        yield dask


def results(dask: Client, subject: Subject, points: list[Any]) -> Iterator[tuple[Any, dict[str, Any] | str]]:
    """Yield ``(point, results or sentence)`` in the order of completion. Raises Failure if a worker fails."""
    futures = {dask.submit(point, subject.name, dataclasses.asdict(x), pure=False): x for x in points}
    for future in as_completed(futures):
        if future.status != "finished":
            raise Failure(f"a worker failed: {future.exception()!r}")
        yield futures[future], future.result()
