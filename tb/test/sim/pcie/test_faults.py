"""Tests of the injection of PCIe faults, without a simulator."""

import random
from types import SimpleNamespace

from weft.tb.sim.pcie.faults import FaultAgent


class Completions(list):
    """Queue of the completions on RC."""

    def put_nowait(self, tlp):
        self.append(tlp)


def test_a_removed_agent_leaves_the_completions_alone():
    queue = Completions()
    host = SimpleNamespace(device=SimpleNamespace(rc_queue=queue), agent=None)
    agent = FaultAgent(host, random.Random(1), lambda address: None)
    given_up, after = SimpleNamespace(tag=7, discontinue=False), SimpleNamespace(tag=7, discontinue=False)
    agent._give_up.add(7)
    queue.put_nowait(given_up)
    assert host.agent is agent and given_up.discontinue
    agent._give_up.add(7)
    agent.remove()
    queue.put_nowait(after)
    assert host.agent is None and not after.discontinue and queue == [given_up, after]
