"""Threads that make and end connections of one card at the same time, with the driver's progress thread."""

import threading

from weft.driver.connection.connection import ResponseTimeout
from weft.driver.terms.enums import WCStatus
from weft.driver.verbs.context import ContextConfig
from weft.tb.test.driver.cm.hosts import Hosts, caller, listener

CLIENTS, TIMES, BYTES = 3, 3, 100
JOIN_S = 60
PATIENT = ContextConfig(cm_timeout=ResponseTimeout(response_timeout=14))


def answer(cmid):
    with cmid:
        mr = cmid.reg_msgs(BYTES)
        cmid.post_recv(mr)
        cmid.accept()
        assert cmid.get_recv_comp().status is WCStatus.SUCCESS
        cmid.post_send(mr)
        assert cmid.get_send_comp().status is WCStatus.SUCCESS
        cmid.disconnect()


def ask(n):
    for _ in range(TIMES):
        with caller() as cmid:
            ping, pong = cmid.reg_msgs(BYTES), cmid.reg_msgs(BYTES)
            ping.write(bytes([n]) * BYTES)
            cmid.post_recv(pong)
            cmid.connect()
            cmid.post_send(ping)
            assert cmid.get_recv_comp().status is WCStatus.SUCCESS and pong.read(BYTES, 0) == bytes([n]) * BYTES
            cmid.wait_disconnected()


def test_threads_share_a_listener_and_a_card():
    failures = []

    def tried(function, *args):
        try:
            function(*args)
        except BaseException as error:
            failures.append(error)

    def start(function, *args):
        thread = threading.Thread(target=tried, args=(function, *args), daemon=True)
        thread.start()
        return thread

    def serve(on):
        threads = [start(answer, on.get_request()) for _ in range(CLIENTS * TIMES)]
        for thread in threads:
            thread.join(JOIN_S)

    with Hosts(live=True, config=PATIENT) as hosts:
        with listener() as on:
            on.context.start_progress()
            threads = [start(serve, on), *(start(ask, n) for n in range(CLIENTS))]
            for thread in threads:
                thread.join(JOIN_S)
                assert not thread.is_alive() or failures
        assert not failures, failures
        assert len(hosts.devices) == 2
