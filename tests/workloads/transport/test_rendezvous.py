import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from wanbed.workloads.transport.frame import Hello
from wanbed.workloads.transport.peer import Peer, TransportError
from wanbed.workloads.transport.rendezvous import Identity, Rendezvous

LOOPBACK = "127.0.0.1"
TOKEN = bytes(range(16))
LONG_NS = 8_000_000_000
SHORT_NS = 300_000_000


class Listener:
    """Rank 1, which expects two connections of rank 0, in its own thread."""

    def __init__(self, port: int, timeout_ns: int = LONG_NS) -> None:
        self.notes: list[str] = []
        self.outcome: dict[int, list[socket.socket]] | TransportError | None = None
        self.port = port
        caller = Peer(0, "east-0", LOOPBACK, None, 2)
        self.rendezvous = Rendezvous(Identity(TOKEN, 1, LOOPBACK, port), [caller], self.notes.append)
        self.thread = threading.Thread(target=self._rendezvous, args=(timeout_ns,))
        self.thread.start()

    def _rendezvous(self, timeout_ns: int) -> None:
        try:
            self.outcome = self.rendezvous.rendezvous(timeout_ns)
        except TransportError as error:
            self.outcome = error

    def hello_of(self, hello: bytes) -> bytes:
        """What a client that sends ``hello`` is answered, b"" if it is dropped; the client stays connected."""
        client = socket.create_connection((LOOPBACK, self.port))
        self.clients.append(client)
        client.sendall(hello)
        client.settimeout(8)
        try:
            return client.recv(100)
        except ConnectionResetError:
            return b""

    clients: list[socket.socket]


@pytest.fixture
def listen(free_port: int) -> Iterator[Callable[..., Listener]]:
    listeners: list[Listener] = []

    def listen_as_rank_1(timeout_ns: int = LONG_NS) -> Listener:
        listener = Listener(free_port, timeout_ns)
        listener.clients = []
        listeners.append(listener)
        return listener

    yield listen_as_rank_1
    for listener in listeners:
        listener.thread.join()
        for client in listener.clients:
            client.close()


