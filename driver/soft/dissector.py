"""Dissector for Wireshark and tshark, in Lua, generated from the layouts.

It shows packets of the document's protocol, and packets that the card sends under opcodes outside the standard.

``python -m weft.driver.soft.dissector > weft.lua`` writes it; ``tshark -X lua_script:weft.lua`` uses it. EtherType
0x8915 is that of RoCEv1, whose packets are not shown while it is loaded.
"""

from weft.hdl.contract import abi, wire

from .raw.packet import ETHTYPE_RDMA, HEADER, WITH_PAYLOAD, NackReason, Opcode

RAW, CARD = "weft_raw", "weft"
_HEX = frozenset({"opcode", "va", "remote_addr", "rkey", "remote_key", "imm", "checksum"})
_KINDS = {1: "uint8", 2: "uint16", 3: "uint24", 4: "uint32", 8: "uint64"}
OWN_OPCODES = {opcode: headers for opcode, headers in wire.EXTENSIONS.items() if opcode >= wire.Opcode.RETX_WRITE}

_TEMPLATE = """\
-- Made by weft.driver.soft.dissector: packets of EtherType 0x8915 as "{raw}", own opcodes of the card as "{card}".
local function show(tree, tvb, fields)
  for _, f in ipairs(fields) do
    if f.at + f.size <= tvb:len() then tree:add(f.field, tvb(f.at, f.size)) end
  end
end

local raw = Proto("{raw}", "Weft: RDMA above Ethernet")
local raw_opcodes = {raw_opcodes}
local nack_reasons = {nack_reasons}
local raw_header = {raw_header}
local raw_payload = ProtoField.bytes("{raw}.payload", "payload")
local raw_short = ProtoExpert.new("{raw}.short", "shorter than its length field", expert.group.MALFORMED,
expert.severity.ERROR) raw.fields = {{ {raw_names}, raw_payload }}
raw.experts = {{ raw_short }}
local with_payload = {with_payload}

function raw.dissector(tvb, pinfo, tree)
  pinfo.cols.protocol = "RDMA-RAW"
  local root = tree:add(raw, tvb())
  show(root, tvb, raw_header)
  if tvb:len() < {header_bytes} then
    root:add_proto_expert_info(raw_short)
    return
  end
  local opcode, length = tvb(0, 1):uint(), tvb({length_at}, 4):uint()
  local info = (raw_opcodes[opcode] or "opcode " .. opcode) .. " seq " .. tvb({seq_at}, 4):uint()
  if opcode == {nack} then info = info .. " " .. (nack_reasons[tvb(1, 1):uint()] or "?") end
  pinfo.cols.info = info
  if with_payload[opcode] and length > 0 then
    local there = math.min(length, tvb:len() - {header_bytes})
    if there > 0 then root:add(raw_payload, tvb({header_bytes}, there)) end
    if there < length then root:add_proto_expert_info(raw_short) end
  end
end
DissectorTable.get("ethertype"):add({ethertype}, raw)

local card = Proto("{card}", "Weft: opcodes of the card")
local card_opcodes = {card_opcodes}
local card_opcode = ProtoField.uint8("{card}.opcode", "opcode", base.HEX, card_opcodes)
{card_headers}
local encodings = {encodings}
local node_count = ProtoField.uint16("{card}.node.count", "holes in the node", base.DEC)
local node_encoding = ProtoField.uint16("{card}.node.encoding", "encoding", base.DEC, encodings)
local node_psn = ProtoField.uint32("{card}.node.base_psn", "32-bit PSN of the first hole", base.DEC)
local node_rsn = ProtoField.uint32("{card}.node.rsn", "RSN of the first hole", base.DEC)
local node_holes = ProtoField.string("{card}.node.holes", "PSNs missing")
card.fields = {{ card_opcode, {card_names}, node_count, node_encoding, node_psn, node_rsn, node_holes }}

-- Runs of missing packets, {{ offset, length }} from the first hole.
local function runs_of(encoding, count, body)
  local runs = {{}}
  local function add(offset, length)
    local last = runs[#runs]
    if last and last[1] + last[2] == offset then last[2] = last[2] + length
    elseif length > 0 then table.insert(runs, {{ offset, length }}) end
  end
  if encoding == {list} then
    for n = 0, math.min(count, body:len() / 2) - 1 do add(body(2 * n, 2):le_uint(), 1) end
  elseif encoding == {runs} then
    for n = 0, body:len() / 4 - 1 do add(body(4 * n, 2):le_uint(), body(4 * n + 2, 2):le_uint()) end
  elseif encoding == {bitmap} then
    for n = 0, 8 * body:len() - 1 do
      if math.floor(body(math.floor(n / 8), 1):uint() / 2 ^ (n % 8)) % 2 == 1 then add(n, 1) end
    end
  end
  return runs
end

-- The Adamap node of a loss report; returns words for the info column.
local function show_node(tree, node)
  local both = node({count_at}, 2):le_uint()
  local count, encoding = both % {count_values}, math.floor(both / {count_values})
  local base, words = node({psn_at}, 4):le_uint(), {{}}
  for _, run in ipairs(runs_of(encoding, count, node({body_at}, {body_bytes}):tvb())) do
    local first, last = (base + run[1]) % {psns}, (base + run[1] + run[2] - 1) % {psns}
    table.insert(words, first == last and tostring(first) or first .. "-" .. last)
  end
  tree:add(node_count, node({count_at}, 2), count)
  tree:add(node_encoding, node({count_at}, 2), encoding)
  tree:add_le(node_psn, node({psn_at}, 4))
  tree:add_le(node_rsn, node({rsn_at}, 4))
  tree:add(node_holes, node({body_at}, {body_bytes}), table.concat(words, ", "))
  return ", " .. count .. " holes from PSN " .. base % {psns}
end

local bth_opcode = Field.new("infiniband.bth.opcode")
local headers = {card_table}

function card.dissector(tvb, pinfo, tree)
  local found = bth_opcode()
  if found == nil or headers[found.value] == nil then return end
  local at = found.offset
  if at + {bth_bytes} > tvb:len() then return end
  local root = tree:add(card, tvb(at))
  root:add(card_opcode, tvb(at, 1))
  local info = card_opcodes[found.value] .. " QP 0x" .. string.format("%06x", tvb(at + {qp_at}, 3):uint())
    .. " PSN " .. tvb(at + {bth_psn_at}, 3):uint()
  at = at + {bth_bytes}
  for _, header in ipairs(headers[found.value]) do
    if at + header.size > tvb:len() then break end
    show(root, tvb(at, header.size):tvb(), header.fields)
    at = at + header.size
  end
  if found.value == {loss_report} and at + {node_bytes} <= tvb:len() then
    info = info .. show_node(root, tvb(at, {node_bytes}):tvb())
  end
  pinfo.cols.info = info
end
register_postdissector(card)
"""


