"""Variables that ``make sim`` must have for the settings of the main job."""

from weft.model.settings import fields
from weft.tb.app.job.job_settings import JobSettings


def make_variables() -> tuple[list[str], list[str]]:
    """Return the names of the variables of ``make sim``: those with a value, and the flags."""
    valued: list[str] = []
    flags: list[str] = []
    for name, field in fields(JobSettings).items():
        (flags if field.kind is bool else valued).append(name.upper())
    return valued, flags
