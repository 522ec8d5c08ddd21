"""Socket of a function: clients that cannot be accepted."""

import os
import resource
import socket

from weft.driver.vfio_user.endpoint import Endpoint
from weft.tb.test.driver.vfio_user.scratch_card import Bench


def test_a_client_waits_while_no_descriptor_is_left(tmp_path):
    endpoint, limits = Endpoint(tmp_path / "socket", Bench().function), resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(endpoint.path)
        next_file = os.dup(client.fileno())
        os.close(next_file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_file, limits[1]))
        try:
            assert not endpoint.turn() and not endpoint.connected
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert endpoint.turn() and endpoint.connected
    endpoint.close()
