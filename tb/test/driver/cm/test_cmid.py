"""Programs that connect by IP address and port over functional cards, without a shared object."""

import errno

import pytest

from weft.driver.cm.cmid import CMID, AddrInfo, ConnectionFailed, ConnParam
from weft.driver.cm.enums import AddrFlag
from weft.driver.connection.messages import RejectReason
from weft.driver.terms.enums import AccessFlag, QPState, WCStatus
from weft.driver.terms.errors import PyverbsRDMAError
from weft.driver.verbs.device import Context
from weft.driver.verbs.pd import PD
from weft.tb.test.driver.cm.hosts import CLIENT, LOSSY, PORT, SERVER, Hosts, caller, listener, private, rc

ROUNDS, BYTES = 5, 3000


def serve(cmid, rounds=ROUNDS):
    """Return each message with every byte incremented; the caller has posted the first receive."""
    mr = cmid._mrs[0]
    for left in reversed(range(rounds)):
        assert cmid.get_recv_comp().status is WCStatus.SUCCESS
        mr.write(bytes((byte + 1) % 256 for byte in mr.read(BYTES, 0)))
        cmid.post_recv(mr)
        cmid.post_send(mr)
        assert not left or cmid.get_send_comp().status is WCStatus.SUCCESS


def ask(cmid, rounds=ROUNDS):
    ping, pong = cmid.reg_msgs(BYTES), cmid.reg_msgs(BYTES)
    for n in range(rounds):
        cmid.post_recv(pong)
        ping.write(bytes([n]) * BYTES)
        cmid.post_send(ping)
        assert cmid.get_send_comp().status is cmid.get_recv_comp().status is WCStatus.SUCCESS
        assert pong.read(BYTES, 0) == bytes([n + 1]) * BYTES


def ended(cmid):
    """Wait for the client to disconnect, then disconnect.

    The client disconnects first, because it receives the last message: the sender of a last message may never receive
    the acknowledgement.
    """
    cmid.wait_disconnected()
    cmid.disconnect()


def accepted(on, param=None):
    """Return the next connection of a listener, with a receive posted."""
    cmid = on.get_request()
    cmid.post_recv(cmid.reg_msgs(BYTES))
    cmid.accept(param)
    return cmid


@pytest.mark.parametrize("link", [None, LOSSY], ids=["good", "lossy"])
def test_ping_pong(link, bench_seed):
    def server():
        with listener() as on, accepted(on, private(b"welcome")) as cmid:
            serve(cmid)
            assert cmid.private_data[:6] == b"please" and len(cmid.private_data) == 56
            ended(cmid)

    def client():
        with caller() as cmid:
            cmid.connect(private(b"please"))
            assert cmid.private_data == b"welcome".ljust(196, b"\0")
            ask(cmid)
            cmid.disconnect()
            assert cmid.qp.qp_state is QPState.ERR

    with Hosts(bench_seed, link) as hosts:
        hosts.run(server, client)


def test_peers_on_one_card():
    def server():
        with listener() as on, accepted(on) as cmid:
            serve(cmid)
            ended(cmid)

    def client():
        with caller(src=SERVER) as cmid:
            cmid.connect()
            ask(cmid)
            cmid.disconnect()

    with Hosts() as hosts:
        hosts.run(server, (0, client))


def test_many_connections_to_one_listener(bench_seed):
    count = 6

    def server():
        with listener(backlog=2) as on:
            cmids = [accepted(on) for _ in range(count)]
            for cmid in cmids:
                serve(cmid, 1)
            for cmid in cmids:
                ended(cmid)
                cmid.close()

    def client():
        with caller() as cmid:
            cmid.connect()
            ask(cmid, 1)
            cmid.disconnect()

    with Hosts(bench_seed, LOSSY) as hosts:
        hosts.run(server, client, *[(1, client)] * (count - 1))


