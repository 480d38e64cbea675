import errno
import socket

import pytest

from wanbed.testbed.rights.large_buffers import large_buffers_allowed


@pytest.mark.parametrize("refused", [False, True])
def test_large_buffers_are_allowed_where_the_kernel_lets_them_be_forced(
    monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    class Socket(socket.socket):
        def setsockopt(self, *_: object) -> None:
            if refused:
                raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", Socket)
    assert large_buffers_allowed() is not refused
