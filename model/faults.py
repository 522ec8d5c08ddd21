"""Fault rules: packets that a link drops, duplicates, damages or delays, chosen by header, number and chance."""

import random
from collections import deque
from dataclasses import dataclass
from typing import Annotated

from weft.hdl.contract import wire

from .settings import BadSetting, Setting, check

ACTIONS = DROP, DUPLICATE, CORRUPT, DELAY = "drop", "duplicate", "corrupt", "delay"
HELD_MAX = 4096     # packets that a rule delays at a time; further ones are dropped, as from a full queue
COUNT_MAX, DELAY_MAX_US, ANY = 1 << 31, 1_000_000, "any"
_IBTA = {"WRITE_ONLY": "RDMA_WRITE_ONLY", "WRITE_ONLY_IMM": "RDMA_WRITE_ONLY_WITH_IMMEDIATE"}
OPCODES: dict[str, frozenset[int]] = {
    ANY: frozenset(range(-1, 256)), "data": wire.DATA_OPCODES - wire.RETX_OPCODES, "retx": wire.RETX_OPCODES,
    "UD_SEND_ONLY": frozenset({wire.UD_SEND_ONLY})}
OPCODES |= {_IBTA.get(opcode.name, opcode.name): frozenset({opcode}) for opcode in wire.Opcode}
_QP, _PSN = (wire.BTH_OFFSET + wire.BTH.offset_of(name) // 8 for name in ("dest_qp", "psn"))


@dataclass(frozen=True, kw_only=True)
class FaultRule:
    """Packets that match, those of them that are chosen, and their fault. Raises BadSetting.

    Without ``opcode``, ``qp`` and ``psn`` every Ethernet frame matches.
    """

    action: Annotated[str, Setting("Fault; corrupt flips a bit, and a delayed packet lets others overtake it.",
                                   choices=ACTIONS)] = DROP
    source: Annotated[str | None, Setting("Host that sends the packets.", metavar="HOST", default_text=ANY)] = None
    destination: Annotated[str | None, Setting("Host that they are sent to.", metavar="HOST", default_text=ANY)] = None
    opcode: Annotated[str, Setting("Opcode; data: first transmissions, retx: retransmissions.",
                                   choices=tuple(OPCODES))] = ANY
    qp: Annotated[int | None, Setting("Destination QPN.", least=0, most=(1 << wire.QPN_BITS) - 1)] = None
    psn: Annotated[int | None, Setting("PSN.", least=0, most=(1 << wire.PSN_BITS) - 1)] = None
    nth: Annotated[int | None, Setting("Only the packet with this number, from 1, of those that match.", least=1,
                                       most=COUNT_MAX)] = None
    every: Annotated[int | None, Setting("Only packets whose number is a multiple.", least=1, most=COUNT_MAX)] = None
    count: Annotated[int | None, Setting("Number of faults after which the rule has no effect.", least=1,
                                         most=COUNT_MAX)] = None
    chance: Annotated[float, Setting("Chance of the fault for each of these packets.", least=0, most=1)] = 1.0
    delay_us: Annotated[float | None, Setting("Delay by action delay.", unit="microseconds", least=0,
                                              most=DELAY_MAX_US)] = None

    def __post_init__(self) -> None:
        check(self)
        if self.nth and self.every:
            raise BadSetting("every", self.every, "it cannot be combined with nth")
        if (self.action == DELAY) != (self.delay_us is not None):
            raise BadSetting("action", self.action, "action delay needs delay_us, and the others do not have it")


class ActiveRule:
    """Rule in force on one or more links, with common counts ``matched`` and ``faults`` of packets.

    ``destination`` is the MAC address of that host, or empty. The seed and a packet's number decide about chances.
    """

    def __init__(self, rule: FaultRule, seed: int | str = 0, destination: bytes = b"") -> None:
        self.rule, self.matched, self.faults, self.delay_ns = rule, 0, 0, (rule.delay_us or 0) * 1000
        self._destination, self.random = destination, random.Random(f"{seed}")
        self._held: deque[float] = deque()      # ends of the delays

    def fault(self, frame: bytes, opcode: int, time_ns: float) -> str:
        """Return the fault of a frame sent at ``time_ns``, one of :data:`ACTIONS`; empty for none."""
        rule = self.rule
        if (not frame.startswith(self._destination) or opcode not in OPCODES[rule.opcode]
                or rule.qp is not None and (opcode < 0 or rule.qp != int.from_bytes(frame[_QP:_QP + 3]))
                or rule.psn is not None and (opcode < 0 or rule.psn != int.from_bytes(frame[_PSN:_PSN + 3]))):
            return ""
        self.matched += 1
        passed = self.random.random() >= rule.chance       # drawn for every packet that matches
        if (passed or rule.nth not in (None, self.matched) or rule.every and self.matched % rule.every
                or self.faults == rule.count):
            return ""
        self.faults += 1
        if rule.action == DELAY:
            while self._held and self._held[0] <= time_ns:
                self._held.popleft()
            if len(self._held) == HELD_MAX:
                return DROP
            self._held.append(time_ns + self.delay_ns)
        return rule.action
