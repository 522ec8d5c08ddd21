"""One run of the main job: it passes the settings to the bench, and progress and report back.

The bench appends lines to the progress file, and writes its report as one JSON object.
"""

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.driver.application.file_transfer import MESSAGE_BYTES, WINDOW
from weft.model.impairments import LinkConfig
from weft.model.settings import words
from weft.tb.app.job.job_settings import JobSettings
from weft.tb.sim.flow.aliases import with_former_fields
from weft.tb.sim.flow.bench import VARIABLE, given
from weft.tb.sim.flow.progress import report_progress
from weft.tb.sim.pair import settings

if TYPE_CHECKING:
    from weft.driver.verbs.context import ContextConfig
    from weft.tb.sim.pair.two_hosts import EnvConfig

LOOKS = 20    # checks per round trip for the end of the sender


@dataclass(frozen=True, kw_only=True)
class Job(JobSettings):
    """One run of the main job.

    Attributes
    ----------
    folder
        Folder of the output files of the bench.
    program
        Command line of ``weft`` in a shell.
    """

    folder: str
    program: str = "weft"

    @classmethod
    def from_environment(cls) -> "Job":
        """Return the job of this bench."""
        read = given()
        # Characters outside the shell's locale are passed as bytes.
        read["file"] = read["file"].encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
        return cls(**read)

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the bench, for :func:`weft.tb.sim.flow.simulate.simulate`."""
        return {VARIABLE: json.dumps(asdict(self))}

    @property
    def progress(self) -> Path:
        return Path(self.folder, "progress.jsonl")

    @property
    def report(self) -> Path:
        return Path(self.folder, "report.json")

    @property
    def captures(self) -> Path:
        return Path(self.folder, "captures")

    @property
    def timeline_file(self) -> Path:
        return Path(self.folder, "timeline.json")

    def link_configs(self) -> tuple[LinkConfig, LinkConfig]:
        """Return the settings of the data's direction and of the other one."""
        delay_ns = self.rtt_us * 500
        there = LinkConfig(delay_ns=delay_ns, loss=self.loss, duplicate=self.dup, reorder=self.reorder,
                           corrupt=self.corrupt)
        back = LinkConfig(delay_ns=delay_ns, loss=self.back_loss, duplicate=self.back_dup, reorder=self.back_reorder,
                          corrupt=self.back_corrupt)
        return there, back

    def env_config(self, vectors: int) -> "EnvConfig":
        """Return the settings of the simulated hosts."""
        from weft.tb.sim.pair.two_hosts import EnvConfig

        there, back = self.link_configs()
        return EnvConfig(a_to_b=there, b_to_a=back, vectors=vectors, straddle=self.straddle,
                         pcap_folder=self.captures)

    def context_config(self) -> "ContextConfig":
        """Return driver settings for the link."""
        return settings.context_config(self.rtt_us, reorders=self.reorder > 0 or self.dup > 0, pfc_priority=self.pfc,
                                       congestion=self.congestion)

    @property
    def path_us(self) -> float:
        """Round trip time; over a fabric the longest, with all that its senders may have in flight in one queue."""
        if not self.fabric:
            return self.rtt_us
        network = self.network()
        waiting = len(network.flows) * self.qps * min(Path(self.file).stat().st_size, WINDOW * MESSAGE_BYTES)
        return (2 * network.longest_ns + waiting * 8 / min(link.rate_gbps for link in network.links)) / 1e3

    def wr_timeout(self) -> int:
        """Return the time-out exponent of the verbs."""
        return settings.timeout(self.path_us)

    def service_ns(self) -> int:
        """Return the interval at which a receiver looks for the end of its sender."""
        return max(settings.SERVICE_NS, int(self.rtt_us * 1000 / LOOKS))

    def report_progress(self, phase: str, *, done: int = 0, total: int = 0, time_ns: float = 0,
                        **numbers: float) -> None:
        """Append a line of progress: phase, bytes done and in total, simulated time, and further numbers to show."""
        report_progress(self.progress, phase, done, total, time_ns=time_ns, **numbers)

    def write_report(self, report: dict[str, Any]) -> None:
        """Write the report, an object that JSON can represent."""
        self.report.parent.mkdir(parents=True, exist_ok=True)
        self.report.write_text(json.dumps(with_former_fields("sim", report), indent=1) + "\n")

    def judge_spurious(self, count: int) -> tuple[list[str], list[str]]:
        """Classify ``count`` retransmissions of packets that the link had not lost.

        Over a link that keeps order and duplicates no packet, they are a fault of card or driver: the run failed. A
        link that reorders may hold a packet back for longer than the receiver waits; then they cause a warning.

        Returns
        -------
        tuple
            Failures and warnings, as sentences.
        """
        if count <= 0:
            return [], []
        sentence = f"{count} packets were sent again although the link had not lost them"
        if self.reorder or self.dup or self.back_reorder or self.back_dup:
            return [], [f"{sentence}; it reorders or duplicates, which may be why"]
        return [sentence], []

    @property
    def command(self) -> str:
        """Command that repeats this job."""
        return f"{self.program} sim {shlex.join(words(self))}"
