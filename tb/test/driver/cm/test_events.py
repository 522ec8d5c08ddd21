"""CMIDs with event channels, with QPs that the CMID or the program created."""

import pytest

from weft.driver.cm.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from weft.driver.cm.enums import AddrFlag, EventType
from weft.driver.terms.enums import QPState, WCStatus
from weft.driver.terms.errors import PyverbsRDMAError, PyverbsUserError, TimedOut
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.mr import MR
from weft.driver.verbs.qp import QP, QPAttr
from weft.driver.verbs.wr import SGE, RecvWR, SendWR
from weft.tb.test.driver.cm.hosts import CLIENT, LOSSY, PORT, SERVER, Hosts, caller, listener, rc

WHERE = {"src": SERVER, "src_service": PORT, "flags": AddrFlag.PASSIVE}


def expect(channel, kind):
    event = CMEvent(channel)
    assert event.event_type is kind and event.event_str() == f"RDMA_CM_EVENT_{kind.name}"
    return event


def listening(channel, backlog=0):
    cmid = CMID(channel)
    cmid.bind_addr(AddrInfo(**WHERE))
    cmid.listen(backlog)
    return cmid


def calling(channel):
    """Return a CMID whose peer address is resolved."""
    cmid = CMID(channel)
    cmid.resolve_addr(AddrInfo(src=CLIENT, dst=SERVER, dst_service=PORT))
    expect(channel, EventType.ADDR_RESOLVED).ack_cm_event()
    cmid.resolve_route()
    expect(channel, EventType.ROUTE_RESOLVED).ack_cm_event()
    return cmid


def external_qp(cmid):
    cq = CQ(cmid.context, 16)
    return QP(cmid.pd, rc_with(cq), QPAttr()), cq, MR(cmid.pd, 64, 1)


def rc_with(cq):
    init = rc()
    init.scq = init.rcq = cq
    return init


def through_states(cmid, qp, *states):
    for state in states:
        qp.modify(*cmid.init_qp_attr(state))


@pytest.mark.parametrize("link", [None, LOSSY], ids=["good", "lossy"])
def test_a_qp_of_the_cmid(link, bench_seed):
    def server():
        channel = CMEventChannel()
        with listening(channel) as on:
            with CMID(expect(channel, EventType.CONNECT_REQUEST), listen_id=on) as cmid:
                assert cmid.event_channel is channel and cmid.context is on.context
                cmid.create_qp(rc())
                cmid.post_recv(cmid.reg_msgs(8))
                cmid.accept()
                expect(channel, EventType.ESTABLISHED)
                assert cmid.get_recv_comp().status is WCStatus.SUCCESS
                cmid.disconnect()
                expect(channel, EventType.DISCONNECTED)
                expect(channel, EventType.TIMEWAIT_EXIT)

    def client():
        channel = CMEventChannel()
        with calling(channel) as cmid:
            cmid.create_qp(rc())
            cmid.connect()
            assert cmid.qp.qp_state is QPState.INIT
            expect(channel, EventType.ESTABLISHED)
            assert cmid.qp.qp_state is QPState.RTS
            mr = cmid.reg_msgs(8)
            cmid.post_send(mr)
            expect(channel, EventType.DISCONNECTED)
            cmid.disconnect()
            expect(channel, EventType.TIMEWAIT_EXIT)

    with Hosts(bench_seed, link) as hosts:
        hosts.run(server, client)


@pytest.mark.parametrize("link", [None, LOSSY], ids=["good", "lossy"])
def test_a_qp_of_the_program(link, bench_seed):
    def server():
        channel = CMEventChannel()
        with listening(channel) as on:
            with CMID(expect(channel, EventType.CONNECT_REQUEST), listen_id=on) as cmid:
                qp, cq, mr = external_qp(cmid)
                through_states(cmid, qp, QPState.INIT, QPState.RTR, QPState.RTS)
                qp.post_recv(RecvWR(sg=[SGE(mr.buf, 64, mr.lkey)]))
                cmid.accept(ConnParam(qp_num=qp.qp_num))
                expect(channel, EventType.ESTABLISHED)
                assert cq.wait(1)[0].status is WCStatus.SUCCESS and mr.read(5, 0) == b"hello"
                qp.post_send(SendWR(sg=[SGE(mr.buf, 64, mr.lkey)]))     # prevents the client from leaving earlier
                expect(channel, EventType.DISCONNECTED)
                cmid.disconnect()
                qp.close()

    def client():
        channel = CMEventChannel()
        with calling(channel) as cmid:
            qp, cq, mr = external_qp(cmid)
            cmid.connect(ConnParam(qp_num=qp.qp_num))
            expect(channel, EventType.CONNECT_RESPONSE)
            through_states(cmid, qp, QPState.INIT, QPState.RTR, QPState.RTS)
            cmid.establish()
            mr.write(b"hello")
            qp.post_recv(RecvWR(1, sg=[SGE(mr.buf, 64, mr.lkey)]))
            qp.post_send(SendWR(2, sg=[SGE(mr.buf, 64, mr.lkey)]))
            done = cq.wait(1)
            done += cq.wait(1) if len(done) == 1 else []
            assert {(wc.wr_id, wc.status) for wc in done} == {(n, WCStatus.SUCCESS) for n in (1, 2)}
            cmid.disconnect()
            expect(channel, EventType.DISCONNECTED)
            qp.close()

    with Hosts(bench_seed, link) as hosts:
        hosts.run(server, client)


