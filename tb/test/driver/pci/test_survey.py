"""Survey of the cards of a machine: each missing step, in the order in which they are taken."""

import os
import resource
import stat

import pytest

from weft.driver.pci import survey as module
from weft.driver.pci.survey import survey
from weft.driver.pci.sysfs import SysfsFunction, cards
from weft.driver.terms.errors import InvalidValue, PyverbsRDMAError
from weft.tb.test.driver.pci.fake_sysfs import FakeTree

ADDRESS = "0000:03:00.0"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_may_use", lambda path: bool(path.exists() and path.stat().st_mode & stat.S_IWUSR))
    return FakeTree(tmp_path)


def missing(tree):
    """Return what is missing for the only card."""
    found, = survey(tree.sys, tree.dev)
    assert str(found).startswith(f"{ADDRESS}  driver {found.driver or 'none'}, ")
    assert str(found).endswith(found.missing) and "\n" not in str(found)
    return found.missing


def test_a_machine_without_cards(tree, tmp_path):
    assert list(survey(tree.sys, tree.dev)) == [] == list(survey(tmp_path / "nothing"))
    tree.function("0000:00:02.0", device=0x1111)
    assert list(survey(tree.sys, tree.dev)) == []


def test_functions_are_found_by_address(tree):
    for address in ("0000:81:00.0", ADDRESS, "10000:01:00.1"):
        tree.function(address)
    assert [card.address for card in cards(tree.sys)] == sorted(["0000:81:00.0", ADDRESS, "10000:01:00.1"])
    for text in ("3:0.0", "../0000:03:00.0", "", "0000:03:00.8", "0000:03:00.0\n"):
        with pytest.raises(InvalidValue, match="is not an address of a PCI function"):
            SysfsFunction(text, tree.sys)
    with pytest.raises(PyverbsRDMAError, match="there is no PCI function 0000:03:01.0; `weft devices`"):
        SysfsFunction("0000:03:01.0", tree.sys)


def test_steps_to_vfio(tree):
    path = tree.function(ADDRESS, driver="other", group=7)
    bind = f"echo vfio-pci > {tree.sys}/bus/pci/devices/{ADDRESS}/driver_override; " \
           f"echo {ADDRESS} > {tree.sys}/bus/pci/drivers_probe"
    assert missing(tree) == (f"it is not bound to vfio-pci; as root: modprobe vfio-pci; echo {ADDRESS} > "
                             f"{tree.sys}/bus/pci/devices/{ADDRESS}/driver/unbind; {bind}")
    (path / "driver").unlink()
    tree.driver("vfio-pci")
    assert missing(tree) == f"it is not bound to vfio-pci; as root: {bind}"
    (path / "driver").symlink_to(tree.driver("vfio-pci"))
    tree.function("0000:03:00.1", device=1, driver="nvme", group=7)
    tree.function("0000:00:01.0", device=2, driver="pcieport", group=7, kind=0x060400)      # a bridge may stay
    assert "0000:03:00.1 is in the same IOMMU group and bound to nvme; as root: echo 0000:03:00.1" in missing(tree)
    (tree.sys / "devices/pci0000:00/0000:03:00.1/driver").unlink()
    assert missing(tree) == "there is no /dev/vfio; as root: modprobe vfio"
    tree.vfio("vfio", "7")
    (tree.dev / "vfio/7").chmod(0o000)
    assert f"{tree.dev}/vfio/7 is not yours; as root: chown " in missing(tree)
    (tree.dev / "vfio/7").chmod(0o600)
    assert missing(tree) == ""
    found, = survey(tree.sys, tree.dev)
    assert str(found) == f"{ADDRESS}  driver vfio-pci, IOMMU group 7: ready, by VFIO"


def test_steps_to_iommufd(tree):
    """The files are those that open_access uses, not the group's."""
    path = tree.function(ADDRESS, driver="vfio-pci", group=7)
    (path / "vfio-dev/vfio3").mkdir(parents=True)
    tree.vfio("vfio", "7", "devices/vfio3")
    assert missing(tree) == ""                  # a kernel without iommufd: by the group
    iommufd, device = tree.dev / "iommu", tree.dev / "vfio/devices/vfio3"
    iommufd.write_bytes(b"")
    (tree.dev / "vfio/7").unlink()
    assert missing(tree) == ""
    for file in (iommufd, device):
        file.chmod(0o000)
        assert missing(tree).startswith(f"{file} is not yours; as root: chown ")
        file.chmod(0o600)


def test_steps_to_the_mode_without_an_iommu(tree, monkeypatch):
    path = tree.function(ADDRESS, driver="vfio-pci", group=7)
    (path / "iommu_group/name").write_text("vfio-noiommu\n")
    tree.vfio("vfio")
    assert f"{tree.dev}/vfio/noiommu-7 is not yours" in missing(tree)
    tree.vfio("noiommu-7")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "physical addresses need root" in missing(tree)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "no huge page is free" in missing(tree)
    tree.huge_pages(16)
    found, = survey(tree.sys, tree.dev)
    assert str(found) == f"{ADDRESS}  driver vfio-pci, no IOMMU: ready, by VFIO with physical addresses"


def test_devices_of_other_buses_in_the_group(tree):
    tree.function(ADDRESS, driver="vfio-pci", group=7)
    tree.vfio("vfio", "7")
    (tree.sys / "kernel/iommu_groups/7/devices/arm-smmu.0").mkdir()
    assert missing(tree) == ""


def test_too_little_memory_may_be_locked(tree, monkeypatch):
    tree.function(ADDRESS, driver="vfio-pci", group=7)
    tree.vfio("vfio", "7")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (8 << 20, 8 << 20))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "may lock 8388608 bytes of memory" in missing(tree) and "prlimit" in missing(tree)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert missing(tree) == ""


def test_steps_without_an_iommu(tree):
    path = tree.function(ADDRESS, driver="other")
    assert "it is bound to other, and there is no IOMMU for VFIO" in missing(tree)
    (path / "driver").unlink()
    (path / "resource0").chmod(0o000)
    assert "resource0 is not yours, and physical addresses need root" in missing(tree)
    (path / "resource0").chmod(0o600)
    for free in (None, 0):
        if free is not None:
            tree.huge_pages(free)
        assert "no huge page is free" in missing(tree) and "nr_hugepages" in missing(tree)
    tree.huge_pages(16)
    found, = survey(tree.sys, tree.dev)
    assert str(found) == f"{ADDRESS}  driver none, no IOMMU: ready, by physical addresses, polling"
