"""Transfers with too few blocks in the knitting buffer, on functional cards.

The demand is the largest number of blocks that the nodes of a transfer use without waiting; pools are fractions of it.
``adamap_pool_goodput_*`` is the goodput with such a pool relative to a sufficient one, in the time of the functional
model.
"""

import random

from weft.driver.terms.enums import MTU
from weft.driver.verbs.context import ContextConfig
from weft.hdl.contract import abi
from weft.model.link import LinkConfig
from weft.tb.sim.flow.figures import Row
from weft.tb.sim.pair.functional_pair import lost_data, make_endpoints, make_pair, transfer

LENGTH, QPS, DELAY_NS = 3_000_000, 2, 100_000
SHARES = {"1": 1, "8th": 8, "32nd": 32, "0": None}


def squeezed(blocks, *, seed=1, length=LENGTH, qps=QPS, waiting_runs_max=4096, lookers=(), **link):
    """Run a transfer with a pool of ``blocks`` blocks, over a link with the given ``loss`` and ``delay_ns``.

    Return the statistics of both sides, the largest number of blocks used, and the pair. Raise AssertionError if bytes
    differ, or packets that were not lost were retransmitted although no node was coarsened.
    """
    config = ContextConfig(extent_bytes=blocks * abi.BLOCK_BYTES, max_extents=1, node_age_ns=500,
                           waiting_runs_max=waiting_runs_max)
    forward = LinkConfig(**{"loss": 0.1, "delay_ns": DELAY_NS, "control_loss": 0.01} | link)
    pair = make_pair(config, forward=forward, backward=LinkConfig(loss=0.01, delay_ns=forward.delay_ns), seed=seed)
    for looker in lookers:
        looker(pair)
    ends = make_endpoints(pair, length, qps=qps, path_mtu=MTU.MTU_256, window=64)
    data = random.Random(seed).randbytes(length)
    ends[0].mr.write(data)
    sent, received = transfer(pair, ends)
    assert ends[1].mr.read(length, 0) == data, "the bytes received differ"
    if not received.get("receiver_coarsened"):
        assert sent["sender_retransmissions"] == lost_data(pair.links[0]), "a packet was sent again that was not lost"
    knitting = pair.contexts[1].knitting
    used = knitting.total_blocks - knitting.low_water
    for end in ends:
        end.close()
    uses = knitting.check()
    assert uses["free"] == knitting.total_blocks, f"blocks leak: {uses}"
    return sent, received, used, pair


def guaranteed_blocks(qps):
    """Return the size of the smallest pool: one guaranteed block per QP."""
    return qps


def pools(**options):
    """Return ``{share: blocks}``; the first is the demand of a transfer that never waits."""
    *_, demand, _ = squeezed(4096, **options)
    least = guaranteed_blocks(options.get("qps", QPS))
    return {name: max(least, demand // share) if share else least for name, share in SHARES.items()}


def measure(_progress):
    sizes = pools()
    rows, full = [], None
    for name, blocks in sizes.items():
        sent, received, *_ = squeezed(blocks)
        goodput = 8 * sent["bytes"] / sent["nanoseconds"]
        full = full or goodput
        rows += [Row(f"adamap_pool_goodput_{name}", "", goodput / full), Row(f"adamap_pool_blocks_{name}", "", blocks),
                 Row(f"adamap_pool_waited_holes_{name}", "", received.get("receiver_waited", 0))]
    return rows
