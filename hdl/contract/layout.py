"""Bit layouts: one description per structure, read by gateware, driver, model and documentation.

A :class:`Layout` lists fields in order. Host structures are little-endian (field 0 starts at
bit 0 of byte 0); wire headers are network order (field 0 holds the most significant bits of
byte 0). Standard library only.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, Flag
from types import SimpleNamespace
from typing import Any, Literal

Octets = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Field:
    """One field: its width in bits, a description, and the enum of its values if any."""

    name: str
    width: int
    doc: str = ""
    enum: type[Enum] | None = None


class Layout:
    """A fixed-size structure of bit fields.

    Parameters
    ----------
    name
        Name as documentation prints it.
    doc
        One sentence.
    fields
        In order. A field whose name starts with ``_`` is reserved: packed as zero, not unpacked.
    size_bytes
        Size of the structure. The fields must fill it exactly.
    byteorder
        ``"little"`` for host structures, ``"big"`` for wire headers.

    Raises
    ------
    ValueError
        If a name occurs twice or the fields do not fill ``size_bytes``.
    """

    def __init__(self, name: str, doc: str, fields: Iterable[Field], *, size_bytes: int,
                 byteorder: Literal["little", "big"] = "little") -> None:
        self.name, self.doc, self.fields = name, doc, tuple(fields)
        self.size_bytes, self.byteorder = size_bytes, byteorder
        self.offsets: dict[str, int] = {}
        bit = 0
        for field in self.fields:
            if field.name in self.offsets:
                raise ValueError(f"layout {name}: field {field.name!r} occurs twice")
            self.offsets[field.name] = bit
            bit += field.width
        if bit != size_bytes * 8:
            raise ValueError(f"layout {name}: fields hold {bit} bits, structure {size_bytes * 8}")
        self.by_name = {f.name: f for f in self.fields}
        self._places = {f.name: (self.shift_of(f.name), (1 << f.width) - 1) for f in self.fields}
        self._plain = [(f.name, *self._places[f.name]) for f in self.fields if not f.name.startswith("_")]
        self._enums = [(f.name, f.enum, _members(f.enum)) for f in self.fields
                       if f.enum is not None and not f.name.startswith("_")]

    def offset_of(self, name: str) -> int:
        """Return the bit offset of a field, counted from the start of the structure in its own byte order."""
        return self.offsets[name]

    def shift_of(self, name: str) -> int:
        """Return the position of a field's least significant bit in the structure read as one integer."""
        field = self.by_name[name]
        if self.byteorder == "little":
            return self.offsets[name]
        return self.size_bytes * 8 - self.offsets[name] - field.width

    def pack(self, **values: int) -> bytes:
        """Return the bytes of the structure; absent fields are zero.

        Raises
        ------
        ValueError
            If a name is unknown or a value does not fit its field.
        """
        word = 0
        for name, value in values.items():
            place = self._places.get(name)
            if place is None:
                raise ValueError(f"{self.name} has no field {name!r}")
            value = int(value)
            if not 0 <= value <= place[1]:
                raise ValueError(f"{self.name}.{name}: {value:#x} does not fit {self.by_name[name].width} bits")
            word |= value << place[0]
        return word.to_bytes(self.size_bytes, self.byteorder)

    def unpack(self, data: Octets) -> SimpleNamespace:
        """Return the fields of ``data`` (at least ``size_bytes`` long) as attributes, enums as enum members when valid.
        """
        if len(data) < self.size_bytes:
            raise ValueError(f"{self.name} needs {self.size_bytes} bytes, got {len(data)}")
        word = int.from_bytes(data[: self.size_bytes], self.byteorder)
        fields: dict[str, Any] = {name: word >> shift & mask for name, shift, mask in self._plain}
        for name, kind, members in self._enums:
            # A value outside the enum stays a plain integer: the caller reports it.
            fields[name] = kind(fields[name]) if members is None else members.get(fields[name], fields[name])
        return SimpleNamespace(**fields)


def _members(kind: type[Enum]) -> dict[int, Enum] | None:
    """Return the members of an enum by value; None for flags, whose values combine."""
    return None if issubclass(kind, Flag) else {member.value: member for member in kind}
