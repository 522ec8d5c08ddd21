"""What ``weft sim`` and its bench tell each other: settings one way, progress and report the other.

The settings travel as JSON in ``WEFT_JOB``. The bench appends a line to the progress file whenever it has news, and
leaves its report as one JSON object.
"""

import json
import os
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path

from weft.model.impairments import LinkConfig
from weft.tb.sim.flow.progress import tell
from weft.tb.sim.pair import settings
from weft.tb.sim.pcie.host import HostConfig

VARIABLE = "WEFT_JOB"


@dataclass(frozen=True)
class Job:
    """Settings of the main job.

    Attributes
    ----------
    file : str
        What travels.
    loss, reorder, dup, corrupt : float
        Chances of the link in the direction of the data.
    back_loss, back_reorder, back_dup, back_corrupt : float
        The same for the way back: loss reports and acknowledgements.
    rtt_us : float
    qps, seed, pmtu : int
    preset, sim : str
        Size of the card, and the simulator.
    backend : str
        ``rtl``, the gateware in that simulator, or ``model``, the card in time of :mod:`weft.model.card`.
    progress, report : str
        Files the bench writes.
    captures : str
        Folder of the captures.
    timeline : str
        File of the timeline; empty: none is kept.
    program : str
        How a shell calls the command line.
    straddle : bool
        The cards and their PCIe blocks have it (``CardParams.straddle``).
    mac_clock : bool
        The cards' MACs have clocks of their own (``CardParams.mac_clock``).
    pfc : int or None
        Priority for flow control of both cards (``ContextConfig.pfc_priority``).
    """

    file: str
    loss: float
    reorder: float
    dup: float
    corrupt: float
    rtt_us: float
    qps: int
    seed: int
    pmtu: int
    preset: str
    sim: str
    progress: str
    report: str
    captures: str
    back_loss: float = 0.0
    back_reorder: float = 0.0
    back_dup: float = 0.0
    back_corrupt: float = 0.0
    timeline: str = ""
    program: str = "weft"
    backend: str = "rtl"
    straddle: bool = False
    mac_clock: bool = False
    pfc: int | None = None

    @classmethod
    def from_environment(cls):
        """The job of this bench."""
        given = json.loads(os.environ[VARIABLE])
        # What the shell's locale had no characters for came as bytes.
        given["file"] = given["file"].encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
        return cls(**given)

    def environment(self):
        """What :func:`weft.tb.sim.flow.simulate.simulate` passes to the bench."""
        return {VARIABLE: json.dumps(asdict(self))}

    def link_configs(self):
        """The :class:`~weft.model.impairments.LinkConfig` of the data's direction and of the other one."""
        delay_ns = self.rtt_us * 500
        there = LinkConfig(delay_ns=delay_ns, loss=self.loss, duplicate=self.dup, reorder=self.reorder,
                           corrupt=self.corrupt)
        back = LinkConfig(delay_ns=delay_ns, loss=self.back_loss, duplicate=self.back_dup, reorder=self.back_reorder,
                          corrupt=self.back_corrupt)
        return there, back

    def env_config(self, vectors, host=None):
        """The :class:`~weft.tb.sim.pair.two_hosts.EnvConfig` of the job."""
        from weft.tb.sim.pair.two_hosts import EnvConfig

        there, back = self.link_configs()
        return EnvConfig(a_to_b=there, b_to_a=back, host=host or HostConfig(), vectors=vectors,
                         straddle=self.straddle, pcap_folder=Path(self.captures))

    def context_config(self):
        """Driver settings that fit the link."""
        return settings.context_config(self.rtt_us, reorders=self.reorder > 0 or self.dup > 0, pfc_priority=self.pfc)

    def wr_timeout(self):
        """The verbs' timeout exponent."""
        return settings.timeout(self.rtt_us)

    def tell(self, phase, *, done=0, total=0, time_ns=0, **numbers):
        """Append a line of progress: a phase, bytes done of all, simulated time, and other numbers worth showing."""
        tell(self.progress, phase, done, total, time_ns=time_ns, **numbers)

    def write_report(self, report):
        """Leave the report, an object that JSON can hold."""
        Path(self.report).parent.mkdir(parents=True, exist_ok=True)
        Path(self.report).write_text(json.dumps(report, indent=1) + "\n")

    def judge_spurious(self, count):
        """What it means that ``count`` packets were sent again although the link had not lost them.

        Over a link that keeps order and delivers nothing twice, card and driver have no excuse: the run failed. A link
        that reorders may hold a packet back for longer than the receiver waits; then it is a warning.

        Returns
        -------
        tuple of list
            Sentences: failures, warnings.
        """
        if count <= 0:
            return [], []
        sentence = f"{count} packets were sent again although the link had not lost them"
        if self.reorder or self.dup or self.back_reorder or self.back_dup:
            return [], [f"{sentence}; it reorders or duplicates, which may be why"]
        return [sentence], []

    @property
    def command(self):
        """The command that runs this job again."""
        apart = ("progress", "report", "captures", "program", "timeline", "straddle", "mac_clock",
                 *(("pfc",) if self.pfc is None else ()))
        usual = {"backend": "rtl"} if self.backend == "rtl" else {"sim": self.sim}
        options = {name: value for name, value in asdict(self).items()
                   if name not in apart and name not in usual and not (name.startswith("back_") and value == 0)}
        return f"{self.program} sim " + " ".join(
            f"--{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in options.items()) + (
            " --straddle" * self.straddle + " --mac-clock" * self.mac_clock + " --timeline" * bool(self.timeline))
