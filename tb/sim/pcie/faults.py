"""Faulty host: all errors that can end a DMA read, and unexpected completions."""

from collections import Counter

from cocotb.triggers import Timer
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpAttr
from cocotbext.pcie.xilinx.us import usp_model
from cocotbext.pcie.xilinx.us.tlp import ErrorCode

from weft.tb.sim.pcie.hard_block import cut_off
from weft.tb.sim.pcie.lean_pcie import ROOT_ID

RCB_BYTES = 64
UNUSED_TAGS = range(160, 256)        # above the tags of every preset
TIMEOUT_NS, STALL_NS = 2_000, 700

# Faults that end a read with an error, and faults that do not.
ENDS_BADLY = ("unsupported", "aborted", "retry", "poisoned", "lost", "partly lost", "partly aborted", "wrong address",
              "mismatched", "without data", "discontinued", "late")
HARMLESS = ("split and stalled", "stray", "twice")
READ_FAULTS = ENDS_BADLY + HARMLESS
WITHOUT_DATA = {"unsupported": CplStatus.UR, "aborted": CplStatus.CA, "retry": CplStatus.CRS,
                "without data": CplStatus.SC}
DAMAGED = "damaged"        # data corrupted in memory: not detectable on the bus
DAMAGED_BITS = 12          # longest burst of damaged bits


