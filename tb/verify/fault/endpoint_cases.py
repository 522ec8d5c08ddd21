"""PCIe subsystem with a misbehaving host: each fault is reported, other requests are unaffected, no request is lost.

All clients read, and some reads end with one of the injected faults. Writes are issued, some of which the host rejects.
Between rounds the host clears bus mastering or resets the function.
"""

import itertools
import logging
from collections import Counter

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge, SimTimeoutError, Timer, with_timeout

from weft.hdl.contract.params import preset
from weft.hdl.part.layouts import LineData, LineRequest
from weft.tb.sim.block.pcie.pcie_subsystem import BULKS, HALF, LINES, WRITERS, Bench, group, run_subsystem
from weft.tb.sim.flow.bench import given, leave
from weft.tb.sim.flow.progress import report_progress
from weft.tb.sim.pcie.faults import READ_FAULTS, FaultAgent, FaultWindow
from weft.tb.sim.stream.payload import beats, pack, receive, unpack

READ_BYTES = 512
GROUPS = 40                # of each client, per round
SHARE = 0.6                # of the memory answers with faults
TIMEOUT = 400, "us"
NOWHERE = 1 << 50          # an address without memory
CONTROLS = ("no bus master", "function reset")
QUIET_ROUNDS = [None] * 3  # between rounds with a control event
PARAMS = preset("test")