def test_rejection_has_a_reason():
    def server():
        with listener() as on:
            with on.get_request() as cmid:
                cmid.reject(b"not today")
                with pytest.raises(PyverbsRDMAError, match="is CLOSED"):
                    cmid.accept()

    def client():
        with caller() as cmid:
            with pytest.raises(ConnectionFailed, match="REJECTED, status 28") as failed:
                cmid.connect()
            assert failed.value.error_code == errno.ECONNREFUSED
            assert cmid.private_data == b"not today".ljust(148, b"\0") and cmid.qp.qp_state is QPState.INIT

    with Hosts() as hosts:
        hosts.run(server, client)


def test_missing_listener_or_host_is_reported():
    def server():
        with listener(port="7472"), caller(src=SERVER, port="7472") as cmid:
            cmid.context.serve(500_000_000)

    def client():
        with caller() as cmid:
            with pytest.raises(ConnectionFailed) as failed:
                cmid.connect()
            assert failed.value.event.status == RejectReason.INVALID_SERVICE_ID
        with pytest.raises(ConnectionFailed, match="Failed to Resolve Address: ADDR_ERROR") as failed:
            CMID(AddrInfo(src=CLIENT, dst="10.0.0.9", dst_service=PORT))
        assert failed.value.error_code == errno.ETIMEDOUT
        with pytest.raises(PyverbsRDMAError, match="no device has the address 10.0.0.7"):
            caller(src="10.0.0.7")

    with Hosts() as hosts:
        hosts.run(server, client)


def test_silent_server_is_unreachable():
    def client():
        with caller() as cmid:
            with pytest.raises(ConnectionFailed, match="UNREACHABLE") as failed:
                cmid.connect()
            assert failed.value.error_code == errno.ETIMEDOUT

    with Hosts() as hosts:
        with listener() as on:      # the server stops making progress after address resolution
            def server():
                while hosts.devices[1].card.counters["rx_raw_frames"] == 0:
                    on.context.progress()
                    on.context.wait(1_000)
            hosts.run(server, client)


def test_disconnect_by_either_end_flushes_receives():
    def server():
        with listener() as on, accepted(on) as cmid:
            cmid.disconnect()
            assert cmid.get_recv_comp().status is WCStatus.WR_FLUSH_ERR

    def client():
        with caller() as cmid:
            cmid.post_recv(cmid.reg_msgs(BYTES))
            cmid.connect()
            cmid.wait_disconnected()
            cmid.disconnect()
            assert cmid.get_recv_comp().status is WCStatus.WR_FLUSH_ERR

    with Hosts() as hosts:
        hosts.run(server, client)


def test_remote_memory():
    reported = {}

    def server():
        with listener() as on, on.get_request() as cmid:
            source, target = cmid.reg_read(BYTES), cmid.reg_write(BYTES)
            source.write(b"r" * BYTES)
            reported.update(source=(source.buf, source.rkey), target=(target.buf, target.rkey))
            cmid.post_recv(cmid.reg_msgs(16))
            cmid.accept(ConnParam(resources=2, depth=1))
            cmid.get_recv_comp()
            assert target.read(BYTES, 0) == b"r" * BYTES
            cmid.disconnect()

    def client():
        with caller() as cmid:
            mr = cmid.reg_msgs(BYTES)
            cmid.connect(ConnParam(resources=1, depth=16))
            attr, _ = cmid.query_qp(0)
            assert attr.max_rd_atomic == 2 and attr.max_dest_rd_atomic == 1
            cmid.post_read(mr, BYTES, *reported["source"])
            assert cmid.get_send_comp().status is WCStatus.SUCCESS
            cmid.post_write(mr, BYTES, *reported["target"])
            cmid.post_send(mr, length=16)
            cmid.get_send_comp()
            cmid.disconnect()

    with Hosts() as hosts:
        hosts.run(server, client)


def test_memory_and_queues_of_the_program():
    def server():
        with Context(name=hosts.names[0]) as context:
            pd = PD(context)
            with listener(pd=pd) as on, accepted(on) as cmid:
                assert cmid.pd is pd and cmid.context is context
                serve(cmid)
                ended(cmid)
            assert not pd.closed and not pd.qps

    def client():
        with caller() as cmid:
            cmid.connect()
            ask(cmid)
            cmid.disconnect()

    with Hosts() as hosts:
        hosts.run(server, client)


