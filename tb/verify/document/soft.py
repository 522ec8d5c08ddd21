"""The header of the document's protocol as a table."""

from weft.driver.soft.raw.packet import HEADER
from weft.tb.verify.document.sizing import table


def header_table():
    """Field by field, with offsets in bytes from the end of the Ethernet header."""
    return table(("offset", "bytes", "field", "meaning"), [
        (HEADER.offset_of(field.name) // 8, field.width // 8,
         "zero" if field.name.startswith("_") else f"`{field.name}`",
         field.doc or ("`Opcode`" if field.enum else "")) for field in HEADER.fields])
