"""Hosts with functional cards, whose programs know only each other's IP addresses."""

import time

from weft.driver.cm import shared_context
from weft.driver.cm.cmid import CMID, AddrInfo, ConnParam
from weft.driver.cm.enums import AddrFlag
from weft.driver.connection.connection import ResponseTimeout
from weft.driver.terms.enums import QPType
from weft.driver.verbs import device_list
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.device import add_device, remove_device
from weft.driver.verbs.qp import QPCap, QPInitAttr
from weft.model.functional.host import connected_pair, run_apps
from weft.model.functional.live import LiveDevice
from weft.model.link import LinkConfig
from weft.model.loop import EventLoop

SERVER, CLIENT = "10.0.0.1", "10.0.0.2"
PORT = "7471"
LIMIT_NS = 10**12
TIMEOUT = ResponseTimeout(response_timeout=7)     # half a millisecond
LOSSY = LinkConfig(loss=0.1, duplicate=0.1, reorder=0.2, reorder_distance=4)


def rc(**caps):
    """Return the attributes of a QP for CMIDs."""
    return QPInitAttr(qp_type=QPType.RC, cap=QPCap(**{"max_send_wr": 8, "max_recv_wr": 8} | caps))


def private(data):
    """Return a ConnParam with private data."""
    param = ConnParam(data_len=56)
    param.set_private_data(data)
    return param


def listener(init=None, *, port=PORT, backlog=0, **options):
    """Return a CMID that listens on the server."""
    cmid = CMID(AddrInfo(src=SERVER, src_service=port, flags=AddrFlag.PASSIVE), init or rc(), **options)
    try:
        cmid.listen(backlog)
    except BaseException:
        cmid.close()
        raise
    return cmid


def caller(init=None, *, port=PORT, src=CLIENT, **options):
    """Return a CMID that can connect to the server."""
    return CMID(AddrInfo(src=src, dst=SERVER, dst_service=port), init or rc(), **options)


def live_pair():
    """Return the same as ``connected_pair``, but in real time."""
    loop, start = EventLoop(), time.monotonic_ns()
    devices = [LiveDevice(loop, seed=i, start=start) for i in range(2)]
    for device, other in zip(devices, devices[::-1], strict=True):
        device.transmit = lambda frame, other=other: loop.call_in(500, other.card.receive, frame)
    return loop, devices, []


class Hosts:
    """Two hosts; on exit without an error, checks that the programs left no CMID open and no memory allocated."""

    def __init__(self, seed=0, link=None, config=None, *, live=False, **options):
        made = live_pair() if live else connected_pair(seed=seed, forward=link or LinkConfig(), **options)
        self.loop, self.devices, self.links = made
        config = config or ContextConfig(cm_timeout=TIMEOUT)
        self.names = [add_device(device, mac=0x02_0000_0000_01 + i, ip=0x0A00_0001 + i, config=config)
                      for i, device in enumerate(self.devices)]

    def run(self, *programs):
        """Run the programs of the server and the client, and further ones given as (host, function)."""
        apps = [program if isinstance(program, tuple) else (i, program) for i, program in enumerate(programs)]
        return run_apps(self.loop, [(self.devices[host], function) for host, function in apps], LIMIT_NS)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                assert not shared_context.HELD, "a CMID was not closed"
                assert not any(device.memory._pages for device in self.devices), "memory was not given back"
                for name in self.names:
                    remove_device(name)
        finally:     # clean up after a failed test, so that the next one starts empty
            shared_context.HELD.clear()
            for name in self.names:
                device_list._devices.pop(name, None)
