"""Programs that end while their card does not answer, as one in another process of a loaded machine may for some time.
"""

import pytest

from weft.driver.serve import daemon as serve_daemon
from weft.driver.verbs.device_list import get_device_list
from weft.tb.test.driver.verbs.silent_card import Silent
from weft.tb.verify.programs.hostile import pair, works
from weft.tb.verify.programs.local import EagerBackend, left_over, local_daemon

PATIENCE_NS = 2_000_000      # of simulated time


@pytest.fixture
def ended(monkeypatch):
    """Provide a daemon, the silent card of host a, and two programs: those of a pair on the same hosts have ended."""
    monkeypatch.setattr(serve_daemon, "AGAIN_S", 0)
    with local_daemon(backend_type=EagerBackend) as (daemon, messages):
        context = daemon.backend.contexts[0]
        context.commands.timeout_ns = context.config.command_timeout_ns = PATIENCE_NS
        others, ends = pair(daemon), pair(daemon)
        silent = Silent(context.device)
        for end in ends:
            end.close()
        while len(daemon.clients) > 2:
            daemon.turn()
        for _ in range(3):
            daemon.turn()
        name = daemon.backend.hosts["a"]
        assert len(messages) == 1 and not daemon.contained and left_over(daemon.backend)[name][0] == 2
        yield daemon, silent, others
    sentence = f"resources of a program on {name} are not free until its card answers, or is reset: "
    assert not daemon.contained and all(message.startswith(sentence) for message in messages), messages
    assert len(messages) == 1 + silent.quiet and not get_device_list()
    assert not any(device.memory._pages for device in daemon.backend.devices)


def test_resources_are_freed_when_the_card_answers(ended):
    daemon, silent, others = ended
    silent.wake()
    while len(daemon.backend.contexts[0].mrs) > 1:
        daemon.turn()
    works(*others)
    works(*others[::-1])


def test_the_end_of_the_daemon_is_orderly_nevertheless(ended):
    """The back end resets the card."""
    daemon, silent, _ = ended
    assert silent.quiet and len(daemon.backend.contexts[0].card.contexts) == 3
