"""Two network namespaces with a cable between, made by a user without privilege: hosts in all but their card.

The first is of a user namespace in which the user is root, the second is made there; both last as long as the process
that made them.
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
    """A sentence that says why there are none."""


class Forbidden(NoNamespaces):
    """It is the kernel that says no: no package helps."""


class Namespaces:
    """Where programs of hosts a and b run.

    Attributes
    ----------
    holders : dict of str to str
        A process in each, by name of the host.
    """

    def __init__(self, holders):
        self.holders = holders

    def inside(self, host, command):
        """The command, as it is run on a host."""
        return ["nsenter", "-t", self.holders[host], "-U", "-n", "--preserve-credentials", *command]


@contextlib.contextmanager
def namespaces():
    """:class:`Namespaces`, for the block.

    Raises
    ------
    NoNamespaces
    """
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
