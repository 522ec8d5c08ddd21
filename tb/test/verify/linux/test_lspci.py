"""Comparison of a guest's configuration space with its description, by what lspci of Debian 12 prints for it."""

import dataclasses

import pytest

from weft.hdl.contract import pci
from weft.hdl.contract.params import preset
from weft.tb.test.verify.document.commands import DOCUMENTS, blocks
from weft.tb.verify.linux.cases import unexpected
from weft.tb.verify.linux.guest_programs import LSPCI

FUNCTION = pci.card_function(preset("test"))
SHOWN = """\
00:01.0 Infiniband controller: Device 1234:5746
	Subsystem: Device 1234:5746
	Control: I/O- Mem- BusMaster- SpecCycle- MemWINV- VGASnoop- ParErr- Stepping- SERR- FastB2B- DisINTx-
	Status: Cap+ 66MHz- UDF- FastB2B- ParErr- DEVSEL=fast >TAbort- <TAbort- <MAbort- >SERR- <PERR- INTx-
	Region 0: Memory at febe0000 (64-bit, non-prefetchable) [disabled] [size=64K]
	Capabilities: [40] Power Management version 3
		Flags: PMEClk- DSI- D1- D2- AuxCurrent=0mA PME(D0-,D1-,D2-,D3hot-,D3cold-)
		Status: D3 NoSoftRst+ PME-Enable- DSel=0 DScale=0 PME-
	Capabilities: [60] MSI-X: Enable- Count=8 Masked-
		Vector table: BAR=0 offset=00008000
		PBA: BAR=0 offset=0000c000
	Capabilities: [70] Express (v2) Root Complex Integrated Endpoint, MSI 00
		DevCap:	MaxPayload 1024 bytes, PhantFunc 0
			ExtTag+ RBE+ FLReset+ SlotPowerLimit 0W
	Capabilities: [100 v2] Advanced Error Reporting
		UESta:	DLP- SDES- TLP- FCP- CmpltTO- CmpltAbrt- UnxCmplt- RxOF- MalfTLP- ECRC- UnsupReq- ACSViol-
		CEMsk:	RxErr- BadTLP- BadDLLP- Rollover- Timeout- AdvNonFatalErr+
"""


def found(**changes):
    """Return the value of the guest's program ``space``."""
    return {"config": pci.configuration(FUNCTION).values.hex(), "lspci": SHOWN, "status": 0,
            "complaints": ["lspci: Unable to load libkmod resources: error -2"],
            "kernel": ["[    9.766463] DMAR: dmar0: Using Queued invalidation"]} | changes


def test_a_card_as_described_is_accepted():
    assert unexpected(found(), FUNCTION) == []


def differing_byte(at):
    space = bytearray(pci.configuration(FUNCTION).values)
    space[at] ^= 1
    return bytes(space).hex()


@pytest.mark.parametrize(("changes", "problem"), [
    ({"config": differing_byte(0)}, "differs at ['0x0']"), ({"config": "00" * 256}, "configuration space differs"),
    ({"lspci": SHOWN.replace("NoSoftRst+", "NoSoftRst-")}, "NoSoftRst"),
    ({"lspci": SHOWN.replace("FLReset+", "FLReset-")}, "FLReset"),
    ({"lspci": SHOWN.replace("[size=64K]", "[size=4K]")}, "Region 0"),
    ({"lspci": SHOWN + "\tCapabilities: [80] !!! Unknown\n"}, "!!! Unknown"),
    ({"complaints": ["pcilib: sysfs_read_vpd: read failed"]}, "sysfs_read_vpd"), ({"status": 1}, "ended with 1"),
    ({"kernel": ["vfio-pci 0000:00:01.0: BAR 0: can't reserve [mem]"]}, "can't reserve"),
    ({"kernel": ["DMAR: [DMA Read NO_PASID] fault addr 0x0"]}, "fault addr")])
def test_each_difference_is_reported(changes, problem):
    assert problem in "; ".join(unexpected(found(**changes), FUNCTION))


def test_another_description_is_not_accepted():
    for changes in ({"msix_vectors": 4}, {"extended_tags": False}, {"max_payload_bytes": 512}, {"device_id": 1}):
        assert unexpected(found(), dataclasses.replace(FUNCTION, **changes))


def test_the_guest_runs_the_command_of_the_page():
    lines = [line for block in blocks(DOCUMENTS["docs/hardware.md"]) for line in block]
    assert [line for line in lines if line.startswith("lspci")] == [" ".join(LSPCI)]
