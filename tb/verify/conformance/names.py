"""Substitute for the package pyverbs: names of the driver, and placeholders for those that the driver does not have."""

import errno
import importlib
import itertools
import sys
import types

from weft.driver.terms.errors import NotSupported, PyverbsRDMAError

# Modules of pyverbs, each with the modules of the driver that hold its names.
MODULES = {
    "pyverbs_error": ("terms.errors",),
    "enums": ("verbs.enums",),
    "device": ("verbs.device",),
    "pd": ("verbs.pd",),
    "mr": ("verbs.mr",),
    "cq": ("verbs.cq", "verbs.cq_ex", "terms.wc"),
    "srq": ("verbs.srq",),
    "qp": ("verbs.qp",),
    "wr": ("verbs.wr",),
    "addr": ("verbs.addr",),
    "utils": ("verbs.text",),
    "cmid": ("cm.cmid",),
    "cm_enums": ("cm.enums",),
    "fork": ("verbs.fork",),
    **dict.fromkeys(("base", "dma_util", "dmabuf", "flow", "libibverbs", "mem_alloc", "spec", "wq", "xrcd", "providers",
                     "providers.efa", "providers.efa.efa_enums", "providers.efa.efadv", "providers.mlx5"), ()),
    **dict.fromkeys((f"providers.mlx5.{name}" for name in (
        "dr_action", "dr_domain", "dr_matcher", "dr_rule", "dr_table", "mlx5_enums", "mlx5dv", "mlx5dv_crypto",
        "mlx5dv_flow", "mlx5dv_mkey", "mlx5dv_objects", "mlx5dv_sched")), ()),
}
NUMBERS = ("IBV_", "_IBV_", "RDMA_", "EFA", "_EFA", "MLX5", "_MLX5")     # prefixes of flags and numbers
PASSIVE = ("Attr", "AttrEx", "Info", "InitAttr", "ParentDomainContext")  # suffixes of plain attribute classes
_bits = itertools.count(40)


class Absent:
    """Class of pyverbs that the driver does not have: its constructor raises :class:`NotSupported`."""

    def __init__(self, *args, **kwargs):
        raise NotSupported(f"{type(self).__name__} does not exist here")


class Passive:
    """Attributes for the constructor of a class that the driver does not have."""

    def __init__(self, *args, **kwargs):
        vars(self).update(kwargs)


class NamedModule(types.ModuleType):
    """Module of pyverbs: names of the driver, and :class:`Absent` for other names that look like a class."""

    def __getattr__(self, name):
        for part in self.__parts__:
            if hasattr(part, name):
                return getattr(part, name)
        if name.startswith("__"):
            raise AttributeError(name)
        if name.startswith(NUMBERS):
            number = 1 << next(_bits)      # a bit that no flag of the driver uses
            setattr(self, name, number)
            return number
        if name.startswith("ibv_"):
            return ()      # members of an enumeration
        kind = type(name, (Passive if name.endswith(PASSIVE) else Absent,), {})
        setattr(self, name, kind)
        return kind


def _find(path):
    try:
        return importlib.import_module(f"weft.driver.{path}")
    except ModuleNotFoundError:
        return types.SimpleNamespace()


def install(**more):
    """Put ``pyverbs`` into ``sys.modules``; ``more`` maps modules to further functions that belong to them."""
    package = NamedModule("pyverbs")
    package.__path__, package.__parts__ = [], ()
    sys.modules["pyverbs"] = package
    more.setdefault("base", {})["PyverbsRDMAErrno"] = lambda text: PyverbsRDMAError(text, errno.EIO)
    for name, paths in MODULES.items():
        module = NamedModule(f"pyverbs.{name}")
        module.__path__ = []
        module.__parts__ = [_find(path) for path in paths]
        vars(module).update(more.get(name, {}))
        sys.modules[f"pyverbs.{name}"] = module
        owner, _, last = f"pyverbs.{name}".rpartition(".")
        setattr(sys.modules[owner], last, module)
