import socket
from pathlib import Path

import pytest

from testbed.kernel.listening_sockets import ListeningSockets, listening_in

PROC = Path("/proc/net/tcp")


@pytest.mark.parametrize("by_netlink", [True, False])
def test_a_socket_is_found_while_it_listens(by_netlink: bool) -> None:
    sockets = ListeningSockets()
    if not by_netlink:
        sockets.close()
    with socket.create_server(("127.0.0.9", 0)) as listener, socket.create_connection(listener.getsockname()):
        assert listener.getsockname() in sockets.read()
        own = listener.getsockname()
    assert own not in sockets.read()
    sockets.close()


def test_the_kernels_table_is_read_without_what_does_not_listen() -> None:
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0900007F:4E20 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1\n"
        "   1: 0900007F:4E20 0A00007F:8000 01 00000000:00000000 00:00000000 00000000  1000        0 2 1\n"
    )
    assert listening_in(table) == {("127.0.0.9", 20_000)}
