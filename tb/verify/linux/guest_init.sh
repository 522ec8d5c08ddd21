#!/bin/busybox sh
# First process of the guest: mounts the file systems, loads the modules of VFIO, and runs the agent.
b=/bin/busybox
$b mount -t proc p /proc; $b mount -t sysfs s /sys; $b mount -t devtmpfs d /dev
export PYTHONPATH=/weft PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
for m in irqbypass vfio vfio_virqfd vfio_iommu_type1 vfio-pci-core vfio-pci; do
  $b insmod /lib/$m.ko || echo "failed insmod $m"
done
python3.11 /weft/guest_agent.py
$b poweroff -f
