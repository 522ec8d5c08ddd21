"""Mapping of memory of another process, a program, for the card."""

import enum
from dataclasses import dataclass


class MappingMethod(enum.IntEnum):
    """Part of the program in the mapping of its memory.

    The kernel maps only memory of the process that asks for it. So if the card has an IOMMU, a program maps its pages
    itself, at the addresses that the driver assigned.
    """

    BACK_END = 0        # no part: the back end reads and writes the program's memory
    VFIO = 1            # it maps each region through the container, VFIO_IOMMU_MAP_DMA
    IOMMUFD = 2         # likewise, IOMMU_IOAS_MAP
    LOCKED = 3          # it locks the pages before the registration: the card has no IOMMU


@dataclass(frozen=True)
class ProgramMapping:
    """Method, and what the program needs for it.

    Attributes
    ----------
    method : MappingMethod
    file : int
        Descriptor of the VFIO container or of /dev/iommu, else -1.
    space : int
        Address space of iommufd.
    """

    method: MappingMethod = MappingMethod.BACK_END
    file: int = -1
    space: int = 0
