"""The driver over cards that use this process's memory: cards move data in pinned, shared and allocated memory."""

import ctypes
import os
from ipaddress import IPv4Address

import pytest

from weft.driver.linux.libc import PAGE
from weft.driver.linux.mapper import PhysicalMapper
from weft.driver.linux.region import open_u_dma_buf
from weft.driver.linux.vfio import VfioMapper
from weft.driver.terms.enums import AccessFlag, WCStatus, WROpcode
from weft.driver.verbs.context import ContextConfig
from weft.driver.verbs.cq import CQ
from weft.driver.verbs.device import Context
from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.driver.verbs.qp import QP, rc_init_attr
from weft.driver.verbs.wr import SGE, SendWR
from weft.model.functional.host import run_apps
from weft.model.link import Link, LinkConfig
from weft.model.loop import EventLoop
from weft.tb.test.driver.linux.process_memory import FakeIommu, ProcessDevice, ProcessMemory
from weft.tb.test.driver.linux.test_memory import exposes_addresses

LENGTH = 5 * PAGE + 123
WRITE = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE
CONFIG = ContextConfig(ring_log2=4, nic_slot_log2=9, extent_bytes=16 * PAGE, max_extents=1)


def iommu_memory(_folder):
    return ProcessMemory(VfioMapper(os.open("/dev/null", os.O_RDWR), ioctl=FakeIommu()))


def physical_memory(folder):
    """Return memory without an IOMMU: rings from a u-dma-buf, everything else through the kernel's pagemap."""
    entry, devices = folder / "class" / "udmabuf0", folder / "dev"
    entry.mkdir(parents=True)
    devices.mkdir()
    (entry / "size").write_text(str(256 * PAGE))
    (entry / "phys_addr").write_text("0x800000000000")       # an address without memory on this machine
    (devices / "udmabuf0").write_bytes(bytes(256 * PAGE))
    return ProcessMemory(PhysicalMapper(), [open_u_dma_buf(listed=folder / "class", devices=devices)])


@pytest.mark.parametrize("kind", [iommu_memory, physical_memory], ids=["iommu", "physical"])
def test_write_from_program_memory_into_shared_pages(kind, tmp_path):
    if kind is physical_memory and not exposes_addresses():
        kind = iommu_memory     # the kernel's error is covered by test_memory.py
    loop, memories = EventLoop(), [kind(tmp_path / str(n)) for n in range(2)]
    devices = [ProcessDevice(loop, memory, seed=n) for n, memory in enumerate(memories)]
    links = [Link(loop, devices[1 - n].card.receive, LinkConfig(loss=0.05), n) for n in range(2)]
    for device, link in zip(devices, links, strict=True):
        device.transmit = link.send
    contexts = [Context(device, mac=0x02_0000_0000_01 + n, ip=int(IPv4Address("10.0.0.1")) + n, config=CONFIG)
                for n, device in enumerate(devices)]
    pds = [PD(context) for context in contexts]
    qps = [QP(pd, rc_init_attr(CQ(pd.context, 4))) for pd in pds]
    for qp, peer in zip(qps, qps[::-1], strict=True):
        qp.connect(peer.connection)

    mine = ctypes.create_string_buffer(os.urandom(LENGTH), LENGTH)
    file = os.memfd_create("shared")
    os.truncate(file, 8 * PAGE)
    shared = devices[1].map(file, PAGE, 7 * PAGE)
    source = MR(pds[0], LENGTH, WRITE, ctypes.addressof(mine))
    again = MR(pds[0], 100, WRITE, ctypes.addressof(mine) + 50)     # registers the same pages a second time
    target = MR(pds[1], LENGTH, WRITE, shared.va + 77, buffer=shared)
    finished = []

    def writing():
        wr = SendWR(opcode=WROpcode.RDMA_WRITE, sg=[SGE(source.buf, LENGTH, source.lkey)])
        wr.set_wr_rdma(target.rkey, target.buf)
        qps[0].post_send(wr)
        assert qps[0].scq.wait(1)[0].status is WCStatus.SUCCESS
        finished.append(True)

    def answering():
        while not finished:
            contexts[1].serve(20_000)

    run_apps(loop, [(devices[0], writing), (devices[1], answering)], 10**10)
    assert os.pread(file, LENGTH, PAGE + 77) == mine.raw
    again.close()
    for context in contexts:
        context.close()
    devices[1].free(shared)
    os.close(file)
    for memory in memories:
        assert memory.linux.pinned == 0
        memory.linux.close()
