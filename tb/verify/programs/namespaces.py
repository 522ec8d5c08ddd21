"""Two network namespaces connected by a veth pair, created without privileges, as hosts without a card.

The first belongs to a user namespace in which the user is root; the second is created inside it. Both exist as long as
the process that created them.
"""

import contextlib
import shutil
import subprocess

ADDRESSES = {"a": "10.77.0.1", "b": "10.77.0.2"}
NEEDED = ("unshare", "nsenter", "ip")
_SCRIPT = f"""
set -e
unshare --net sh -c 'echo made; exec sleep infinity' > /dev/null &
second=$!
while [ "$(readlink /proc/$second/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
ip link add cable type veth peer name cable netns $second
ip link set lo up
ip address add {ADDRESSES["a"]}/24 dev cable
ip link set cable up
nsenter -t $second -n ip link set lo up
nsenter -t $second -n ip address add {ADDRESSES["b"]}/24 dev cable
nsenter -t $second -n ip link set cable up
echo $$ $second
read end || true
kill $second
"""


class NoNamespaces(Exception):
    """Network namespaces cannot be created; the message states why."""


class Forbidden(NoNamespaces):
    """The kernel does not permit network namespaces: installing packages does not help."""


class Namespaces:
    """Network namespaces of hosts a and b, in which programs run; each is held by a process, whose ID is known."""

    def __init__(self, holders):
        self.holders = holders

    def inside(self, host, command):
        """Return the command that runs ``command`` on a host."""
        return ["nsenter", "-t", self.holders[host], "-U", "-n", "--preserve-credentials", *command]


@contextlib.contextmanager
def namespaces():
    """Yield :class:`Namespaces` that exist during the block, or raise :class:`NoNamespaces`."""
    if absent := [tool for tool in NEEDED if shutil.which(tool) is None]:
        raise NoNamespaces(f"{', '.join(absent)} missing; on Debian: apt-get install util-linux iproute2")
    made = subprocess.Popen(["unshare", "--map-root-user", "--net", "sh", "-c", _SCRIPT], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        first, _, second = made.stdout.readline().strip().partition(" ")
        if not second:
            made.stdin.close()
            raise Forbidden(f"this user may not make network namespaces: {made.stderr.read().strip()}")
        yield Namespaces({"a": first, "b": second})
    finally:
        with contextlib.suppress(BrokenPipeError, ValueError):
            made.stdin.close()
        made.wait()
        made.stdout.close()
        made.stderr.close()
