"""Program of the Linux guest: the survey of its cards, or a ping-pong through the card at an address."""

import importlib.util
import sys
import time

from weft.driver.cm import qp_attributes
from weft.driver.connection.connection import ResponseTimeout
from weft.driver.pci.device import open_device
from weft.driver.pci.survey import survey
from weft.driver.verbs.config import ContextConfig
from weft.driver.verbs.device import add_device, remove_device

MS = 1_000_000
ROUNDS = 10
ACK_TIMEOUT = 18        # 1.1 s


def main(what):
    if what == "survey":
        for found in survey():
            print("= card", found, flush=True)
        return
    spec = importlib.util.spec_from_file_location("ping_pong", "/weft/ping_pong.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    device = open_device(what)
    start = time.monotonic()
    for _ in range(200):
        device.read32(0)
    register_us = (time.monotonic() - start) / 200 * 1e6
    # The emulated processor is slow: timers in microseconds would expire all the time.
    qp_attributes.ACK_TIMEOUT = ACK_TIMEOUT
    name = add_device(device, mac=0x02_0000_0000_02, ip=0x0A00_0002,
                      config=ContextConfig(probe_timeout_ns=100 * MS, silence_ns=10_000 * MS, extent_bytes=1 << 16,
                                           cm_timeout=ResponseTimeout(response_timeout=16)))
    times = example.client("10.0.0.2", "10.0.0.1", rounds=ROUNDS, size=1024)
    remove_device(name)
    device.close()
    print(f"= rounds {len(times)}, median {sorted(times)[len(times) // 2] / 1e6:.1f} ms; register read "
          f"{register_us:.0f} us", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
