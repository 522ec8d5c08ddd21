#!/bin/sh
# What each container does: steps.sh cards|server|client. It needs no privilege and no device.
#   SOCKETS   folder of the hosts' sockets, which all three have     CAPTURES  folder for the captures, of cards alone
#   SERVER    where the client finds the server by TCP               ITERATIONS  messages of ib_write_bw
set -eu
: "${SOCKETS:=/run/weft}" "${CAPTURES:=captures}" "${SERVER:=server}" "${ITERATIONS:=500}"

within() { # SECONDS COMMAND...: until it succeeds
  left=$(($1 * 5))
  shift
  until "$@"; do
    left=$((left - 1))
    if [ "$left" -le 0 ]; then exit 1; fi
    sleep 0.2
  done
}

case $1 in
cards)
  exec weft serve --hosts a,b --loss 0.01 --folder "$SOCKETS" --capture "$CAPTURES"
  ;;
server)
  export WEFT_SOCKET="$SOCKETS/b.sock"
  within 60 test -S "$WEFT_SOCKET"
  weft-run ib_write_bw -F -n "$ITERATIONS"
  weft-run rping -s -C 10
  ;;
client)
  export WEFT_SOCKET="$SOCKETS/a.sock"
  within 60 test -S "$WEFT_SOCKET"
  within 60 weft-run ib_write_bw -F -n "$ITERATIONS" "$SERVER"
  within 60 weft-run rping -c -a 10.0.0.2 -C 10 -v -V # the card of host b
  ;;
*)
  echo "steps.sh cards|server|client" >&2
  exit 2
  ;;
esac
