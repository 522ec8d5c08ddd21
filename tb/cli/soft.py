"""``weft soft-server`` and ``weft interop``: RDMA in software, and Linux as its peer."""

from typing import Annotated

import typer

from weft.tb.cli.failures import fail, needs
from weft.tb.cli.parameters import number, option, refuse

MAC, IP = "02:00:00:00:00:0a", "10.0.0.10"


def soft_server(
    qemu: Annotated[str, option("QEMU's socket netdev: HOST:PORT of its listen=.", "ADDRESS")] = "",
    tap: Annotated[str, option("Or a TAP interface, which is made.", "NAME")] = "",
    listen: Annotated[str, option("TCP port that perftest's clients say hello to; 0: any.")] = "18515",
    clients: Annotated[str, option("End after so many; 0: never.")] = "0",
    mac: Annotated[str, option("MAC address of this host.", "ADDRESS")] = MAC,
    ip: Annotated[str, option("IPv4 address of this host.", "ADDRESS")] = IP,
):
    """A host in software that serves perftest's clients: ib_write_bw, ib_send_bw, ib_read_bw, ib_atomic_bw."""
    listen, clients = number("--listen", listen, int, 0, 65535), number("--clients", clients, int, 0, 1 << 31)
    addresses = _number_of("--mac", mac, ":", 16, 6), _number_of("--ip", ip, ".", 10, 4)
    if bool(qemu) == bool(tap):
        refuse("one of --qemu and --tap says where the frames go")
    try:
        _serve(_port(qemu, tap), *addresses, listen, clients)
    except OSError as error:
        fail(error.strerror and f"{qemu or tap}: {error.strerror}" or str(error))


def _number_of(name, text, mark, base, count):
    words = text.split(mark)
    try:
        return int.from_bytes(bytes(int(word, base) for word in words if len(words) == count) or None, "big")
    except (ValueError, TypeError):
        refuse(f"{name} is {text!r}; it must be {count} numbers with {mark!r} between them")


def _port(qemu, tap):
    from weft.driver.soft.ports.qemu_socket import QemuSocketPort
    from weft.driver.soft.ports.tap import TapPort
    if tap:
        try:
            return TapPort(tap)
        except ValueError as error:
            refuse(str(error))
    host, _, port = qemu.rpartition(":")
    return QemuSocketPort.connect(host, number("--qemu", port, int, 1, 65535))


def _serve(port, mac, ip, listen, clients):
    from weft.driver.soft.serve.server import SoftServer
    server = SoftServer(port, mac=mac, ip=ip, tcp_port=listen)
    print(f"clients say hello at TCP port {server.tcp_port}", flush=True)
    try:
        while (not clients or server.served < clients) and not getattr(port, "closed", False):
            server.step()
    finally:
        server.close()
        port.close()


def interop(
    short: Annotated[bool, typer.Option("--short", help="Without perftest and RTL.")] = False,
):
    """A Linux guest with rxe against the endpoint in software, and against the card: functional model and RTL."""
    with needs("sim"):
        from weft.tb.verify.interop import cases
        from weft.tb.verify.interop.guest import booted
        chosen = cases.cases(short)
        with booted() as guest:
            try:
                cases.run(guest, chosen)
            except AssertionError as error:
                fail(f"after {len(guest.told)} lines of the guest's console: {error}")
