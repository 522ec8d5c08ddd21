#!/bin/busybox sh
# First process of the guest: binds the cards to vfio-pci, serves them as hosts a and b, and runs programs on both.
b=/bin/busybox
$b mount -t proc p /proc; $b mount -t sysfs s /sys; $b mount -t devtmpfs d /dev
export PYTHONPATH=/weft PYTHONDONTWRITEBYTECODE=1 HOME=/tmp WEFT_BUILD=/weft/build WEFT_LOG=1
for m in irqbypass vfio vfio_virqfd vfio_iommu_type1 vfio-pci-core vfio-pci; do
  $b insmod /lib/$m.ko || echo "= failed insmod $m"
done
$b ifconfig lo up
cards=
for d in /sys/bus/pci/devices/*; do
  [ "$($b cat $d/vendor):$($b cat $d/device)" = 0x1234:0x5746 ] || continue
  card=$($b basename $d)
  echo vfio-pci > $d/driver_override
  echo $card > /sys/bus/pci/drivers_probe
  cards=$cards${cards:+,}$card
done
python3.11 /weft/serve_program.py devices | $b sed 's/^/= card /'
umask 0
python3.11 /weft/serve_program.py --backend pci --device $cards --delay-us 50000 --folder /tmp/hosts > /tmp/serve 2>&1 &
daemon=$!
until [ -S /tmp/hosts/b.sock ] || ! kill -0 $daemon; do $b usleep 50000; done

# Run a program on a host; its output is shown if it fails.
on() {
  host=$1 log=/tmp/on-$1; shift
  WEFT_SOCKET=/tmp/hosts/$host.sock LD_LIBRARY_PATH=/weft/build/ibverbs LD_PRELOAD=libweft-preload.so \
    $b timeout 90 "$@" > $log 2>&1
}
show() { for host in a b; do $b tail -n 12 /tmp/on-$host | $b sed "s/^/= $host: /"; done; }
listening() { $b grep -q ":4853 .* 0A " /proc/net/tcp /proc/net/tcp6; }     # 18515, of perftest and the examples
# Run a program on both hosts; they meet over TCP.
pair() {
  name=$1
  on b "$@" & server=$!
  until listening || ! kill -0 $server; do $b usleep 50000; done
  on a "$@" 127.0.0.1 && wait $server && echo "= passed $name" || { echo "= failed $name"; show; }
}
# The refresh makes the numbers exact: otherwise each processor adds its part once a second.
pinned() { echo 1 > /proc/sys/vm/stat_refresh; while read -r key value; do case $key in nr_foll_pin_*) echo -n "$value ";; esac; done < /proc/vmstat; }

echo "= pins at first $(pinned)"
pair ibv_rc_pingpong -g 0 -c -n 20
pair ib_write_bw -s 65536 -n 20
$b grep 65536 /tmp/on-a | $b sed 's/^/= figures /'
on b rping -s -C 3 -v & server=$!
tries=0
until on a rping -c -a 10.0.0.2 -C 3 -v || [ $tries = 20 ]; do tries=$((tries + 1)); $b usleep 100000; done
wait $server && $b grep -q "ping data: rdma-ping-2" /tmp/on-a && echo "= passed rping" || { echo "= failed rping"; show; }

# A program that is killed while traffic runs leaves the card to the next one.
on b ib_write_bw -s 65536 --run_infinitely & server=$!
until listening || ! kill -0 $server; do $b usleep 50000; done
on a ib_write_bw -s 65536 --run_infinitely 127.0.0.1 & client=$!
until $b grep -q "65536" /tmp/on-a || ! kill -0 $client; do $b usleep 50000; done
$b killall -9 ib_write_bw
wait $client $server
pair ibv_rc_pingpong -g 0 -c -n 3

# Memory of a user that the daemon was not started to trust is refused.
on a python3.11 -c "import os; os.setuid(1000); os.execvp('ibv_rc_pingpong', ['ibv_rc_pingpong', '-g', '0'])"
$b grep -h "those of this user may not" /tmp/on-a | $b sed 's/^/= /'

echo "= pins at last $(pinned)"
kill -INT $daemon; wait $daemon; echo "= daemon ended with $?"
echo "= pins at end $(pinned)"
$b sed 's/^/= serve /' /tmp/serve
$b dmesg | $b grep -E "DMAR.*fault|AER:|segfault|vfio.*(warn|err|fail)" | $b sed 's/^/= kernel /'
echo "= end"
$b poweroff -f
