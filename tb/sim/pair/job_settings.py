"""Driver settings of the main job."""

from weft.tb.sim.pair import link_settings

SERVICE_NS = 2_000         # how often a host that has finished looks whether its peer has
SILENCE_NS = 20_000_000    # a transfer without a completion for so long has failed


def context_config(job):
    """Driver settings that fit the job's link."""
    return link_settings.context_config(job.rtt_us, reorders=job.reorder > 0 or job.dup > 0,
                                        pfc_priority=job.pfc)


def wr_timeout(job):
    """The verbs' timeout exponent."""
    return link_settings.timeout(job.rtt_us)
