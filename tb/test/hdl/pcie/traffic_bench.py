"""Bench of the PCIe subsystem with clients that read and write, and check every byte."""

from cocotb.triggers import with_timeout

from weft.hdl.part.layouts import LineData, LineRequest
from weft.tb.sim.block.pcie.pcie_subsystem import HALF, Bench
from weft.tb.sim.stream.payload import pack, receive, unpack


class TrafficBench(Bench):
    """Bench without faults: reads return the right bytes, without an error."""

    def ask(self, client, count):
        """Request ``count`` random groups; return the expected bytes of each."""
        return [self.draw_group(client)[1] for _ in range(count)]

    async def read_groups(self, client, count):
        for wanted in self.ask(client, count):
            assert await with_timeout(receive(self.packets[client]), 100, "us") == (wanted, 0), client

    async def read_lines(self, client, count):
        waiting, overtaken = {}, 0
        for tag in range(count):
            region, lines = self.rng.randrange(2), self.rng.randint(1, 4)
            at = self.rng.randrange(32) * 4096 + self.rng.randint(0, 64 - lines) * 64
            waiting[tag] = [self.regions[region].read(at, lines * 64), 0]
            self.lines[client].send_nowait(pack(
                LineRequest, line=self.regions[region].physical(at) // 64, count=lines, tag=tag))
        while waiting:
            got = unpack(LineData, await with_timeout(self.line_data[client].recv(), 100, "us"))
            wanted, seen = waiting[got.tag]
            assert got.index == seen and not got.error
            assert got.data.to_bytes(64, "little") == wanted[seen * 64:seen * 64 + 64]
            waiting[got.tag][1] += 1
            if got.last:
                assert waiting[got.tag][1] * 64 == len(wanted)
                overtaken += got.tag != min(waiting)
                del waiting[got.tag]
        return overtaken

    async def apply_writes(self, writes, images):
        """Wait for tasks of :meth:`write_groups` and apply their writes to images of the written halves."""
        for task in writes:
            for region, at, body in await task:
                images[region][at - HALF:at - HALF + len(body)] = body
        await self.quiet()
