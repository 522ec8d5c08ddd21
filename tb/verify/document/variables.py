"""Table of the variables of ``make sim``."""

import itertools

from weft.model.settings import fields
from weft.tb.app.job.job_settings import JobSettings


def table():
    """Markdown: a row for each variable, or for neighbours with the same values and default."""
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for _, alike in itertools.groupby(fields(JobSettings).values(), _values):
        alike = list(alike)
        names = ", ".join(f"`{field.name.upper()}`" for field in alike)
        meanings = "; ".join(map(_meaning, alike))
        rows.append(f"| {names} | {_default(alike[0])} | {meanings} |")
    return "\n".join(rows)


def _values(field):
    """Equal for settings that share a row."""
    setting = field.setting
    return field.kind, field.default, setting.least, setting.most, setting.choices


def _default(field):
    if field.kind is bool:
        return "0"
    return field.setting.default_text or ("" if field.default is None else f"{field.default:g}" if isinstance(
        field.default, float) else str(field.default))


def _meaning(field):
    text = field.setting.about.removesuffix(".")
    text = text if text[:2].isupper() else text[0].lower() + text[1:]
    choices = ", ".join(f"`{choice}`" for choice in field.setting.choices)
    return f"{text} ({choices})" if choices else text
