"""Faults of a running daemon: the impairments and rules of its links, changed by a schedule and by commands."""

import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from weft.model.faults import ActiveRule
from weft.model.settings import BadSetting, BadSettings
from weft.tb.app.serve.commands import Step, command_of, given, schedule_of
from weft.tb.app.serve.functional import MAC
from weft.tb.app.serve.settings import Settings

RULES_MAX, MS_NS = 100, 1_000_000
WITHOUT_LINKS = {"direct": "direct back end, which has no packets",
                 "pci": "pci back end, whose links are not simulated"}


def text_of(settings: dict[str, Any]) -> str:
    """Return settings as a part of a sentence."""
    return ", ".join(f"{name} {value}" for name, value in settings.items())


class Faults:
    """Faults of the ``links`` of a back end: a :class:`~weft.model.link.Link` from each host, by name.

    ``settings`` has the first impairments and the schedule; ``report(sentence)`` is called for each of its steps.
    """

    def __init__(self, backend: Any, settings: Settings, report: Callable[[str], object]) -> None:
        self._backend, self._report, self._number_of_first = backend, report, settings.first - 1
        self._wall = settings.cards == "functional" and settings.time == "wall"
        self._without = WITHOUT_LINKS.get(settings.cards)
        self._macs = {host: (MAC + n).to_bytes(6) for n, host in enumerate(settings.hosts, self._number_of_first)}
        self._first = settings.impairments()
        self._seed = settings.seed
        self._reset()
        self._start(schedule_of(settings.faults, self._macs)[1])

    def answer(self, request: bytes) -> bytes:
        """Return the response to a command of `weft link`, both JSON."""
        response: dict[str, Any]
        try:
            response = self.obey(json.loads(request))
        except BadSetting as problem:
            response = {"setting": [problem.name, str(problem.value), problem.reason]}
        except (ValueError, RecursionError) as problem:
            response = {"problem": str(problem)}
        return json.dumps(response).encode()

    def obey(self, table: object) -> dict[str, Any]:
        """Obey a command; return sentences for the user, and the state. Raises BadSettings."""
        if self._without:
            raise BadSettings(f"the daemon runs the {self._without}; start weft serve with --backend functional")
        do, command = command_of(table, self._macs)
        self._obey(do, command)
        if do == "clear" and command.rule is None:
            self._start([])
        sentences = list(self.sentences()) if do == "show" else [f"rule {self._number}"] if do == "rule" else []
        return {"sentences": sentences, "state": self._state()}

    def _obey(self, do: str, command: Any) -> None:
        hosts = [command.source] if getattr(command, "source", None) else list(self._macs)
        if do == "set":
            change = {name: value for name, value in given(command).items() if name != "source"}
            self._changed |= {host: replace(self._changed[host], **change) for host in hosts}
        elif do == "cut":
            self._cut.update(hosts)
        elif do == "restore":
            self._cut.difference_update(hosts)
        elif do == "rule":
            if len(self._rules) == RULES_MAX:
                raise BadSettings(f"{RULES_MAX} rules are in force, and no more are possible; clear some")
            self._number += 1
            self._rules[self._number] = ActiveRule(command, f"{self._seed}/rule {self._number}",
                                                   self._macs.get(command.destination, b""))
        elif do == "schedule":
            seed, steps = schedule_of(command.faults, self._macs)
            self._begin(seed)
            self._start(steps)
        elif do == "clear" and command.rule is None:
            self._begin(command.seed)
            self._reset()
        elif do == "clear" and self._rules.pop(command.rule, None) is None:
            raise BadSetting("rule", command.rule, "no rule in force has this number")
        self._apply()

    def _reset(self) -> None:
        """Restore the impairments of the start, and remove all rules."""
        self._cut: set[str] = set()
        self._changed = dict.fromkeys(self._macs, self._first)
        self._rules: dict[int, ActiveRule] = {}
        self._number = 0
        self._apply()

    def _begin(self, seed: str | None) -> None:
        """Begin all random sequences of the links again, from another seed if there is one."""
        self._seed = self._backend.seed = self._seed if seed is None else seed
        for n, link in enumerate(self._backend.links.values(), self._number_of_first):
            link.impairments.seed(f"{self._seed}/{n}")
        if self._backend.fabric is not None:
            self._backend.fabric.seed(f"{self._seed}/fabric")

    def _apply(self) -> None:
        for host, link in self._backend.links.items():
            config, before = self._changed[host].config(), link.impairments.config
            if config.loss_model == before.loss_model:      # bursts continue
                config = replace(config, loss_model=before.loss_model)
            link.impairments.config = replace(config, loss=1.0) if host in self._cut else config
            link.impairments.rules = [rule for rule in self._rules.values() if rule.rule.source in (None, host)]

    # ------------------------------------------------------------------------------------- schedule

    def _start(self, steps: list[Step]) -> None:
        """Begin a schedule instead of the present one."""
        self._steps, self._done, self._frames = len(steps), 0, 0
        self._began: float | None = None
        steps = sorted(steps, key=lambda step: step.at_ms or step.frames or 0)
        self._timed = deque(step for step in steps if step.at_ms is not None)
        self._counted = deque(step for step in steps if step.frames is not None)
        for step in steps:
            if step.at_ms is None and step.frames is None:
                self._take(step)
        for link in self._backend.links.values():
            link.impairments.before = self._before if self._timed or self._counted else None

    def _before(self, time_ns: float) -> None:
        """Take the steps that are due before a frame."""
        now = time.monotonic_ns() if self._wall else time_ns
        self._began = now if self._began is None else self._began
        while self._timed and now - self._began >= (self._timed[0].at_ms or 0) * MS_NS:
            self._take(self._timed.popleft())
        while self._counted and self._frames >= (self._counted[0].frames or 0):
            self._take(self._counted.popleft())
        self._frames += 1

    def _take(self, step: Step) -> None:
        self._done += 1
        try:
            self._obey(step.do, step.command)
            self._report(f"after {self._frames} frames of the schedule: {step.do} {text_of(given(step.command))}")
        except BadSettings as problem:
            self._report(f"a step of the schedule had no effect: {problem}")

    # --------------------------------------------------------------------------------------- report

    def _state(self) -> dict[str, Any]:
        return {"hosts": {host: {"cut": host in self._cut, "settings": given(self._changed[host]),
                                 "counters": link.counters.as_dict()} for host, link in self._backend.links.items()},
                "rules": [{"number": number, "action": rule.rule.action} | given(rule.rule)
                          | {"matched": rule.matched, "faults": rule.faults} for number, rule in self._rules.items()],
                "steps": {"done": self._done, "all": self._steps}}

    def sentences(self) -> Iterator[str]:
        """Yield a sentence about each host, each link that is cut, each rule, and the schedule."""
        yield from self._backend.summary()
        for host in self._macs:
            if host in self._cut:
                yield f"host {host}: its link is cut"
        for number, rule in self._rules.items():
            text = text_of({"action": rule.rule.action} | given(rule.rule))
            yield f"rule {number} ({text}): {rule.matched} packets matched, {rule.faults} hit"
        if self._steps:
            yield f"schedule: {self._done} of {self._steps} steps done"
