"""The main job with QPs that soon give up a peer that is silent: the same retries, of 33 µs each."""

from weft.tb.app.job import job_cases
from weft.tb.app.job.job_cases import main_job  # noqa: F401, which is what cocotb finds here and runs

job_cases.Job.wr_timeout = lambda job: 3
