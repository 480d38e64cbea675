import errno
import socket

import pytest

from testbed.rights.receive_windows import windows_held


@pytest.mark.parametrize("refused", [False, True])
def test_windows_are_held_where_the_kernel_lets_buffers_be_forced(
    monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    class Socket(socket.socket):
        def setsockopt(self, *_: object) -> None:
            if refused:
                raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", Socket)
    assert windows_held() is not refused