@pytest.mark.parametrize("point", ["listening", "requested", "connecting", "established"])
def test_closing_at_any_point_leaves_nothing(point):
    """The peer is notified."""
    def server():
        with listener() as on:
            if point == "listening":
                return
            cmid = on.get_request()
            if point == "requested":
                cmid.close()
                return
            try:
                cmid.accept()
            except ConnectionFailed:
                assert point == "connecting"
            cmid.close()
            cmid.close()
            on.context.serve(1_000_000)

    def client():
        if point == "listening":
            return
        with caller() as cmid:
            if point == "connecting":
                cmid.identifier.request(None)
                cmid.context.serve(1_000)
            elif point == "requested":
                with pytest.raises(ConnectionFailed):
                    cmid.connect()
            else:
                cmid.connect()
                cmid.wait_disconnected()
                cmid.wait_disconnected()

    with Hosts() as hosts:
        hosts.run(server, client)


def test_invalid_calls_are_rejected():
    with Hosts() as hosts:
        with pytest.raises(PyverbsRDMAError, match="Cannot create CM ID"):
            CMID(5)
        with pytest.raises(PyverbsRDMAError, match="one of 2 devices"):
            CMID(AddrInfo(src_service=PORT, flags=AddrFlag.PASSIVE))
        with pytest.raises(PyverbsRDMAError, match="only TCP and UDP"):
            AddrInfo(src=SERVER, port_space=0x0002)
        with pytest.raises(PyverbsRDMAError, match="no service"):
            AddrInfo(dst=SERVER, dst_service="nothing at all")
        with pytest.raises(PyverbsRDMAError, match="65535 are possible"):
            AddrInfo(dst=SERVER, dst_service="65536")
        with listener() as on:
            for call, sentence in (
                (lambda: on.listen(), "in use"), (lambda: on.accept(), "not requested"),
                (lambda: on.connect(), "address was not resolved"), (lambda: on.disconnect(), "no connection"),
                (lambda: on.reject(), "not requested"), (lambda: on.establish(), "not requested"),
                (lambda: on.post_send(on.reg_msgs(8)), "no QP"), (lambda: on.query_qp(0), "there is none"),
                (lambda: on.init_qp_attr(QPState.RTR), "nothing is known"),
                (lambda: on.init_qp_attr(QPState.SQD), "nothing is known"),
                (lambda: on.set_option(0, 3, 32, 1), "31 are possible"),
                (lambda: on.wait_disconnected(), "no connection"),
                (lambda: on.join_multicast(), "port space UDP"), (lambda: on.get_remote_ece(), "ECE"),
                (lambda: listener(), "another listener has port 7471")):
                with pytest.raises(PyverbsRDMAError, match=sentence):
                    call()
        with pytest.raises(PyverbsRDMAError, match="closed"):
            on.listen()
        for bad in (ConnParam(resources=17), ConnParam(depth=-1), ConnParam(retry=8), ConnParam(rnr_retry=8)):
            with pytest.raises(PyverbsRDMAError, match="possible"):
                bad.offer(None, 0)
        with pytest.raises(PyverbsRDMAError, match="no QP"):
            ConnParam().offer(None, 0)
        hosts.loop.run(10**6)


def test_timeout_option_and_unexpected_keys():
    def server():
        with listener() as on, on.get_request() as cmid:
            cmid.set_option(0, 3, 21, 1)
            cmid.accept()
            assert cmid.query_qp(0)[0].timeout == 21
            assert cmid.reg_msgs(8).access == AccessFlag.LOCAL_WRITE
            cmid.disconnect()

    def client():
        with caller(rc(max_recv_wr=1)) as cmid:
            cmid.set_option(0, 3, 20, 1)
            cmid.connect(ConnParam(retry=3, rnr_retry=2))
            attr = cmid.query_qp(0)[0]
            assert (attr.timeout, attr.retry_cnt, attr.rnr_retry) == (20, 3, 7)
            cmid.disconnect()

    with Hosts() as hosts:
        hosts.run(server, client)
