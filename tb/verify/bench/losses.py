"""Losses of one QP and the nodes that tell of them, for the benchmarks of the Adamap room."""

from dataclasses import replace
from itertools import pairwise

from weft.hdl.contract import abi
from weft.model.functional.builder import NodeBuilder

PACKET_CYCLES = 1106 * 8 / 100 / 4      # a packet of 1 KiB on a wire of 100 Gb/s
BATCH_PACKETS = int(1e6 / 4 / PACKET_CYCLES)    # in a millisecond
LOSS, COMB = 1e-3, 384
WORKLOADS = ("batched", "comb", "immediate")
BUILDERS = {"": tuple(abi.Encoding), "_raw": (abi.Encoding.BITMAP,)}
FIRST_PSN = 5000


def batches(workload, count, rng):
    """Numbers of lost packets, ``count`` of them or some more, as lists of those that are reported together.

    Parameters
    ----------
    workload : str
        ``"batched"``: 1e-3 of the packets at random, reported once per :data:`BATCH_PACKETS`; ``"comb"``: every 384th,
        reported likewise; ``"immediate"``: 1e-3 at random, each reported at once.
    """
    at, batch, found, end = 0, [], [], BATCH_PACKETS
    while sum(map(len, found)) < count:
        at += COMB if workload == "comb" else 1 + int(rng.expovariate(LOSS))
        if workload == "immediate":
            found.append([at])
            continue
        while at >= end:
            if batch:
                found.append(batch)
            batch, end = [], end + BATCH_PACKETS
        batch.append(at)
    return found


def nodes_of(lost, qpn, generation, builder=""):
    """The list's nodes, made by the builder's model, with which the RTL is compared.

    Parameters
    ----------
    lost : list of lists
        Of :func:`batches`.
    builder : str
        Key of :data:`BUILDERS`.
    """
    model, nodes, rsn = NodeBuilder(1, BUILDERS[builder]), [], 0
    for batch in lost:
        sealed = []
        for k, at in enumerate(batch):
            sealed += model.run(qpn, generation, FIRST_PSN + at, 1, k + 1 == len(batch))
        for node in sealed:
            nodes.append(replace(node, rsn=rsn))
            rsn += len(node.holes)
    assert all(a.rsn + len(a.holes) == b.rsn for a, b in pairwise(nodes))
    return nodes
