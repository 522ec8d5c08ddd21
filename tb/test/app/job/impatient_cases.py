"""The main job with QPs that soon give up on a silent peer: the same number of retries, of 33 µs each."""

from weft.tb.app.job import job_cases
from weft.tb.app.job.job_cases import main_job  # noqa: F401 (cocotb runs it from here)

job_cases.Job.wr_timeout = lambda job: 3