def test_rejections_and_their_reasons_are_events():
    def server():
        channel = CMEventChannel()
        with listening(channel) as on:
            with CMID(expect(channel, EventType.CONNECT_REQUEST), listen_id=on) as cmid:
                cmid.reject(b"no")
            on.context.serve(500_000)

    def client():
        channel = CMEventChannel()
        with calling(channel) as cmid, calling(channel) as other:
            cmid.create_qp(rc())
            cmid.connect()
            event = expect(channel, EventType.REJECTED)
            assert event.status == 28 and event.private_data == b"no".ljust(148, b"\0")
            assert event.id is cmid.identifier
            other.identifier.peer_port += 1
            other.connect(ConnParam(qp_num=77))
            assert expect(channel, EventType.REJECTED).status == 8

    with Hosts() as hosts:
        hosts.run(server, client)


def test_card_reset_is_reported_and_connections_can_be_established_again():
    def server():
        for times in range(2):
            channel = CMEventChannel()
            with listening(channel) as on:
                with CMID(expect(channel, EventType.CONNECT_REQUEST), listen_id=on) as cmid:
                    cmid.create_qp(rc())
                    cmid.accept()
                    expect(channel, EventType.ESTABLISHED)
                    if times:
                        return
                    on.context.reset()
                    assert {CMEvent(channel).id, CMEvent(channel).id} == {on.identifier, cmid.identifier}
                    with pytest.raises(PyverbsRDMAError, match="no connection"):
                        cmid.disconnect()

    def client():
        for times in range(2):
            with caller() as cmid:
                cmid.connect()
                cmid.context.serve(50_000)
                if not times:
                    cmid.disconnect()     # no answer: the peer has forgotten the connection

    with Hosts() as hosts:
        hosts.run(server, client)


def test_wait_without_pending_work_raises():
    with Hosts(), CMEventChannel() as channel:
        with pytest.raises(PyverbsRDMAError, match="no event can come"):
            CMEvent(channel)
        with pytest.raises(PyverbsRDMAError, match="no event can come"):
            CMEvent(channel, timeout_ns=1000)
        with listening(channel), pytest.raises(TimedOut):
            CMEvent(channel, timeout_ns=1000)
        with pytest.raises(PyverbsRDMAError, match="take its events"), listening(channel) as on:
            on.get_request()
        with listening(channel) as on:
            on.identifier.notify(EventType.ROUTE_RESOLVED)
            event = CMEvent(channel)
            with pytest.raises(PyverbsUserError, match="listen ID"):
                CMID(event)
            with pytest.raises(PyverbsRDMAError, match="asks for no connection"):
                CMID(event, listen_id=on)


def test_an_acknowledged_event_asks_for_no_connection():
    with Hosts(), CMEventChannel() as channel, listening(channel) as on:
        on.identifier.notify(EventType.CONNECT_REQUEST)
        event = CMEvent(channel)
        event.ack_cm_event()
        assert event.connection is None and event.event_str() == ""
        with pytest.raises(PyverbsRDMAError, match="asks for no connection"):
            CMID(event, listen_id=on)


def test_a_request_may_become_the_child_of_a_cmid_whose_calls_wait():
    def server():
        channel = CMEventChannel()
        with listening(channel), listener(port="7472") as other:
            with CMID(expect(channel, EventType.CONNECT_REQUEST), listen_id=other) as cmid:
                cmid.reject(b"no")

    def client():
        with caller() as cmid, pytest.raises(PyverbsRDMAError, match="REJECTED"):
            cmid.connect()

    with Hosts() as hosts:
        hosts.run(server, client)


def test_a_cmid_without_a_device_has_no_device_name():
    with Hosts(), CMEventChannel() as channel, CMID(channel) as cmid:
        assert cmid.dev_name is None and cmid.context is None and cmid.pd is None and cmid.qpn is None


def test_a_channel_with_cmids_on_two_cards():
    with Hosts() as hosts:
        channel = CMEventChannel()
        with listening(channel) as on, CMID(channel) as cmid:
            cmid.resolve_addr(AddrInfo(src=CLIENT, dst=SERVER, dst_service=PORT))
            expect(channel, EventType.ADDR_RESOLVED)
            cmid.create_qp(rc())
            cmid.connect()
            with CMID(expect(channel, EventType.CONNECT_REQUEST), listen_id=on) as child:
                child.create_qp(rc())
                child.accept()
                assert {CMEvent(channel).event_type for _ in range(2)} == {EventType.ESTABLISHED}
                with pytest.raises(TimedOut):
                    CMEvent(channel, timeout_ns=200_000)
        hosts.loop.run(hosts.loop.now_ns + 10**6)


def test_pending_requests_are_rejected_when_the_listener_closes():
    def server():
        with listener() as on:
            on.context.run_until(lambda: on.identifier.channel.records)
        with listener(port="7472") as other:
            other.context.serve(100_000)

    def client():
        with caller() as cmid, pytest.raises(PyverbsRDMAError, match="REJECTED, status 28"):
            cmid.connect()

    with Hosts() as hosts:
        hosts.run(server, client)
