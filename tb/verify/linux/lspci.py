"""Configuration space in a guest against its description: the bytes, the decoding of ``lspci -vvv``, complaints."""

import re

from weft.hdl.contract import abi, pci

# QEMU shows an endpoint on the root bus as one that is integrated there, without a link.
OF_QEMU = {pci.EXPRESS + at for at in (2, *range(12, 20), *range(44, 52))}
# The guest has neither a list of names nor an index of modules.
HARMLESS = ("libkmod", "pci.ids")
KERNEL_COMPLAINTS = re.compile(r"warn|error|fail|fault|\binvalid\b|unable|can't|no space", re.IGNORECASE)


def expected(function):
    """Return what ``lspci -vvv`` prints for a function, as regular expressions."""
    bar = function.bars[0]
    return (
        rf" Class {function.class_code >> 8:04x}: (Device )?{function.vendor_id:04x}:{function.device_id:04x}|"
        rf"Infiniband controller.*: Device {function.vendor_id:04x}:{function.device_id:04x}",
        rf"Subsystem: (Device )?{function.vendor_id:04x}:{function.device_id:04x}",
        rf"Region {bar.index}: Memory at [0-9a-f]+ \({'64' if bar.is_64bit else '32'}-bit, "
        rf"{'' if bar.prefetchable else 'non-'}prefetchable\).* \[size={bar.size >> 10}K\]",
        rf"Capabilities: \[{pci.POWER_MANAGEMENT:x}\] Power Management version 3",
        r"D1- D2- .*PME\(D0-,D1-,D2-,D3hot-,D3cold-\)", r"Status: D[03] NoSoftRst\+",
        rf"Capabilities: \[{pci.MSIX:x}\] MSI-X: Enable[-+] Count={function.msix_vectors} Masked-",
        rf"Vector table: BAR={bar.index} offset={abi.MSIX_TABLE_OFFSET:08x}",
        rf"PBA: BAR={bar.index} offset={abi.MSIX_PBA_OFFSET:08x}",
        rf"Capabilities: \[{pci.EXPRESS:x}\] Express \(v2\) (Root Complex Integrated )?Endpoint",
        rf"DevCap:\s+MaxPayload {function.max_payload_bytes} bytes",
        rf"ExtTag{'+' if function.extended_tags else '-'}".replace("+", r"\+"), r"FLReset\+",
        rf"Capabilities: \[{pci.ERROR_REPORTING:x} v2\] Advanced Error Reporting",
        r"CEMsk:.*AdvNonFatalErr\+")


def unexpected(found, function):
    """Return sentences about what a guest found that is not as described.

    Parameters
    ----------
    found : dict
        Value of the program ``space``.
    function : PciFunction
    """
    text, problems = found["lspci"], []
    if found["status"]:
        problems.append(f"lspci ended with {found['status']}")
    problems += [f"lspci does not show {pattern}" for pattern in expected(function) if not re.search(pattern, text)]
    problems += [f"lspci shows {line.strip()}" for line in text.splitlines()
                 if "!!!" in line or "<access denied>" in line or "Unknown" in line or "TAbort+" in line]
    problems += [line for line in found["complaints"] if not any(word in line for word in HARMLESS)]
    problems += [f"kernel: {line}" for line in found["kernel"] if KERNEL_COMPLAINTS.search(line)]
    space = bytes.fromhex(found["config"])
    values, writable, clearable = pci.configuration(function)
    differing = {at for at in range(len(space)) if (space[at] ^ values[at]) & ~writable[at] & ~clearable[at] & 0xFF}
    if len(space) != pci.CONFIG_BYTES or differing - OF_QEMU:
        problems.append(f"configuration space differs at {sorted(map(hex, differing - OF_QEMU))}")
    return problems