def _names(values):
    return "{ " + ", ".join(f'[{int(value)}] = "{value.name}"' for value in values) + " }"


def _field(protocol, layout, field, values=None):
    """Return a ProtoField and its place: whole bytes and, if the field is smaller, a mask."""
    first = layout.offset_of(field.name)
    at, end = first // 8, -(-(first + field.width) // 8)
    size = end - at
    whole = field.width == 8 * size
    mask = "nil" if whole else hex(((1 << field.width) - 1) << (8 * end - first - field.width))
    shown = "base.HEX" if field.name in _HEX else "base.DEC"
    name = f"{protocol}.{layout.name.lower()}.{field.name}" if protocol == CARD else f"{protocol}.{field.name}"
    return (f'{{ at = {at}, size = {size}, field = ProtoField.{_KINDS[size]}("{name}", "{field.name}", {shown}, '
            f'{values or "nil"}, {mask}) }}')


def _fields(protocol, layout, values):
    shown = [field for field in layout.fields if not field.name.startswith("_")]
    return "{\n" + "".join(f"  {_field(protocol, layout, field, values.get(field.name))},\n" for field in shown) + "}"


def _all(table, layout):
    count = sum(not field.name.startswith("_") for field in layout.fields)
    return ", ".join(f"{table}[{n}].field" for n in range(1, count + 1))


def _node():
    """Return the places and constants of a node in a loss report, for the template."""
    node, encoding = abi.NODE, abi.Encoding
    return {"encodings": _names(encoding), "list": int(encoding.LIST), "runs": int(encoding.RUNS),
            "bitmap": int(encoding.BITMAP), "count_at": node.shift_of("count") // 8,
            "count_values": 1 << node.by_name["count"].width, "psn_at": node.shift_of("base_psn") // 8,
            "rsn_at": node.shift_of("rsn") // 8, "body_at": node.shift_of("body") // 8,
            "body_bytes": node.by_name["body"].width // 8, "node_bytes": node.size_bytes,
            "psns": 1 << wire.BTH.by_name["psn"].width}


def lua():
    """Return the text of the dissector."""
    layouts = list({header.name: header for headers in OWN_OPCODES.values() for header in headers}.values())
    tables = {layout.name: f"header_{layout.name.lower()}" for layout in layouts}
    return _TEMPLATE.format(
        raw=RAW, card=CARD, ethertype=hex(ETHTYPE_RDMA), header_bytes=HEADER.size_bytes,
        length_at=HEADER.offset_of("length") // 8, seq_at=HEADER.offset_of("seq") // 8, nack=int(Opcode.NACK),
        raw_opcodes=_names(Opcode), nack_reasons=_names(NackReason),
        raw_header=_fields(RAW, HEADER, {"opcode": "raw_opcodes"}), raw_names=_all("raw_header", HEADER),
        with_payload="{ " + ", ".join(f"[{int(o)}] = true" for o in sorted(WITH_PAYLOAD)) + " }",
        card_opcodes=_names(OWN_OPCODES), bth_bytes=wire.BTH.size_bytes, loss_report=int(wire.Opcode.LOSS_REPORT),
        qp_at=wire.BTH.offset_of("dest_qp") // 8, bth_psn_at=wire.BTH.offset_of("psn") // 8, **_node(),
        card_headers="\n".join(f"local {tables[x.name]} = {_fields(CARD, x, {})}" for x in layouts),
        card_names=", ".join(_all(tables[x.name], x) for x in layouts),
        card_table="{\n" + "".join(
            f"  [{int(opcode)}] = {{ " + ", ".join(
                f"{{ size = {header.size_bytes}, fields = {tables[header.name]} }}" for header in headers) + " },\n"
            for opcode, headers in OWN_OPCODES.items()) + "}")


if __name__ == "__main__":
    print(lua(), end="")
