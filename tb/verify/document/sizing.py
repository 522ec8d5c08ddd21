"""Sizes: formulas of the design document, and its tables of worked numbers."""

from math import ceil, inf

from weft.driver.verbs.config import ContextConfig
from weft.hdl.adamap.prefetch.fetches import LINES
from weft.hdl.contract import abi, wire
from weft.hdl.contract.params import PRESETS
from weft.hdl.part.layouts import qp_entry
from weft.tb.app.device.registers import table
from weft.tb.sim.stream.clock import CLOCK_PERIOD_NS

LINE_GBPS = 100
FCS_PREAMBLE_GAP = 4 + 8 + 12     # bytes of Ethernet in addition to the frame: FCS, preamble, gap
LOOK_CYCLES = 10                  # of the prefetcher for a read and its first block; 5 for each further block
READ_NS = 1000
QP_FIELDS = {
    "state": "RESET, RTR, RTS or ERR", "generation": "the part of the QPN that the index leaves",
    "pd": "protection domain", "access": "permitted accesses of the peer",
    "peer_ip": "the only peer whose packets the QP accepts", "psn_guard": "largest permitted jump of its PSNs"}
LOSSES = ("1e-4", "1e-3", "1e-2", "1e-1")


def packet_ns(pmtu, opcode=wire.Opcode.WRITE_ONLY):
    """Return the time of a full packet on the wire."""
    return (pmtu + wire.header_bytes(opcode) + wire.ICRC_BYTES + FCS_PREAMBLE_GAP) * 8 / LINE_GBPS


def holes_per_node(loss, pmtu=None, age_ns=inf):
    """Return the holes that a node gets with random loss: the capacity of an encoding, or the losses within its age."""
    offsets = 1 << abi.OFFSET_BITS
    holes = max(1, min(abi.LIST_HOLES, 1 + loss * offsets), loss * abi.NODE_HOLES_MAX)
    return holes if age_ns == inf else min(holes, 1 + loss * age_ns / packet_ns(pmtu))


def prefetch(node_ns, read_ns=READ_NS):
    """Return prefetch depth n, watermark and blocks per read for a list of which each node lasts ``node_ns``.

    A read returns as many blocks as there was space for when it was issued, and one read is outstanding at a time.
    During the read the matcher uses the nodes of earlier reads; the result exceeds the requirement by at most one node.
    It is None if no depth hides the reads, since a read returns at most 4 blocks.
    """
    for blocks in range(1, LINES + 1):
        reading = read_ns + (LOOK_CYCLES + 5 * (blocks - 1)) * CLOCK_PERIOD_NS
        if ceil(reading / node_ns) <= blocks:
            return (2 if blocks == 1 else 2 * blocks + 1), blocks + 1, blocks
    return None


def pool_blocks(loss, pmtu, rtt_ns, age_ns, qps=1):
    """Return the blocks in use on a full link: nodes per nanosecond times the time a hole is open, plus one per QP."""
    nodes = loss / packet_ns(pmtu) / holes_per_node(loss, pmtu, age_ns)
    return ceil(nodes * rtt_ns / (1 - loss)) + qps


def pool_size(blocks_of_one, qps, alpha):
    """Return the blocks of a pool in which each of ``qps`` QPs may hold ``blocks_of_one`` at the same time."""
    return ceil(qps * blocks_of_one + blocks_of_one / alpha)


def longest_rtt_ns(pmtu):
    """Return the longest round trip that one QP fills: it has less than 2^23 packets outstanding."""
    return (wire.PSN_OUTSTANDING_MAX - 1) * packet_ns(pmtu)