class FaultySubsystem(Bench):
    """Bench with a misbehaving host; counts faults and failures by kind, and groups and requests that got an error."""

    def __init__(self, dut):
        super().__init__(dut, pause=0.05, read_bytes=READ_BYTES)
        self.host.strict = False
        self.injected, self.failures, self.errors = Counter(), Counter(), 0
        self.under_control = False       # any read may fail
        self.fault_window = FaultWindow(self.rng, READ_BYTES, SHARE)

    async def start(self, vectors=0):
        await super().start(vectors)
        for name in (self.host.device.log.name, f"cocotb.{self.dut._name}"):
            logging.getLogger(name).setLevel(logging.ERROR)      # each fault and each packet is logged
        self.agent = FaultAgent(self.host, self.rng, self.fault_window)

    def judge(self, subject, got, error, wanted, badly):
        """Check a completed read: the bytes are right, or there is an error if there was a fault."""
        self.errors += error
        if error and not (badly or self.under_control):
            self.failures[f"{subject}: an error without a fault"] += 1
        if badly and not error:
            self.failures[f"{subject}: a fault without an error"] += 1
        if not error and got != wanted:
            self.failures[f"{subject}: wrong bytes"] += 1

    async def bulk_client(self, client):
        wanted = [self.draw_group(client) for _ in range(GROUPS)]
        for places, expected in wanted:
            badly = any(self.fault_window.ends_badly(a, n) for a, n in places)
            got, error = await receive(self.packets[client])
            if len(got) != len(expected):
                self.failures["bulk: length"] += 1
            self.judge("bulk", got, bool(error), expected, badly)

    async def line_client(self, client):
        """Read lines; no request crosses a unit of the fault window."""
        waiting = {}
        for tag in range(GROUPS):
            region, lines = self.rng.randrange(2), self.rng.randint(1, 4)
            at = self.rng.randrange(HALF // READ_BYTES) * READ_BYTES + self.rng.randint(0, 8 - lines) * 64
            place = self.regions[region].physical(at)
            waiting[tag] = [self.regions[region].read(at, lines * 64), self.fault_window.ends_badly(place, 1), 0]
            self.lines[client].send_nowait(pack(LineRequest, line=place // 64, count=lines, tag=tag))
        while waiting:
            got = unpack(LineData, await self.line_data[client].recv())
            wanted, badly, seen = waiting[got.tag]
            if got.index != seen:
                self.failures["lines: order"] += 1
            self.judge("lines", got.data.to_bytes(64, "little"), bool(got.error), wanted[64 * seen:][:64], badly)
            waiting[got.tag][2] += 1
            if got.last:
                del waiting[got.tag]

    async def write_client(self, client):
        """Write, and also write to addresses without memory, which the host drops."""
        expected = await self.write_groups(client, GROUPS // 2)
        for word in group([(NOWHERE, 600)]):
            self.requests[client].send_nowait(word)
        for word in beats(bytes(600)):
            self.data[client].send_nowait(word)
        self.injected["write refused"] += 2       # TLPs
        await self.data[client].idle()
        return expected

    async def a_round(self, control=None):
        """Run all clients concurrently to completion, with at most one control event."""
        self.under_control = control is not None
        images = [bytearray(image) for image in self.image()]
        readers = [cocotb.start_soon(self.bulk_client(k)) for k in range(BULKS)]
        readers += [cocotb.start_soon(self.line_client(k)) for k in range(LINES)]
        writers = [cocotb.start_soon(self.write_client(k)) for k in range(WRITERS)]
        if control:
            await Timer(self.rng.randint(1, 4_000), "ns")
            await self.take_away(control)
        for task in (*readers, *writers):
            try:
                await with_timeout(task, *TIMEOUT)
            except SimTimeoutError:
                raise AssertionError(f"it hangs; outstanding at the hard block: {self.outstanding()}") from None
        await with_timeout(self.quiet(), *TIMEOUT)
        for task in writers:
            for region, at, body in task.result():
                images[region][at - HALF:at - HALF + len(body)] = body
        if not control and self.image() != [bytes(image) for image in images]:
            self.failures["writes: memory differs"] += 1
        await self.all_there()

    def outstanding(self):
        """Return the outstanding requests at the hard block, with their faults."""
        return [(tag, hex(request.address), self.fault_window(request.address))
                for tag, request in enumerate(self.host.device.active_request) if request]

    async def take_away(self, control):
        """Clear bus mastering for a while, or reset the function until the card reports that the reset is done."""
        function, dut = self.host.device.functions[0], self.dut
        self.injected[control] += 1
        if control == "function reset":
            dut.cfg_flr_in_process.value = 1
        function.bus_master_enable = False
        await ClockCycles(dut.clk, 2 << PARAMS.silence_log2)     # by now the card has timed its reads out
        if control == "function reset":
            await with_timeout(self.at_rest(), *TIMEOUT)
            dut.function_reset_done.value = 1
            await RisingEdge(dut.clk)
            dut.function_reset_done.value = 0
            while not int(dut.cfg_flr_done.value):
                await RisingEdge(dut.clk)
            dut.cfg_flr_in_process.value = 0
        for tag, request in enumerate(self.host.device.active_request):
            if request is not None:
                self.failures["a request after all"] += 1
                self.host.device.active_request[tag] = None
        function.bus_master_enable = True

    async def all_there(self):
        """Check that all tags are used at once and that the reads return the right bytes: no tag or credit is lost."""
        self.host.agent = None
        most, base = 0, self.regions[0]
        for tag in range(2 * PARAMS.line_tags):
            self.lines[0].send_nowait(pack(LineRequest, line=base.physical(64 * tag) // 64, count=1, tag=tag))
        places = [(k, base.physical(READ_BYTES * place)) for k in range(BULKS) for place in range(2 * PARAMS.bulk_tags)]
        for k, place in places:
            self.bulk[k].send_nowait(group([(place, 64)])[0])
        while not int(self.dut.idle.value) or not most:
            await RisingEdge(self.dut.clk)
            most = max(most, sum(request is not None for request in self.host.device.active_request))
        if most != PARAMS.bulk_tags + PARAMS.line_tags:
            self.failures[f"tags: {most} of {PARAMS.bulk_tags + PARAMS.line_tags}"] += 1
        for k, place in places:
            got, error = await with_timeout(receive(self.packets[k]), *TIMEOUT)
            if error or got != self.host.memory.read(place, 64):
                self.failures["afterwards: wrong bytes"] += 1
        for _ in range(2 * PARAMS.line_tags):
            got = unpack(LineData, await with_timeout(self.line_data[0].recv(), *TIMEOUT))
            if got.error or got.data.to_bytes(64, "little") != base.read(64 * got.tag, 64):
                self.failures["afterwards: wrong line"] += 1
        self.host.agent = self.agent


@cocotb.test()
async def faults(dut):
    settings, bench = given(), FaultySubsystem(dut)
    await bench.start()
    rounds, controls = 0, itertools.cycle([CONTROLS[0], *QUIET_ROUNDS, CONTROLS[1], *QUIET_ROUNDS])
    while True:
        total = bench.injected + bench.agent.injected
        if sum(total.values()) >= settings["count"] and set(total) >= {*READ_FAULTS, *CONTROLS, "write refused"}:
            break
        report_progress(settings["progress"], "faults", sum(total.values()), settings["count"])
        await bench.a_round(next(controls))
        bench.fault_window.change()
        rounds += 1
    leave({"injected": total, "failures": bench.failures, "errors": bench.errors, "rounds": rounds})


def inject(count, *, seed=None, straddle=False, progress=None):
    """Inject at least ``count`` faults; return ``injected`` and ``failures`` by kind, ``errors`` reported by the card,
    and ``rounds``."""
    return run_subsystem(__file__, straddle=straddle, sim="verilator", seed=seed, timeout_s=1800,
                         settings={"count": count, "progress": progress and str(progress)})
