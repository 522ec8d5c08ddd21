"""Table of a sweep: a Parquet file with a row for each finished point, and the command and version that made it."""

import typing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from weft.tb.app.sweep.subject import Row, Subject

_ARROW = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}


def _kind(subject: Subject) -> bytes:
    return f"weft sweep of {subject.name}".encode()


def _schema(subject: Subject) -> pa.Schema:
    return pa.schema([(name, _ARROW.get(hint, pa.float64())) for kind in (subject.settings, subject.results)
                      for name, hint in typing.get_type_hints(kind).items()])


class BadTable(Exception):
    """File that is not a table of a sweep; the message is a sentence."""


def key(row: Row, subject: Subject) -> tuple[Any, ...]:
    """Return the identity of a point: all of its settings, as the table stores them."""
    return tuple(float(row[name]) if isinstance(row[name], int | float) and not isinstance(row[name], bool)
                 else row[name] for name in subject.fields)


def load(path: Path, version: str, subject: Subject) -> list[Row]:
    """Return the rows of a table, if it exists. Raises BadTable if it is damaged, or of another sweep or version."""
    if not path.exists():
        return []
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise BadTable(f"{str(path)!r} cannot be read as a table: {str(error).splitlines()[0]}; move it away") from None
    about = table.schema.metadata or {}
    if about.get(b"kind") != _kind(subject) or table.schema.names != _schema(subject).names:
        raise BadTable(f"{str(path)!r} is not a table of this sweep; move it away, or name another one with --output")
    if about[b"version"].decode() != version:
        raise BadTable(f"{str(path)!r} was made by version {about[b'version'].decode()}, and this is {version}; move "
                       "it away, or name another one with --output")
    return table.to_pylist()


def save(path: Path, rows: list[Row], subject: Subject, *, command: str, version: str) -> None:
    """Write a table atomically."""
    about = {b"kind": _kind(subject), b"command": command.encode(), b"version": version.encode()}
    table = pa.Table.from_pylist(rows, schema=_schema(subject).with_metadata(about))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    pq.write_table(table, part)
    part.rename(path)
