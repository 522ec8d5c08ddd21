"""The table of a sweep: a Parquet file with a row for each finished point, and the command and version that made it."""

import dataclasses

import pyarrow as pa
import pyarrow.parquet as pq

from weft.model.wan.experiment import Experiment
from weft.model.wan.result import Result

SETTINGS = [f.name for f in dataclasses.fields(Experiment)]
RESULTS = [f.name for f in dataclasses.fields(Result)]
_ARROW = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}
KIND = b"weft sweep"


SCHEMA = pa.schema([(f.name, _ARROW.get(f.type, pa.float64()))
                    for kind in (Experiment, Result) for f in dataclasses.fields(kind)])


class BadTable(Exception):
    """A sentence about a file that is no table of a sweep."""


def key(row):
    """What tells a point from others: all of its settings, as the table keeps them."""
    return tuple(float(row[name]) if isinstance(row[name], int | float) and not isinstance(row[name], bool)
                 else row[name] for name in SETTINGS)


def load(path, version):
    """Rows of a table, none if there is no file.

    Raises
    ------
    BadTable
        If it is damaged, of something else, or of another version.
    """
    if not path.exists():
        return []
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise BadTable(f"{str(path)!r} cannot be read as a table: {str(error).splitlines()[0]}; move it away") from None
    about = table.schema.metadata or {}
    if about.get(b"kind") != KIND or table.schema.names != SCHEMA.names:
        raise BadTable(f"{str(path)!r} is not a table of this sweep; move it away, or name another one with --output")
    if about[b"version"].decode() != version:
        raise BadTable(f"{str(path)!r} was made by version {about[b'version'].decode()}, and this is {version}; move "
                       "it away, or name another one with --output")
    return table.to_pylist()


def save(path, rows, *, command, version):
    """Write a table, whole or not at all."""
    about = {b"kind": KIND, b"command": command.encode(), b"version": version.encode()}
    table = pa.Table.from_pylist(rows, schema=SCHEMA.with_metadata(about))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    pq.write_table(table, part)
    part.rename(path)
