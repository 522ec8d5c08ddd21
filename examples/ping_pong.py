"""Ping-pong: two programs find each other by IP address and port, and exchange a message repeatedly.

    .venv/bin/python examples/ping_pong.py --rounds 20 --loss 0.05

:func:`server` and :func:`client` are what a program does; they share only an address and a port. Below them two
simulated hosts are set up, each with a card, and each runs one of them.
"""

import struct
from statistics import median
from typing import Annotated

import typer

from weft.driver import (
    CMID,
    AddrFlag,
    AddrInfo,
    ConnParam,
    QPCap,
    QPInitAttr,
    QPType,
    WCStatus,
    add_device,
    remove_device,
)
from weft.model.functional.host import LinkConfig, connected_pair, run_apps

PORT = "7471"
WISH = struct.Struct("!II")      # private data of the client's request: number of rounds, bytes per message


def server(address, port=PORT):
    """Serve one client: return each message, until it ends."""
    here = AddrInfo(src=address, src_service=port, flags=AddrFlag.PASSIVE)
    with CMID(here, queue_pair()) as listener:
        listener.listen(backlog=1)
        with listener.get_request() as connection:      # waits for a client
            rounds, size = WISH.unpack_from(connection.private_data)
            memory = connection.reg_msgs(size)
            connection.post_recv(memory)                # before the client can send
            connection.accept()
            for left in reversed(range(rounds)):
                check(connection.get_recv_comp())
                connection.post_send(memory)
                if left:
                    check(connection.get_send_comp())
                    connection.post_recv(memory)
            connection.wait_disconnected()              # by the client, when it has the last answer


def client(address, server_address, port=PORT, *, rounds=10, size=64):
    """Run ``rounds`` rounds and return the duration of each, in nanoseconds of the card's time."""
    there = AddrInfo(src=address, dst=server_address, dst_service=port)
    with CMID(there, queue_pair()) as connection:
        ping, pong = connection.reg_msgs(size), connection.reg_msgs(size)
        wish = ConnParam(data_len=WISH.size)
        wish.set_private_data(WISH.pack(rounds, size))
        connection.connect(wish)
        times, now = [], connection.context.device.now_ns
        for number in range(rounds):
            ping.write(bytes([number % 256]) * size)
            start = now()
            connection.post_recv(pong)
            connection.post_send(ping)
            check(connection.get_send_comp())
            check(connection.get_recv_comp())
            times.append(now() - start)
            assert pong.read(size, 0) == ping.read(size, 0)
        connection.disconnect()                         # the end that received the last message closes
        return times


def queue_pair():
    """Attributes of the queue pair at both ends."""
    return QPInitAttr(qp_type=QPType.RC, cap=QPCap(max_send_wr=1, max_recv_wr=1))


def check(completion):
    if completion.status is not WCStatus.SUCCESS:
        raise OSError(f"the request ended with {completion.status.name}")


def main(rounds: Annotated[int, typer.Option(help="Messages each way.", min=1)] = 10,
         size: Annotated[int, typer.Option(help="Bytes of a message.", min=1)] = 64,
         loss: Annotated[float, typer.Option(help="Chance of a packet to get lost.", min=0, max=0.5)] = 0.0):
    """Run both programs, on two simulated hosts with a link between them."""
    loop, devices, _links = connected_pair(forward=LinkConfig(loss=loss))
    names = [add_device(device, mac=0x02_0000_0000_01 + n, ip=0x0A00_0001 + n) for n, device in enumerate(devices)]
    _, times = run_apps(loop, [(devices[0], lambda: server("10.0.0.1")),
                               (devices[1], lambda: client("10.0.0.2", "10.0.0.1", rounds=rounds, size=size))], 10**12)
    for name in names:
        remove_device(name)
    print(f"{rounds} round trips of {size} bytes: median {median(times) / 1000:.1f} µs, "
          f"longest {max(times) / 1000:.1f} µs of simulated time")


if __name__ == "__main__":
    typer.run(main)
