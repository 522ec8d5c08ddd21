"""Programs on cards in Python: functional ones, and others by their ``Device``."""

from weft.model.functional.host import FunctionalDevice
from weft.model.link import LinkConfig
from weft.tb.app.stage.host import pair_of, raise_first
from weft.tb.sim.flow.progress import tell
from weft.tb.sim.pair.functional_pair import make_pair
from weft.tb.sim.pair.settings import context_config


def play(stage, programs, arguments, progress, device_type=FunctionalDevice):
    """See :func:`weft.tb.app.stage.stage.play`."""
    pair = make_pair(context_config(stage.rtt_us), seed=stage.seed, preset=stage.preset, device_type=device_type,
                     forward=LinkConfig(delay_ns=round(stage.rtt_us * 500), loss=stage.loss))
    hosts = pair_of(pair.contexts, lambda *news: tell(progress, *news), stage.rtt_us)
    try:
        results = pair.run(*(lambda host=host, program=program: host.play(program, arguments)
                             for host, program in zip(hosts, programs, strict=True)))
        raise_first(hosts)
    finally:
        for context in pair.contexts:
            context.close()
    return results
