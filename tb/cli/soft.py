"""``weft soft-server`` and ``weft interop``: RDMA in software, with Linux as its peer."""

from typing import Annotated

from weft.model.settings import BadSetting, Setting
from weft.tb.cli.failures import fail
from weft.tb.cli.options import refuse

PORT_MAX = 0xFFFF
GO_BACK_N = ("rxe is a standard receiver (go-back-N): it drops every packet after a lost one, so the sender repeats "
             "all of them, many more than were lost")


def _address(mark, base, count):
    """Return a function that converts an address with ``count`` bytes to a number."""
    def read(text):
        try:
            words = [int(word, base) for word in text.split(mark)]
            if len(words) == count:
                return int.from_bytes(bytes(words), "big")
        except ValueError:
            pass
        raise ValueError(f"it must be {count} numbers with {mark!r} between them")
    return read


def _host_and_port(text):
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 1 <= int(port) <= PORT_MAX:
        raise ValueError(f"it must be HOST:PORT, with a port from 1 to {PORT_MAX}")
    return host, int(port)


_mac, _ip = _address(":", 16, 6), _address(".", 10, 4)
MAC, IP = "02:00:00:00:00:0a", "10.0.0.10"


def soft_server(
    qemu: Annotated[tuple | None, Setting("QEMU's socket netdev: HOST:PORT of its listen=.", read=_host_and_port,
                                          metavar="ADDRESS")] = None,
    tap: Annotated[str, Setting("Or a TAP interface, which is made.", metavar="NAME")] = "",
    listen: Annotated[int, Setting("TCP port that perftest's clients connect to; 0: any.", least=0,
                                   most=PORT_MAX)] = 18515,
    clients: Annotated[int, Setting("End after this number; 0: never.", least=0, most=1 << 31)] = 0,
    mac: Annotated[int, Setting("MAC address of this host.", read=_mac, metavar="ADDRESS",
                                default_text=MAC)] = _mac(MAC),
    ip: Annotated[int, Setting("IPv4 address of this host.", read=_ip, metavar="ADDRESS", default_text=IP)] = _ip(IP),
):
    """Serve perftest's clients with a host in software: ib_write_bw, ib_send_bw, ib_read_bw, ib_atomic_bw."""
    if bool(qemu) == bool(tap):
        refuse("give --qemu or --tap, the port that frames go to")
    try:
        _serve(_port(qemu, tap), mac, ip, listen, clients)
    except OSError as error:
        place = tap or ":".join(map(str, qemu))
        fail(error.strerror and f"{place}: {error.strerror}" or str(error))


def _port(qemu, tap):
    from weft.driver.soft.ports import QemuSocketPort, TapPort
    if tap:
        try:
            return TapPort(tap)
        except ValueError as error:
            refuse(str(error))
    return QemuSocketPort.connect(*qemu)


def _serve(port, mac, ip, listen, clients):
    from weft.driver.soft.serve.server import SoftServer
    server = SoftServer(port, mac=mac, ip=ip, tcp_port=listen)
    print(f"clients connect to TCP port {server.tcp_port}", flush=True)
    try:
        while (not clients or server.served < clients) and not getattr(port, "closed", False):
            server.step()
    finally:
        server.close()
        port.close()


def interop(
    short: Annotated[bool, Setting("Without perftest, the conformance suite and RTL.")] = False,
    only: Annotated[list[str] | None, Setting("Cases with this in their name; may be given several times.",
                                              metavar="NAME")] = None,
):
    """Test a Linux guest with rxe against the endpoint in software, and against the card: functional model and RTL."""
    from weft.tb.verify.interop import cases
    from weft.tb.verify.interop.guest import booted
    known = cases.cases(short)
    chosen = {name: case for name, case in known.items() if not only or any(one in name for one in only)}
    if not chosen:
        raise BadSetting("only", " ".join(only), f"no case has such a name; the cases are {'; '.join(known)}")
    with booted() as guest:
        try:
            cases.run(guest, chosen)
            print(GO_BACK_N)
        except AssertionError as error:
            fail(f"after {len(guest.output)} lines of the guest's console: {error}")
