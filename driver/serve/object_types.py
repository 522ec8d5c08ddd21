"""Classes of the objects of served programs, which depend on the back end."""

from typing import NamedTuple

from .completion_queue import ServedCQ
from .program_memory import ServedMR
from .work_queues import ServedQP, ServedSRQ


class ObjectTypes(NamedTuple):
    """Classes of the objects that programs create."""

    mr: type[ServedMR]
    cq: type[ServedCQ]
    srq: type[ServedSRQ]
    qp: type[ServedQP]


ON_CARDS = ObjectTypes(ServedMR, ServedCQ, ServedSRQ, ServedQP)