def bytes_of(number):
    """Format a number of bytes in the largest binary unit of which it has at least one."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if round(number) < 1024 or unit == "GiB":
            return f"{number:,.0f} {unit}" if number >= 10 else f"{number:.1f}".removesuffix(".0") + f" {unit}"
        number /= 1024
    raise AssertionError


def prefetch_table():
    """Return the table of depth and watermark for retransmissions that arrive back to back."""
    def cell(holes, pmtu):
        found = prefetch(holes * packet_ns(pmtu, wire.Opcode.RETX_WRITE))
        return f"{found[0]} / {found[1]}" if found else "–"

    pmtus = list(wire.PMTUS.values())
    return table(("holes per node", *(f"PMTU {pmtu}" for pmtu in pmtus)), [
        (holes, *(cell(holes, pmtu) for pmtu in pmtus)) for holes in (1, 5, abi.LIST_HOLES, 64, abi.NODE_HOLES_MAX)])


def holes_table():
    """Return the table of holes per node by loss: for nodes without age limit, and with the default age."""
    age = ContextConfig.node_age_ns
    return table(("", *(f"loss {loss}" for loss in LOSSES)), [
        ("no age", *(f"{holes_per_node(float(loss)):.1f}" for loss in LOSSES)),
        (f"{age} ns, PMTU 1024", *(f"{holes_per_node(float(loss), 1024, age):.1f}" for loss in LOSSES)),
        (f"{age} ns, PMTU 256", *(f"{holes_per_node(float(loss), 256, age):.1f}" for loss in LOSSES))])


def pool_table():
    """Return the table of blocks in use on a full link with the default age of a node."""
    def cell(rtt_ms, loss):
        blocks = pool_blocks(float(loss), 1024, rtt_ms * 1e6, ContextConfig.node_age_ns)
        return f"{blocks:,} ({bytes_of(blocks * abi.BLOCK_BYTES)})"

    return table(("RTT", *(f"loss {loss}" for loss in LOSSES)), [
        (f"{rtt_ms:g} ms", *(cell(rtt_ms, loss) for loss in LOSSES)) for rtt_ms in (0.02, 1, 10, 100)])


def psn_table():
    """Return the table of limits that result from the 24 bits of a PSN."""
    rows = []
    for pmtu in wire.PMTUS.values():
        wrap = (1 << wire.PSN_BITS) * packet_ns(pmtu)
        rows.append((pmtu, bytes_of(wire.PSN_OUTSTANDING_MAX * pmtu), f"{longest_rtt_ns(pmtu) / 1e9:.2f} s",
                     f"{wrap / 1e9:.2f} s"))
    return table(("PMTU", "most bytes in flight on a QP", "longest RTT one QP fills", "PSNs come round after"), rows)


def default_pool():
    """Return a sentence with the default pool of a context."""
    config = ContextConfig()
    total = config.extent_bytes * config.max_extents
    return (f"By default the buffer starts with one extent of {bytes_of(config.extent_bytes)} and grows to "
            f"{config.max_extents}: {bytes_of(total)}, {total // abi.BLOCK_BYTES:,} blocks.")


def qp_entry_table():
    """Return the table of the bits of an entry of the QP table."""
    entries = [{name: field.shape.width for name, field in qp_entry(card)} for card in PRESETS.values()]
    return table(("field", *(f"`{name}`" for name in PRESETS), "what for"), [
        *((f"`{name}`", *(entry[name] for entry in entries), text) for name, text in QP_FIELDS.items()),
        ("all", *(sum(entry.values()) for entry in entries), "")])


def preset_table():
    """Return the table of the sizes of the presets."""
    def row(name, value):
        return (name, *(value(card) for card in PRESETS.values()))

    def extent(card):
        return ((1 << card.extent_blocks_log2) - 2) * abi.BLOCK_BYTES // abi.PAGE_4K * abi.PAGE_4K

    return table(("", *(f"`{name}`" for name in PRESETS)), [
        row("queue pairs", lambda card: f"{card.qps:,}"),
        row("memory regions", lambda card: f"{card.mrs:,}"),
        row("memory mapped by 4 KiB pages", lambda card: bytes_of(card.ptes * abi.PAGE_4K)),
        row("memory mapped by 2 MiB pages", lambda card: bytes_of(card.ptes * abi.PAGE_2M)),
        row("bits of a QP's bitmap window", lambda card: card.window_bits),
        row("QPs with an open node (builder)", lambda card: card.builder_slots),
        row("nodes in the head cache", lambda card: card.cache_entries),
        row("largest prefetch depth", lambda card: card.prefetch_depth_max),
        row("retransmissions that may wait for a node", lambda card: card.match_queue),
        row("extents of the knitting buffer", lambda card: card.knit_extents),
        row("largest extent", lambda card: bytes_of(extent(card))),
        row("largest knitting buffer", lambda card: bytes_of(extent(card) * card.knit_extents)),
        row("nodes in it", lambda card: f"{extent(card) * card.knit_extents // abi.BLOCK_BYTES:,}"),
        row("MSI-X vectors", lambda card: card.msix_vectors),
        row("PCIe tags: payload, lines", lambda card: f"{card.bulk_tags}, {card.line_tags}"),
        row("bytes of payload in descriptors", lambda card: card.inline_bytes),
        row("descriptors that the pacer holds", lambda card: f"{card.pace_descriptors:,}"),
    ])