@pytest.fixture
def room_for_sockets() -> Iterator[None]:
    """Let this process have the descriptors of both ends of a thousand connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def call(port: int, timeout_ns: int = LONG_NS) -> dict[int, list[socket.socket]]:
    callee = Peer(1, "west-0", LOOPBACK, port, 2)
    return Rendezvous(Identity(TOKEN, 0, LOOPBACK, 0), [callee], pytest.fail).rendezvous(timeout_ns)


def test_a_caller_waits_for_a_listener_that_comes_later(listen: Callable, free_port: int) -> None:
    met: dict[int, list[socket.socket]] = {}
    thread = threading.Thread(target=lambda: met.update(call(free_port)))
    thread.start()
    threading.Event().wait(0.1)
    listener = listen()
    thread.join()
    listener.thread.join()
    for index in (0, 1):
        assert met[1][index].getsockname() == listener.outcome[0][index].getpeername()
    for made in met[1] + listener.outcome[0]:
        made.close()


@pytest.mark.parametrize(
    ("hello", "fault"),
    [
        (Hello(bytes(16), 0, 0, 2).encode(), "it belongs to another run"),
        (Hello(TOKEN, 5, 0, 2).encode(), "it is rank 5, expected is rank 0"),
        (Hello(TOKEN, 0, 0, 3).encode(), "it opens 3 connections, expected are 2"),
        (b"GET / HTTP/1.1\r\nHost: west-0\r\nAccept: */*\r\n\r\n", "it speaks another protocol"),
    ],
)
def test_a_foreign_client_is_dropped_and_logged(listen: Callable, hello: bytes, fault: str) -> None:
    listener = listen()
    assert listener.hello_of(hello) == b""
    for made in call(listener.port)[1]:
        made.close()
    listener.thread.join()
    assert set(listener.outcome) == {0}
    assert listener.rendezvous.dropped == 1
    (note,) = listener.notes
    assert note.startswith("dropped the client 127.0.0.1 port ")
    assert fault in note


def test_a_client_from_an_address_of_no_peer_is_dropped_whatever_it_says(listen: Callable) -> None:
    listener = listen()
    stranger = socket.create_connection((LOOPBACK, listener.port), source_address=("127.0.0.9", 0))
    listener.clients.append(stranger)
    stranger.settimeout(8)
    with suppress(ConnectionResetError):
        stranger.sendall(Hello(TOKEN, 0, 0, 2).encode())
        assert stranger.recv(100) == b""
    for made in call(listener.port)[1]:
        made.close()
    listener.thread.join()
    (note,) = listener.notes
    assert note.startswith("dropped the client 127.0.0.9 port ")
    assert note.endswith(f"expected is {LOOPBACK}")


def test_a_second_client_for_one_connection_is_dropped(listen: Callable) -> None:
    listener = listen()
    assert listener.hello_of(Hello(TOKEN, 0, 0, 2).encode()) == Hello(TOKEN, 1, 0, 2).encode()
    assert listener.hello_of(Hello(TOKEN, 0, 0, 2).encode()) == b""
    assert listener.hello_of(Hello(TOKEN, 0, 1, 2).encode()) == Hello(TOKEN, 1, 1, 2).encode()
    listener.thread.join()
    assert len(listener.outcome[0]) == 2
    assert listener.notes[0].endswith("connection 0 is already established")


def test_a_silent_client_delays_no_peer(listen: Callable) -> None:
    listener = listen()
    listener.clients.append(socket.create_connection((LOOPBACK, listener.port)))
    for made in call(listener.port)[1]:
        made.close()
    listener.thread.join()
    assert set(listener.outcome) == {0}


def test_a_thousand_silent_clients_keep_no_peer_out_and_are_named(listen: Callable, room_for_sockets: None) -> None:
    listener = listen()
    script = (
        f"import socket\nmade = [socket.create_connection(('{LOOPBACK}', {listener.port})) for _ in range(1000)]\n"
        "print(flush=True)\ninput()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as strangers:
        assert strangers.stdout is not None
        strangers.stdout.readline()
        for made in call(listener.port)[1]:
            made.close()
        listener.thread.join()
        strangers.kill()
    assert set(listener.outcome) == {0}
    assert listener.rendezvous.dropped >= 700
    assert all("it has said nothing" in note for note in listener.notes)


def test_another_users_program_is_dropped_before_it_says_anything(
    listen: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    strangers = ["user nobody (uid 65534)"]
    monkeypatch.setattr(
        "wanbed.workloads.transport.rendezvous.foreign_caller", lambda _: strangers.pop() if strangers else None
    )
    listener = listen()
    assert listener.hello_of(Hello(TOKEN, 0, 0, 2).encode()) == b""
    for made in call(listener.port)[1]:
        made.close()
    listener.thread.join()
    assert set(listener.outcome) == {0}
    assert listener.notes[0].endswith(": it is a program of user nobody (uid 65534)")


def test_ranks_connect_in_any_order_of_starting() -> None:
    addresses = [f"127.0.1.{rank + 1}" for rank in range(5)]
    peers = [Peer(rank, f"host-{rank}", addresses[rank], 29571, rank % 2 + 1) for rank in range(5)]
    met: dict[int, dict[int, list[socket.socket]]] = {}

    def rendezvous(rank: int) -> None:
        others = [replace(peer, connections=1 + (peer.rank + rank) % 2) for peer in peers if peer.rank != rank]
        rendezvous = Rendezvous(Identity(TOKEN, rank, addresses[rank], 29571), others, pytest.fail)
        met[rank] = rendezvous.rendezvous(LONG_NS)

    threads = [threading.Thread(target=rendezvous, args=(rank,)) for rank in (3, 0, 4, 1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rank in range(5):
        assert set(met[rank]) == set(range(5)) - {rank}
        for peer, sockets in met[rank].items():
            assert len(sockets) == 1 + (peer + rank) % 2
            for ours, theirs in zip(sockets, met[peer][rank], strict=True):
                assert ours.getsockname() == theirs.getpeername()
    for made in [made for by_peer in met.values() for sockets in by_peer.values() for made in sockets]:
        made.close()


def test_the_listener_closes_after_the_rendezvous(listen: Callable) -> None:
    listener = listen()
    met = call(listener.port)
    listener.thread.join()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, listener.port))
    for made in met[1]:
        made.close()


def test_a_caller_that_never_comes_is_named(listen: Callable) -> None:
    listener = listen(SHORT_NS)
    listener.hello_of(Hello(TOKEN, 0, 1, 2).encode())
    listener.thread.join()
    assert (
        str(listener.outcome) == "rank 0 (east-0, 127.0.0.1) opened 1 of 2 connections (0 clients dropped) within 0.3 s"
    )


def test_a_listener_that_never_comes_is_named(free_port: int) -> None:
    with pytest.raises(TransportError) as failure:
        call(free_port, SHORT_NS)
    assert str(failure.value) == (
        f"rank 1 (west-0, 127.0.0.1) port {free_port} answered 0 of 2 connections (Connection refused) within 0.3 s"
    )


def test_another_program_at_the_peers_port_is_reported(free_port: int) -> None:
    with socket.create_server((LOOPBACK, free_port)) as server:

        def answer() -> None:
            client, _ = server.accept()
            client.sendall(b"220 mail.example.org ESMTP, at your service\r\n")
            client.recv(100)
            client.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(TransportError, match=rf"^rank 1 \(west-0, 127.0.0.1\) port {free_port}: it speaks another"):
            call(free_port)
        thread.join()


def test_an_address_of_another_machine_cannot_be_bound() -> None:
    callee = Peer(1, "west-0", LOOPBACK, 1, 1)
    with pytest.raises(TransportError, match=r"^cannot bind 192\.0\.2\.1 port 0: "):
        Rendezvous(Identity(TOKEN, 0, "192.0.2.1", 0), [callee], pytest.fail).rendezvous(SHORT_NS)


def test_sockets_have_the_configured_address_and_options(listen: Callable) -> None:
    listener = listen()
    met = call(listener.port)
    listener.thread.join()
    for made in met[1]:
        assert made.getsockname()[0] == LOOPBACK
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 8000
        made.close()
    for made in listener.outcome[0]:
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 8000
        made.close()


def test_nothing_is_told_to_another_users_socket(free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    callee = Peer(1, "west-0", LOOPBACK, free_port, 1)
    with socket.create_server((LOOPBACK, free_port)) as listener:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        rendezvous = Rendezvous(Identity(TOKEN, 0, LOOPBACK, 0), [callee], lambda _: None)
        with pytest.raises(TransportError, match=rf"^no peer is called at .*: {LOOPBACK}:{free_port} is taken by "):
            rendezvous.rendezvous(LONG_NS)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_who_has_the_port_of_a_rank_is_named(free_port: int) -> None:
    with (
        socket.create_server(("", free_port)),
        pytest.raises(TransportError, match=rf"cannot bind .*: 0\.0\.0\.0:{free_port} is taken by .*uid {os.getuid()}"),
    ):
        Rendezvous(Identity(TOKEN, 1, LOOPBACK, free_port), [Peer(0, "east-0", LOOPBACK, None, 1)], print)
