"""Main job on a fabric: each flow of its description carries the file, at the same time."""

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.driver.application.file_transfer import Endpoint, post_receives
from weft.driver.terms.enums import MTU
from weft.model.fabric.description import Flow
from weft.tb.app.job.job import Job
from weft.tb.app.job.main_job import PROGRESS_NS
from weft.tb.app.job.outcome import network_outcome
from weft.tb.app.job.programs import Programs
from weft.tb.sim.pair.pair import serve_until

if TYPE_CHECKING:
    from weft.tb.sim.pair.network import Network


@dataclass(eq=False)
class Transfer:
    """Transfer of the file by one flow.

    Attributes
    ----------
    nanoseconds
        Duration at the sender; 0 until it has ended.
    received
        Bytes at the receiver, set at the end.
    """

    flow: Flow
    programs: Programs
    sender: Endpoint
    receiver: Endpoint
    nanoseconds: float = 0
    received: bytes = b""

    @property
    def name(self) -> str:
        return f"{self.flow.source} to {self.flow.destination}"


class NetworkJob:
    """Main job on the hosts of a fabric. A host sends its flows one after the other, then receives."""

    def __init__(self, network: "Network", job: Job) -> None:
        self.network, self.job, self.transfers = network, job, list[Transfer]()

    async def run(self) -> dict[str, Any]:
        """Run the whole job; write and return the report."""
        job, network, flows = self.job, self.network, self.network.network.flows
        total = Path(job.file).stat().st_size * len(flows)
        job.report_progress("bringing hosts and cards up", total=total)
        await network.start()
        for flow in flows:
            await self._connect(flow)
        end_progress = network.every(PROGRESS_NS[job.backend], partial(self._progress, total))
        self._began, began = network.now_ns(), time.perf_counter()
        await network.gather(*(partial(self._play, host) for host in network.network.hosts))
        end_progress()
        nanoseconds, wall = network.now_ns() - self._began, time.perf_counter() - began
        for transfer in self.transfers:
            transfer.received = transfer.receiver.mr.read(len(transfer.programs.data), 0)
        job.report_progress("closing", done=total, total=total, time_ns=network.now_ns())
        await network.close()
        report = network_outcome(network, job, self.transfers, nanoseconds, wall)
        job.write_report(report)
        return report

    async def _connect(self, flow: Flow) -> None:
        """Make and connect the endpoints of a flow."""
        network, job, programs = self.network, self.job, Programs(self.job)
        sides = [network.side(host) for host in (flow.source, flow.destination)]
        ends = [await network.call(Endpoint, network.contexts[side], len(programs.data), qps=job.qps)
                for side in sides]
        await network.join(*zip(sides, ends, strict=True), path_mtu=MTU[f"MTU_{job.pmtu}"], timeout=job.wr_timeout())
        ends[0].mr.write(programs.data)
        await network.call(post_receives, ends[1])
        self.transfers.append(Transfer(flow, programs, *ends))

    def _play(self, host: str) -> None:
        """Run the programs of a host, and serve its peers until all have ended."""
        context = self.network.contexts[self.network.side(host)]
        for transfer in self.transfers:
            if transfer.flow.source == host:
                self._send(transfer)
        for transfer in self.transfers:
            if transfer.flow.destination == host:
                transfer.programs.receive(transfer.receiver)
        serve_until(lambda: all(one.programs.sender_done for one in self.transfers), context,
                    self.job.service_ns())
        context.progress()

    def _send(self, transfer: Transfer) -> None:
        start = self._began + transfer.flow.start_us * 1e3
        while (left := start - self.network.now_ns()) > 0:
            transfer.sender.context.progress()
            transfer.sender.context.wait(left)
        done = transfer.programs.send(transfer.sender, transfer.receiver.offer)
        transfer.nanoseconds = done["nanoseconds"] if done else 0

    def _progress(self, total: int) -> None:
        """Report the progress, from the frames that reached their hosts."""
        done = self.network.fabric.delivered_data * self.job.pmtu
        self.job.report_progress("transferring", done=min(done, total), total=total, time_ns=self.network.now_ns(),
                                 lost=self.network.fabric.destroyed.total())


def run_model_network(job: Job) -> dict[str, Any]:
    """Run a job over timed cards on its fabric; return its report."""
    from weft.model.card.host import TimedDevice
    from weft.tb.sim.pair.loop_pair import complete
    from weft.tb.sim.pair.network import LoopNetwork
    from weft.tb.sim.pcie.host import HostConfig

    return complete(NetworkJob(LoopNetwork(TimedDevice, job.context_config(), job.network(), seed=job.seed,
                                           captures=job.captures, preset=job.preset, host=HostConfig()), job).run())
