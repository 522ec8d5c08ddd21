"""Names of the coverage bins of a soak; each run reports the count of each bin."""

from weft.hdl.contract import wire
from weft.tb.sim.pcie.faults import READ_FAULTS

REMOVAL = "surprise removal"
OUTAGES = ("card reset", "function reset", "hot reset", "bus master cleared", REMOVAL)
AREAS = ("send entries", "retransmission entries", "commands", "raw frame entries", "nodes", "page lists")
MANY_LISTS = "more lists than cache entries"
NETWORK = DROPS, TRIMS, MARKS, PAUSES, CUTS = ("drops of a switch", "packets trimmed by a switch", "marks of a switch",
                                               "pauses of a switch", "a cut path")

BINS = (
    "preset test", "preset basic", MANY_LISTS,
    *(f"path MTU {size}" for size in wire.PMTUS.values()), "different path MTUs at once",
    "QP churn", "MR churn", "extent added", "extent given up",
    "stalls, reordering and damage at once",
    "PSN wrap", "RSN wrap", "generation wrap", "ticket wrap",
    *OUTAGES,
    *(f"PCIe fault, {kind}" for kind in READ_FAULTS),
    *(f"{how} {area}" for area in AREAS for how in ("damaged", "unreadable")),
    "honest QPs beside hostile frames",
    *NETWORK,
)
