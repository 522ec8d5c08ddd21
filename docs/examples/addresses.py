"""Two programs that know an address and a port; they run on two simulated hosts."""

from weft.driver import CMID, AddrFlag, AddrInfo, QPInitAttr, QPType, add_device
from weft.model.functional.host import connected_pair, run_apps

QP = QPInitAttr(qp_type=QPType.RC)


def server():
    with CMID(AddrInfo(src="10.0.0.1", src_service="7471", flags=AddrFlag.PASSIVE), QP) as listener:
        listener.listen(backlog=16)
        with listener.get_request() as connection:      # waits
            memory = connection.reg_msgs(64)
            connection.post_recv(memory)
            connection.accept()                         # or connection.reject(b"why")
            connection.get_recv_comp()
            print("the server got:", memory.read(5, 0).decode())
            connection.wait_disconnected()


def client():
    with CMID(AddrInfo(src="10.0.0.2", dst="10.0.0.1", dst_service="7471"), QP) as connection:
        memory = connection.reg_msgs(64)
        memory.write(b"hello")
        connection.connect()
        connection.post_send(memory)
        connection.get_send_comp()
        connection.disconnect()


loop, devices, _ = connected_pair()
for n, device in enumerate(devices):
    add_device(device, mac=0x02_0000_0000_01 + n, ip=0x0A00_0001 + n)
run_apps(loop, [(devices[0], server), (devices[1], client)], 10**9)
