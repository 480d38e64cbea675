import errno
import os
import socket
from typing import Any

import pytest

from wanbed.testbed.substrate import guest_buffers
from wanbed.testbed.substrate.guest_buffers import WANTED_BYTES, enlarge_buffers


class Raw:
    """A packet socket of a machine with a limit on buffers, which root may exceed."""

    def __init__(self, limit_bytes: int, root: bool) -> None:
        self._limit_bytes, self._root = limit_bytes, root
        self._bytes = 212_992

    def __call__(self, **_: Any) -> "Raw":
        return self

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def setsockopt(self, _: int, option: int, value: int) -> None:
        if option != socket.SO_RCVBUF and not self._root:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        self._bytes = 2 * (min(value, self._limit_bytes) if option == socket.SO_RCVBUF else value)

    def getsockopt(self, *_: int) -> int:
        return self._bytes


@pytest.mark.parametrize(
    ("limit_bytes", "root", "size_bytes"),
    [(212_992, True, WANTED_BYTES), (2**22, False, WANTED_BYTES), (212_992, False, 425_984)],
)
def test_buffers_are_as_large_as_the_machine_allows(
    monkeypatch: pytest.MonkeyPatch, limit_bytes: int, root: bool, size_bytes: int
) -> None:
    monkeypatch.setattr(guest_buffers, "_packet_sockets", lambda _: [3])
    monkeypatch.setattr(guest_buffers.socket, "socket", Raw(limit_bytes, root))
    assert enlarge_buffers([41, 42]) == size_bytes


def test_a_process_without_packet_sockets_is_left_alone() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        before = ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        assert enlarge_buffers([os.getpid()]) is None
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == before


def test_a_process_that_has_gone_has_none() -> None:
    assert enlarge_buffers([2**22 + 1]) is None
