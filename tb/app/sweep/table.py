"""Table of a sweep: a Parquet file with a row for each finished point, and the command and version that made it."""

import typing

import pyarrow as pa
import pyarrow.parquet as pq

_ARROW = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}


def _kind(subject):
    return f"weft sweep of {subject.name}".encode()


def _schema(subject):
    return pa.schema([(name, _ARROW.get(hint, pa.float64())) for kind in (subject.settings, subject.results)
                      for name, hint in typing.get_type_hints(kind).items()])


class BadTable(Exception):
    """File that is no table of a sweep; the message is a sentence."""


def key(row, subject):
    """Return the identity of a point: all of its settings, as the table stores them."""
    return tuple(float(row[name]) if isinstance(row[name], int | float) and not isinstance(row[name], bool)
                 else row[name] for name in subject.fields)


def load(path, version, subject):
    """Return the rows of a table, none if there is no file.

    Raises
    ------
    BadTable
        If it is damaged, not a table of this sweep, or of another version.
    """
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


def save(path, rows, subject, *, command, version):
    """Write a table atomically."""
    about = {b"kind": _kind(subject), b"command": command.encode(), b"version": version.encode()}
    table = pa.Table.from_pylist(rows, schema=_schema(subject).with_metadata(about))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    pq.write_table(table, part)
    part.rename(path)
