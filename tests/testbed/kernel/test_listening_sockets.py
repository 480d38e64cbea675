import os
import socket

import pytest

from wanbed.ground.tcp_listener import TcpListener
from wanbed.testbed.kernel.listening_sockets import ListeningSockets


@pytest.mark.parametrize("by_netlink", [True, False])
def test_a_socket_is_found_with_its_user_while_it_listens(by_netlink: bool) -> None:
    sockets = ListeningSockets()
    if not by_netlink:
        sockets.close()
    with socket.create_server(("127.0.0.9", 0)) as listener, socket.create_connection(listener.getsockname()):
        own = TcpListener(*listener.getsockname(), os.geteuid())
        assert own in sockets.read()
    assert own not in sockets.read()
    sockets.close()