class FaultAgent:
    """Injector of faults into some reads of a host.

    Works with either model of the hard block, and emulates functions of the hard block that the models lack: the
    completion time-out, and discontinued packets.

    The card of ``host`` must be connected. ``choose(address)`` returns the fault of a read of this address: one of
    :data:`READ_FAULTS`, :data:`DAMAGED`, or None. ``injected`` counts the injected faults by kind.
    """

    def __init__(self, host, rng, choose):
        self.host, self.device, self.rng, self.choose = host, host.device, rng, choose
        self.injected, self._give_up = Counter(), set()
        self._deliver = self.device.rc_queue.put_nowait
        self.device.rc_queue.put_nowait = self._on_rc
        host.agent = self

    def remove(self):
        """Stop injecting faults."""
        self.host.agent = None
        self.device.rc_queue.put_nowait = self._deliver

    def _on_rc(self, tlp):
        """Mark a completion as discontinued, if selected, and pass it to RC."""
        if tlp.tag in self._give_up:
            self._give_up.discard(tlp.tag)
            tlp.discontinue = True
        self._deliver(tlp)

    async def answer(self, tlp):
        """Respond to a read with a fault; return False to leave the response to the host."""
        kind = self.choose(tlp.address)
        if kind is None:
            return False
        self.injected[kind] += 1
        if kind in WITHOUT_DATA:
            await self._send(Tlp.create_completion_for_tlp(tlp, ROOT_ID, status=WITHOUT_DATA[kind]))
        else:
            await getattr(self, "_" + kind.replace(" ", "_"))(tlp)
        return True

    # ------------------------------------------------------------------ each kind

    async def _poisoned(self, tlp):
        answer = await self._completions(tlp)
        self.rng.choice(answer).ep = True
        await self._send(*answer)

    async def _lost(self, tlp):
        await self._time_out(tlp)

    async def _late(self, tlp):
        """Respond after the time-out. The hard block finds the tag invalid, though it may be in use again."""
        answer = usp_model.Tlp_us((await self._completions(tlp))[0])
        await self._time_out(tlp)
        await Timer(self.rng.randint(1, STALL_NS), "ns")
        answer.error_code = ErrorCode.INVALID_TAG
        self._show(answer)

    async def _partly_lost(self, tlp):
        await self._send(*(await self._completions(tlp, RCB_BYTES))[:-1])
        await self._time_out(tlp)

    async def _partly_aborted(self, tlp):
        await self._send(*(await self._completions(tlp, RCB_BYTES))[:-1],
                         Tlp.create_ca_completion_for_tlp(tlp, ROOT_ID))

    async def _wrong_address(self, tlp):
        answer = await self._completions(tlp)
        self.rng.choice(answer).lower_address ^= 4
        await self._send(*answer)

    async def _mismatched(self, tlp):
        """Return attributes that differ from the request's: the hard block ignores such a completion."""
        answer = await self._completions(tlp)
        answer[-1].attr = TlpAttr.NS if tlp.attr != TlpAttr.NS else TlpAttr.RO
        await self._send(*answer)
        await self._time_out(tlp)

    async def _discontinued(self, tlp):
        self._give_up.add(tlp.tag)
        await self._send(*await self._completions(tlp))

    async def _damaged(self, tlp):
        answer = await self._completions(tlp)
        victim = self.rng.choice(answer)
        data = int.from_bytes(victim.data, "little")
        bits = self.rng.randint(1, DAMAGED_BITS)
        data ^= self.rng.getrandbits(bits) << self.rng.randrange(8 * len(victim.data) - bits + 1) or 1
        victim.set_data(data.to_bytes(len(victim.data), "little"))
        await self._send(*answer)

    async def _split_and_stalled(self, tlp):
        for completion in await self._completions(tlp, RCB_BYTES):
            await self._send(completion)
            if self.rng.random() < 0.3:
                await Timer(self.rng.randint(1, STALL_NS), "ns")

    async def _stray(self, tlp):
        answer = await self._completions(tlp)
        alien = Tlp(answer[0])
        alien.tag = self.rng.choice(UNUSED_TAGS)
        answer.insert(self.rng.randint(0, len(answer)), alien)
        await self._send(*answer)

    async def _twice(self, tlp):
        answer = await self._completions(tlp)
        await self._send(*answer, Tlp(answer[-1]))

    # ----------------------------------------------------------------------- parts

    async def _send(self, *completions):
        for completion in completions:
            await self.host.send(completion)

    async def _completions(self, tlp, unit=None):
        """Return the correct completions of a read, cut at multiples of ``unit``, or of a random unit."""
        unit = unit or self.rng.choice([RCB_BYTES, 2 * RCB_BYTES, 4 * RCB_BYTES, 4096])
        unit = min(unit, 128 << self.host.max_payload_size)
        data = await self.host.mem_address_space.read(tlp.address, tlp.length * 4)
        first, total = tlp.address + tlp.get_first_be_offset(), tlp.get_be_byte_count()
        at, end, result = tlp.address, tlp.address + tlp.length * 4, []
        while at < end:
            until = min(end, (at | unit - 1) + 1)
            completion = Tlp.create_completion_data_for_tlp(tlp, ROOT_ID)
            start = max(at, first)
            completion.byte_count = first + total - start
            completion.lower_address = start & 0x7F
            completion.set_data(data[at - tlp.address:until - tlp.address])
            result.append(completion)
            at = until
        return result

    async def _time_out(self, tlp):
        """Time a read out as the hard block does: report it to the card and release the tag."""
        await Timer(TIMEOUT_NS, "ns")
        if self.device.active_request[tlp.tag] is not None:
            self._show(cut_off(self.device, tlp, ErrorCode.TIMEOUT))

    def _show(self, tlp):
        """Put a completion on RC that the hard block generated, or found erroneous."""
        self.device.rx_buf_cplh_fc_count += 1
        self.device.rx_buf_cpld_fc_count += tlp.get_data_credits() + 1
        self._deliver(tlp)


class FaultWindow:
    """Fault window: assigns faults to a fraction ``share`` of a host's memory.

    Each fault is that of ``unit_bytes``, a power of two; no read crosses a multiple of it.
    """

    def __init__(self, rng, unit_bytes, share):
        self._rng, self._unit, self._share, self._faults = rng, unit_bytes, share, {}

    def change(self):
        """Choose new faults at new addresses."""
        self._faults.clear()

    def __call__(self, address):
        """Return the fault of a read of this address, or None."""
        key = address // self._unit
        if key not in self._faults:
            self._faults[key] = self._rng.choice(READ_FAULTS) if self._rng.random() < self._share else None
        return self._faults[key]

    def ends_badly(self, address, length):
        """Return whether a read of these bytes, cut at multiples of the unit, ends with an error."""
        first, last = address // self._unit, (address + length - 1) // self._unit
        return any(self(key * self._unit) in ENDS_BADLY for key in range(first, last + 1))
