"""State machine of a queue pair: the actions of each transition."""

import copy
from typing import TYPE_CHECKING, Any

from weft.hdl.contract import abi, wire

from ..datagram.qp_engine import DatagramEngine
from ..datagram.service import DatagramService
from ..engine.qp_engine import QpEngine
from ..operation.queues import Queues
from ..operation.receives import Receives
from ..protocol.path import Path
from ..protocol.timer import ack_timeout_ns
from ..queue.command import CommandTimeout, RememberedCommand
from ..receive.receiver import Receiver
from ..send.choice import flow_limit
from ..send.sender import Sender
from ..send.standard_sender import StandardSender
from ..terms.checks import instance, member
from ..terms.enums import AccessFlag, EventType, QPAttrMask, QPState, QPType, WCStatus
from ..terms.errors import InvalidValue
from .addr import ipv4_of
from .events import AsyncEvent
from .locking import locked
from .qp_attr import QPAttr
from .qp_states import check_transition, necessary

if TYPE_CHECKING:
    from .context import Context
    from .cq import CQ
    from .pd import PD
    from .srq import SRQ


class QPIncarnation:
    """Mixin of :class:`~weft.driver.verbs.qp.QP` with the state of an incarnation, which lasts from RESET to RESET.

    Attributes
    ----------
    qp_num : int
        Number of this incarnation; that of an RC QP changes with each reset, unless ``keep_qp_num`` is set.
    attr : QPAttr
        Current attributes, except for ``qp_state``: see :attr:`qp_state`.
    engine : QpEngine or DatagramEngine
        Protocol engine of this incarnation.
    """

    context: "Context"
    pd: "PD"
    scq: "CQ"
    rcq: "CQ"
    srq: "SRQ | None"
    closed: bool
    attr: QPAttr
    engine: Any

    @property
    def qp_type(self) -> QPType:
        raise NotImplementedError

    @property
    def _datagrams(self) -> DatagramService | None:
        """Service of the card for UD queue pairs; None for an RC QP."""
        return DatagramService.of(self.context.engine) if self.qp_type is QPType.UD else None

    def _begin(self, psn: int | None) -> None:
        self._commands = RememberedCommand(self.context.commands)
        if (datagrams := self._datagrams) is not None:
            self._begin_incarnation(datagrams.new_number(), psn)
            return
        self.context.engine.time_wait.make_space()
        self._begin_incarnation(self.context.qps.new_number(), psn)

    def _begin_incarnation(self, qp_num: int, psn: int | None = None) -> None:
        self.qp_num = qp_num
        receives = Receives() if self.srq is None else self.srq.receives
        queues = Queues(qp_num, self.scq, self.rcq, receives, shared=self.srq is not None)
        if (datagrams := self._datagrams) is not None:
            self.engine = DatagramEngine(datagrams, queues, pd=self.pd.handle, attr=lambda: self.attr,
                                         notify=self._notify)
        else:
            self.engine = QpEngine(
                self.context.engine, queues, pd=self.pd.handle, rights=lambda: self.attr, notify=self._notify,
                start_answering=self._start_answering)
        self.attr = QPAttr(qp_state=QPState.RESET)
        self.attr.sq_psn = self.context.config.random.randrange(1 << wire.PSN_BITS) if psn is None else psn

    def _notify(self, event_type: int) -> None:
        """Report an asynchronous event of this QP."""
        element = self.srq if event_type in (EventType.SRQ_LIMIT_REACHED, EventType.SRQ_ERR) else self
        self.context.async_events.append(AsyncEvent(EventType(event_type), element))

    @property
    def qp_state(self) -> QPState:
        if self.engine.in_error:
            return QPState.ERR
        return QPState.SQE if self.engine.send_error else self.attr.qp_state

    def _check(self) -> None:
        """Raise InvalidValue if the QP is closed."""
        if self.closed:
            raise InvalidValue(f"QP {self.qp_num} is closed")

    # -------------------------------------------------------------------------------- transitions

    @locked
    def modify(self, qp_attr: QPAttr, comp_mask: int) -> None:
        """Change the state and the attributes that ``comp_mask`` names, according to the table of transitions.

        Attributes that ``comp_mask`` does not name are ignored. When the call returns, no memory access happens any
        more that the new state or access rights forbid.

        Raises
        ------
        InvalidValue, NotSupported, CommandError, CommandTimeout, OutOfResources
            The QP is unchanged. If the card did not answer, the QP can only be closed.
        """
        self._check()
        instance("qp_attr", qp_attr, QPAttr)
        mask, start = member("comp_mask", comp_mask, QPAttrMask), self.qp_state
        goal = member("qp_state", qp_attr.qp_state, QPState) if mask & QPAttrMask.STATE else start
        check_transition(start, goal, mask, self.qp_type)
        qp_attr.check(mask)
        if mask & QPAttrMask.CUR_STATE and qp_attr.cur_qp_state != start:
            raise InvalidValue(f"cur_qp_state is {qp_attr.cur_qp_state!r}, but QP {self.qp_num} is {start.name}")
        if goal is QPState.RESET:
            self.reset()
        elif goal is QPState.ERR:
            self._stop()
        else:
            attr = copy.copy(self.attr)
            attr.take(qp_attr, mask)
            self._go(start, goal, attr, qp_attr, mask)

    @locked
    def to_init(self, qp_attr: QPAttr) -> None:
        """Go to INIT with the attributes of ``qp_attr`` that the transition requires."""
        self._step(qp_attr, QPState.RESET, QPState.INIT)

    @locked
    def to_rtr(self, qp_attr: QPAttr) -> None:
        """Go to RTR, through INIT unless the QP is in INIT already."""
        if self.qp_state is not QPState.INIT:
            self.to_init(qp_attr)
        self._step(qp_attr, QPState.INIT, QPState.RTR)

    @locked
    def to_rts(self, qp_attr: QPAttr) -> None:
        """Go to RTS, through RTR unless the QP is in RTR already."""
        if self.qp_state is not QPState.RTR:
            self.to_rtr(qp_attr)
        self._step(qp_attr, QPState.RTR, QPState.RTS)

    def _step(self, qp_attr: QPAttr, start: QPState, goal: QPState) -> None:
        instance("qp_attr", qp_attr, QPAttr)
        qp_attr.qp_state = goal
        self.modify(qp_attr, necessary(start, goal, self.qp_type))

    def _go(self, start: QPState, goal: QPState, attr: QPAttr, given: QPAttr, mask: QPAttrMask) -> None:
        """Do the actions of a transition, or of a change of attributes within a state."""
        if start is QPState.RESET and (self.scq.overrun or self.rcq.overrun):
            raise InvalidValue(f"a CQ of QP {self.qp_num} overran")
        if self.qp_type is QPType.UD:
            self._go_datagram(start, goal, attr, mask)
            return
        if start is QPState.INIT and goal is QPState.RTR:
            attr.outstanding_log2 = given.outstanding_log2
            self._start_receiving(attr)
        elif start is QPState.RTR:
            attr.probe_timeout_ns, attr.standard = given.probe_timeout_ns, given.standard
            attr.congestion = given.congestion
            if self.engine.sender is None:
                self._start_sending(attr)
            elif attr.sq_psn != self._answering_psn:
                raise InvalidValue(f"sq_psn is {attr.sq_psn}, but the peer receives from {self._answering_psn} on")
            else:
                self._set_timers(attr)
        if start in (QPState.RTR, QPState.RTS, QPState.SQD):
            self._change(attr, mask)
        if goal is QPState.SQD and start is QPState.RTS:
            self.engine.drain(bool(mask & QPAttrMask.EN_SQD_ASYNC_NOTIFY and attr.en_sqd_async_notify))
        elif start is QPState.SQD and goal is QPState.RTS:
            self.engine.resume()
        attr.qp_state = goal
        self.attr = attr

    def _go_datagram(self, start: QPState, goal: QPState, attr: QPAttr, mask: QPAttrMask) -> None:
        """Do the actions of a transition of a UD QP."""
        attr.qp_state, self.attr = goal, attr
        if start is QPState.INIT and goal is QPState.RTR:
            self.engine.start_receiving()
        elif start is QPState.RTR and goal is QPState.RTS:
            self.engine.start_sending()
        elif start is QPState.RTS and goal is QPState.SQD:
            self.engine.drain(bool(mask & QPAttrMask.EN_SQD_ASYNC_NOTIFY and attr.en_sqd_async_notify))
        elif goal is QPState.RTS and start is not QPState.RTS:
            self.engine.resume()

    def _start_receiving(self, attr: QPAttr) -> None:
        if self._commands.pending is not None:
            raise InvalidValue(f"the card never answered for QP {self.qp_num}; it can only be closed")
        path = Path(attr.path_mtu, attr.dest_qp_num, None, ipv4_of(attr.ah_attr.dgid), attr.ah_attr.flow_label)
        receiver = Receiver(
            qpn=self.engine.index, generation=self.engine.generation, psn=attr.rq_psn, pool=self.context.knitting,
            waiting_runs_max=self.context.config.waiting_runs_max, rnr_timer=attr.min_rnr_timer,
        )
        try:
            self._commands.call(
                abi.CommandOpcode.QP_CREATE,
                qpn=self.qp_num,
                pd=self.pd.handle,
                psn=attr.rq_psn,
                psn_guard=wire.PSN_OUTSTANDING_LOG2 - attr.outstanding_log2,
                ip=path.ip,
                access=attr.qp_access_flags & 0xF,
                qp_state=abi.QpState.RTS,
            )
        except CommandTimeout:
            self.engine.start_receiving(path, receiver)    # the card may still execute the command
            raise
        except Exception:
            receiver.close()
            raise
        self.engine.start_receiving(path, receiver)

    def _start_sending(self, attr: QPAttr) -> None:
        config, pmtu = self.context.config, wire.PMTUS[attr.path_mtu]
        probe_ns = attr.probe_timeout_ns or config.probe_timeout_ns
        congestion = "none" if self.engine.looped else attr.congestion or config.congestion
        self.engine.start_sending((StandardSender if attr.standard else Sender)(
            psn=attr.sq_psn,
            pmtu=pmtu,
            probe_ns=probe_ns,
            timeout_ns=ack_timeout_ns(attr.timeout),
            retry_cnt=attr.retry_cnt,
            rnr_retry=attr.rnr_retry,
            chunk_bytes=config.chunk_bytes,
            flow=flow_limit(congestion, psn=attr.sq_psn, pmtu=pmtu, probe_ns=probe_ns,
                            cnp_interval_ns=config.cnp_interval_ns, paced=self.context.engine.paced.size > 0),
            max_outstanding=(1 << attr.outstanding_log2) - 1,
        ))

    def _start_answering(self, psn: int) -> None:
        """Start the sender of a QP in RTR because the peer requests data.

        The QP sends no requests in this state, but responses have to leave. They have no time-out, because the peer
        needs them.
        """
        attr = copy.copy(self.attr)
        attr.sq_psn = self._answering_psn = psn
        self._start_sending(attr)

    def _change(self, attr: QPAttr, mask: QPAttrMask) -> None:
        """Change attributes of a connected QP."""
        if mask & QPAttrMask.AV and attr.ah_attr != self.attr.ah_attr:
            raise InvalidValue("the card keeps the peer of a QP until it is reset")
        if mask & QPAttrMask.ACCESS_FLAGS:
            self._commands.call(abi.CommandOpcode.QP_MODIFY, qpn=self.qp_num, qp_state=abi.QpState.RTS,
                                access=attr.qp_access_flags & 0xF)
            attr.qp_access_flags = AccessFlag(attr.qp_access_flags)
        if mask & QPAttrMask.MIN_RNR_TIMER:
            self.engine.receiver.rnr_timer = attr.min_rnr_timer
        if mask & (QPAttrMask.TIMEOUT | QPAttrMask.RETRY_CNT | QPAttrMask.RNR_RETRY):
            self._set_timers(attr)

    def _set_timers(self, attr: QPAttr) -> None:
        self.engine.sender.timer.limit(ack_timeout_ns(attr.timeout), attr.retry_cnt)
        self.engine.sender.rnr_retry = attr.rnr_retry

    # ------------------------------------------------------------------------------------- endings

    def _stop(self) -> None:
        self.engine.fail(WCStatus.WR_FLUSH_ERR)
        if self.engine.card_notified is not None:
            self.context.commands.finish(self.engine.card_notified)

    @locked
    def reset(self) -> None:
        """Go from any state to RESET, with another PSN. An RC QP gets another number unless ``keep_qp_num`` is set.

        Outstanding requests complete no more, and the CQs drop the completions of the QP that were not polled.

        Raises
        ------
        CommandError, CommandTimeout, DeviceFatal, TimeoutError
            If the card does not confirm it. Nothing is freed then, and the call may be repeated.
        """
        self._check()
        if self.engine.on_card:
            with self.context.engine.giving_up():
                self.context.engine.drain_transmit(self.engine)
                if self._still_on_card():
                    self._commands.call(abi.CommandOpcode.QP_DESTROY, qpn=self.qp_num)
        self._commands.pending = None
        self.engine.stop()
        self._forget_completions()
        if self.qp_type is QPType.UD:
            self._begin_incarnation(self.qp_num)
        elif self.context.config.keep_qp_num:
            self.context.progress()       # process the reports of the old incarnation before the next one begins
            self._begin_incarnation(self.qp_num)
        else:
            self._begin_incarnation(self.context.qps.next_number(self.qp_num))

    def _enter_time_wait(self) -> bool:
        """Move the engine to TIME-WAIT, so that the peer still gets answers; return true if it was moved."""
        engine, card = self.engine, self.context.engine
        if not card.time_wait.takes(engine) or self._commands.pending is not None:
            return False
        with card.giving_up():
            card.drain_transmit(engine)
            if engine.card_notified is None:
                engine.notify_card()
            card.commands.finish(engine.card_notified)
            if engine.on_card:
                card.time_wait.add(engine, self._commands)
                self._forget_completions()
                return True
        return False

    def _forget_completions(self) -> None:
        for cq in (self.scq, self.rcq):
            cq.forget(self.qp_num)

    def _still_on_card(self) -> bool:
        settled = self._commands.settle()
        if settled is None:
            return True
        opcode, done = settled
        return opcode is abi.CommandOpcode.QP_MODIFY or done == (opcode is abi.CommandOpcode.QP_CREATE)
