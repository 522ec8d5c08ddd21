"""Two drivers on two functional cards: shared helpers of the recovery tests."""

from weft.driver.application.file_transfer import Endpoint, post_receives, receive_file, send_file
from weft.driver.terms.enums import MTU
from weft.driver.verbs.context import ContextConfig
from weft.model.functional.host import FunctionalDevice
from weft.tb.sim.pair.loop_pair import LoopPair
from weft.tb.sim.pair.pair import serve_until

LIMIT_NS = 10**10


def make_pair(config=None, *, device_type=FunctionalDevice, **options):
    """Return a :class:`LoopPair` of functional cards without guards and scoreboards."""
    return LoopPair(device_type, config or ContextConfig(), watched=False, limit_ns=LIMIT_NS, **options)


def make_endpoints(pair, length, *, qps=1, psns=None, path_mtu=MTU.MTU_1024, window=16, inline=0, **attributes):
    ends = [Endpoint(c, length, qps=qps, psns=psns, window=window, inline=inline) for c in pair.contexts]
    for end, peer in (ends, ends[::-1]):
        end.connect(peer.connections, path_mtu=path_mtu, **attributes)
    return ends


def transfer(pair, ends, **options):
    """Run send_file against receive_file; the receiver responds until the sender has finished."""
    finished = []

    def sending():
        try:
            return send_file(ends[0], ends[1].offer, **options)
        finally:
            finished.append(True)

    def receiving():
        result = receive_file(ends[1])
        serve_until(lambda: finished, pair.contexts[1], 50_000)
        return result

    post_receives(ends[1])
    return pair.run(sending, receiving)


def lost_data(link):
    """Return the number of data packets, including retransmissions, that the link lost."""
    return link.counters.destroyed_data


def close_and_check(pair, ends):
    """Close everything and assert that all resources were freed."""
    for end in ends:
        end.close()
    for context in pair.contexts:
        context.engine.time_wait.end()
        assert not context.engine.lender.windows.open
        assert context.mr_indices.free == context.capabilities.max_mr
        assert context.knitting.check() == {"free": context.knitting.total_blocks, "linked": 0}
        assert context.pte_ranges.free_total == context.capabilities.max_pte
        context.close()
    for device in pair.devices:
        assert not device.memory._pages, "memory was not given back"
