"""Strangers who connect to a prefill service are dropped and named, and keep no caller out."""

import json
import selectors
import socket
from collections.abc import Iterator
from zlib import crc32

import pytest

from wanbed.workloads.serving import rendezvous
from wanbed.workloads.serving.frame_channel import FrameChannel
from wanbed.workloads.serving.rendezvous import Listener, send_hello
from wanbed.workloads.serving.serving_configs import Endpoint

LOOPBACK, TOKEN = "127.0.0.1", "of this run"


class Service:
    """A listener that is driven by hand."""

    def __init__(self, port: int) -> None:
        self.notes: list[str] = []
        self.arrived: list[int | None] = []
        self.clients: list[socket.socket] = []
        self.port = port
        self._selector = selectors.DefaultSelector()
        self._channels: list[FrameChannel] = []
        self._listener = Listener(
            Endpoint("east-0", LOOPBACK, port), TOKEN, self._selector, self._arrive, self.notes.append
        )

    def _arrive(self, channel: FrameChannel, gpu: int | None, _: object) -> None:
        self._channels.append(channel)
        self.arrived.append(gpu)

    def connect(self, sent: bytes = b"") -> socket.socket:
        client = socket.create_connection((LOOPBACK, self.port))
        self.clients.append(client)
        client.sendall(sent)
        return client

    def handle(self) -> None:
        """Handle what has happened, until nothing more does."""
        while events := self._selector.select(0.02):
            for key, mask in events:
                key.data(mask)

    def close(self) -> None:
        self._listener.close()
        waiting = [key.fileobj for key in self._selector.get_map().values()]
        for each in (*self.clients, *self._channels, *(each for each in waiting if isinstance(each, socket.socket))):
            each.close()
        self._selector.close()


@pytest.fixture
def service(free_port: int) -> Iterator[Service]:
    made = Service(free_port)
    yield made
    made.close()


def frame(text: str) -> bytes:
    """A frame as a stranger may write it who has read the sources."""
    return b"wbS1" + len(text).to_bytes(4) + crc32(text.encode()).to_bytes(4) + bytes(8) + text.encode()


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (b"GET / HTTP/1.1\r\nHost: east-0\r\n\r\n", "it speaks another protocol"),
        (frame("[" * 100_000), "its frame holds no JSON object"),
        (frame("[]"), "its frame holds no JSON object"),
        (frame("{}"), "its first message is not a hello"),
        (frame(json.dumps(send_hello("of an earlier run", 0))), "it belongs to another run"),
        (frame(json.dumps(send_hello("\ud800", 0))), "it belongs to another run"),
    ],
)
def test_a_stranger_is_dropped_and_named(service: Service, sent: bytes, fault: str) -> None:
    service.connect(sent)
    service.handle()
    (note,) = service.notes
    assert note.startswith(f"dropped the client {LOOPBACK}: {fault}")
    service.connect(frame(json.dumps(send_hello(TOKEN, 3))))
    service.handle()
    assert service.arrived == [3]


def test_many_silent_clients_keep_no_caller_out(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_MOST_SILENT", 20)
    for _ in range(100):
        service.connect()
        service.handle()
    service.connect(frame(json.dumps(send_hello(TOKEN, 3))))
    service.handle()
    assert service.arrived == [3]
    assert len(service.notes) == 81
    assert "it has said nothing" in service.notes[0]


def test_another_users_program_is_dropped(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "foreign_caller", lambda _: "uid 65534")
    service.connect(frame(json.dumps(send_hello(TOKEN, 3))))
    service.handle()
    assert service.arrived == []
    assert service.notes == [f"dropped the client {LOOPBACK}: it is a program of uid 65534"]
