#!/bin/busybox sh
# First process of the guest: sets up network and rxe, then runs the peer, which reads its orders from the console.
b=/bin/busybox
$b mount -t proc p /proc; $b mount -t sysfs s /sys; $b mount -t devtmpfs d /dev
$b stty raw -echo < /dev/console
export LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu PATH=/bin
for m in crc32_generic udp_tunnel ip6_udp_tunnel ib_core ib_uverbs rdma_rxe e1000; do
  $b insmod /lib/$m.ko || echo "= failed insmod $m"
done
ip() { $b ip "$@"; }
ip link set lo up
ip addr add 10.0.0.11/24 dev eth0; ip link set eth0 mtu 4500 up
ip addr add 10.0.2.15/24 dev eth1; ip link set eth1 up
for _ in $($b seq 100); do     # the link comes up late, and address resolution does not wait that long
  [ "$($b cat /sys/class/net/eth0/carrier)" = 1 ] && break
  $b sleep 0.1
done
rdma link add rxe0 type rxe netdev eth0 || echo "= failed rxe"
$b mkdir -p /dev/infiniband
for f in /sys/class/infiniband_verbs/uverbs*; do
  n=$($b basename $f)
  [ -e /dev/infiniband/$n ] || { IFS=: read major minor < $f/dev; $b mknod /dev/infiniband/$n c $major $minor; }
done
peer < /dev/console > /dev/console 2>&1
$b poweroff -f
