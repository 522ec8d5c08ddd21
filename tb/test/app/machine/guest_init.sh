#!/bin/busybox sh
# First process of the guest: binds the card to vfio-pci, runs the program, and unbinds the card.
b=/bin/busybox
$b mount -t proc p /proc; $b mount -t sysfs s /sys; $b mount -t devtmpfs d /dev
export PYTHONPATH=/weft PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
echo "= init"
for m in irqbypass vfio vfio_virqfd vfio_iommu_type1 vfio-pci-core vfio-pci; do
  $b insmod /lib/$m.ko || echo "= failed insmod $m"
done
for d in /sys/bus/pci/devices/*; do
  [ "$($b cat $d/vendor):$($b cat $d/device)" = 0x1234:0x5746 ] && card=$($b basename $d)
done
python3.11 /weft/guest_program.py survey
echo vfio-pci > /sys/bus/pci/devices/$card/driver_override
echo $card > /sys/bus/pci/drivers_probe
python3.11 /weft/guest_program.py survey
for run in 1 2; do python3.11 /weft/guest_program.py $card; done
echo $card > /sys/bus/pci/drivers/vfio-pci/unbind && [ ! -e /sys/bus/pci/devices/$card/driver ] && echo "= unbound"
echo "= space $($b hexdump -v -e '1/1 "%02x"' /sys/bus/pci/devices/$card/config)"
$b dmesg | $b grep -iE "vfio|DMAR.*fault|AER|$card.*(warn|err|fail)" | $b sed 's/^/= kernel /'
echo "= end"
$b poweroff -f
