"""C header of messages and rings, generated from their layouts."""

from weft.hdl.contract.abi import KEY_TAG_BITS

from ..terms.program_mapping import MappingMethod
from . import messages, rings

_TYPES = {8: "uint8_t", 16: "uint16_t", 32: "uint32_t", 64: "uint64_t"}


def header():
    """Return the text of ``contract.h``."""
    parts = ["/* Made of driver/ibverbs/messages.py and rings.py: not to be edited. */", "#pragma once",
             "#include <assert.h>", "#include <stdint.h>", ""]
    for name in ("VERSION", "MESSAGE_BYTES_MAX", "SENTENCE_BYTES_MAX", "FILES_MAX"):
        parts.append(f"#define WEFT_{name} {getattr(messages, name)}u")
    parts.append(f"#define WEFT_KEY_TAG_BITS {KEY_TAG_BITS}u")
    for prefix, kind in (("WEFT", messages.Opcode), ("WEFT_KIND", messages.Kind), ("WEFT_MOST", rings.Limit),
                         ("WEFT_DOORBELL", rings.Doorbell), ("WEFT_MAPPING", MappingMethod)):
        values = ", ".join(f"{prefix}_{member.name} = {member.value}" for member in kind if member.value < 1 << 31)
        parts += [f"enum {{ {values} }};"]
    for layout in (*messages.layouts().values(), *rings.SHARED):
        parts += ["", *struct(layout)]
    return "\n".join(parts) + "\n"


def struct(layout):
    """Yield the lines of a struct.

    Raises
    ------
    ValueError
        If a field has no C type, or is not at a multiple of its size.
    """
    yield f"struct weft_{layout.name} {{"
    for field in layout.fields:
        kind, at = _TYPES.get(field.width), layout.offset_of(field.name)
        if kind and at % field.width == 0:
            yield f"    {kind} {field.name};"
        elif kind is None and field.width % 8 == at % 8 == 0:
            yield f"    uint8_t {field.name}[{field.width // 8}];"
        else:
            raise ValueError(f"{layout.name}.{field.name}: {field.width} bits at bit {at} are nothing that C has")
    yield "};"
    yield f'static_assert(sizeof(struct weft_{layout.name}) == {layout.size_bytes}, "{layout.name}");'
