import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from wanbed.ground import socket_owner as module
from wanbed.ground.socket_owner import (
    ANY_ADDRESS,
    TcpListener,
    accept_own,
    foreign_caller,
    listener_at,
    listener_in,
    listeners_in,
    user_text,
)

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
    monkeypatch.setattr("wanbed.ground.socket_owner.foreign_caller", lambda _: strangers.pop() if strangers else None)
    with socket.create_server(("127.9.0.1", 0)) as listener:
        first, own = (socket.create_connection(listener.getsockname()) for _ in range(2))
        with first, own, accept_own(listener) as accepted:
            assert accepted.getpeername() == own.getsockname()
            assert first.recv(1) == b""


HEADING = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
TCP = (
    f"{HEADING}"
    "   0: 0900007F:4E20 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1\n"
    "   1: 0900007F:4E20 0A00007F:8000 01 00000000:00000000 00:00000000 00000000  1000        0 2 1\n"
)
TCP6 = (
    f"{HEADING}"
    f"   0: {'0' * 32}:4E21 {'0' * 32}:0000 0A 00000000:00000000 00:00000000 00000000  65534        0 1 1\n"
    f"   1: {'0' * 24}01000000:4E22 {'0' * 32}:0000 0A 00000000:00000000 00:00000000 00000000  65534        0 1 1\n"
)


@pytest.fixture(params=["by netlink", "from /proc"])
def _either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "from /proc":

        def refused(address: str, port: int) -> None:
            raise OSError

        monkeypatch.setattr(module, "_asked", refused)


@pytest.mark.usefixtures("_either_way")
@pytest.mark.parametrize(
    ("family", "address", "shown"),
    [(socket.AF_INET, "127.0.0.9", "127.0.0.9"), (socket.AF_INET, "", ANY_ADDRESS), (socket.AF_INET6, "", ANY_ADDRESS)],
)
def test_the_listener_is_found_that_a_connection_would_reach(
    family: socket.AddressFamily, address: str, shown: str
) -> None:
    both = family == socket.AF_INET6
    with socket.create_server((address, 0), family=family, dualstack_ipv6=both) as listener:
        port = listener.getsockname()[1]
        assert listener_at("127.0.0.9", port) == TcpListener(shown, port, os.geteuid())
    assert listener_at("127.0.0.9", port) is None


def test_the_kernels_table_is_read_without_what_does_not_listen() -> None:
    assert listeners_in(TCP) == [TcpListener("127.0.0.9", 20_000, 1000)]
    assert listener_in([TCP, TCP6], "127.0.0.9", 20_001) == TcpListener(ANY_ADDRESS, 20_001, 65534)
    assert listener_in([TCP, TCP6], "127.0.0.9", 20_002) is None


def test_a_taken_address_is_shown_with_its_user() -> None:
    assert str(TcpListener("127.2.0.2", 20_001, 0)) == "127.2.0.2:20001 is taken by user root (uid 0)"
    assert user_text(4_000_000) == "uid 4000000"


def test_another_users_socket_is_not_an_own_one() -> None:
    assert TcpListener("127.0.0.9", 1, os.geteuid()).own
    assert not TcpListener("127.0.0.9", 1, os.geteuid() + 1).own
