"""Bench of the main job: two simulated cards."""

from typing import Any

import cocotb

from weft.hdl.contract.params import preset
from weft.tb.app.job.job import Job
from weft.tb.app.job.main_job import MainJob
from weft.tb.app.job.network_job import NetworkJob
from weft.tb.sim.pair.rtl_network import RtlNetwork
from weft.tb.sim.pair.rtl_pair import RtlPair


@cocotb.test()
async def main_job(dut: Any) -> None:
    job = Job.from_environment()
    if job.fabric:
        await on_fabric(dut, job)
        return
    pair = RtlPair(dut, job.env_config(preset(job.preset).msix_vectors), job.context_config(), card=job.preset,
                   seed=job.seed)
    report = await MainJob(pair, job).run()
    assert report["ok"], "; ".join(report["failures"])


async def on_fabric(dut: Any, job: Job) -> None:
    network = RtlNetwork(dut, job.env_config(preset(job.preset).msix_vectors), job.context_config(), job.network(),
                         card=job.preset, seed=job.seed)
    report = await NetworkJob(network, job).run()
    assert report["ok"], "; ".join(report["failures"])
