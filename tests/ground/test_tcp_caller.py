import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from wanbed.ground.tcp_caller import accept_own, foreign_caller

STRANGER = 65534


@contextmanager
def called_by_a_stranger(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hold a connection of another user's, who has bound an address of a host's: for root really, else by a number."""
    becomes = f"os.setuid({STRANGER})" if os.geteuid() == 0 else ""
    script = (
        f"import os, socket\n{becomes}\nmade = socket.socket()\nmade.bind(('127.9.0.2', 0))\n"
        f"made.connect(('127.9.0.1', {port}))\nprint(flush=True)\ninput()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        if os.geteuid():
            monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        yield
        other.kill()


def test_another_users_program_is_known_whatever_address_it_has_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        socket.create_server(("127.9.0.1", 0)) as listener,
        called_by_a_stranger(listener.getsockname()[1], monkeypatch),
        listener.accept()[0] as connection,
    ):
        assert foreign_caller(connection) is not None


def test_an_own_program_is_no_stranger_and_neither_is_one_that_has_gone() -> None:
    with socket.create_server(("127.9.0.1", 0)) as listener:
        caller = socket.create_connection(listener.getsockname())
        with listener.accept()[0] as connection:
            assert foreign_caller(connection) is None
            caller.close()
            assert foreign_caller(connection) is None


def test_a_stranger_is_closed_and_the_own_caller_after_it_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    strangers = ["nobody"]
    monkeypatch.setattr("wanbed.ground.tcp_caller.foreign_caller", lambda _: strangers.pop() if strangers else None)
    with socket.create_server(("127.9.0.1", 0)) as listener:
        first, own = (socket.create_connection(listener.getsockname()) for _ in range(2))
        with first, own, accept_own(listener) as accepted:
            assert accepted.getpeername() == own.getsockname()
            assert first.recv(1) == b""
