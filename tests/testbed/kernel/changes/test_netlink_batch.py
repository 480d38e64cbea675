"""Batches of requests, with a kernel that answers as netlink says: refused requests, and those that ask for it."""

import struct
from typing import Any

import pytest

from wanbed.testbed.kernel.changes.netlink_batch import NetlinkBatch

HEADER = struct.Struct("=IHHII")
ACK, ERROR, EINVAL = 0x4, 2, 22


class Kernel:
    """Takes batches, and refuses requests with the body ``bad!``."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.sent: list[bytes] = []
        self._answers: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent.append(bytes(data))
        batch, offset, answers = [], 0, b""
        while offset < len(data):
            length, _, flags, sequence, _ = HEADER.unpack_from(data, offset)
            header, body = data[offset : offset + 16], bytes(data[offset + 16 : offset + length])
            refused = body[:4] == b"bad!"
            if refused or flags & ACK:
                answer = struct.pack("=i", -EINVAL if refused else 0) + header
                answers += HEADER.pack(16 + len(answer), ERROR, 0, sequence, 0) + answer
            batch.append(body)
            offset += length
        self.batches.append(batch)
        self._answers.append(answers)

    def recv(self, _: int) -> bytes:
        return self._answers.pop(0)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()

    def opened(batch: Any, _: str) -> None:
        batch._socket, batch._sequence = kernel, 0

    monkeypatch.setattr(NetlinkBatch, "__init__", opened)
    return kernel


def test_all_requests_go_in_one_batch_in_their_order(kernel: Kernel) -> None:
    NetlinkBatch("").make([(36, b"%04d" % number) for number in range(100)])
    assert kernel.batches == [[b"%04d" % number for number in range(100)]]


def test_what_does_not_fit_one_system_call_goes_in_several(kernel: Kernel) -> None:
    requests = [(36, bytes(4096)) for _ in range(100)]
    NetlinkBatch("").make(requests)
    assert sum(map(len, kernel.batches)) == 100
    assert len(kernel.batches) > 1
    assert all(sum(map(len, batch)) < 200_000 for batch in kernel.batches)


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_request_that_is_refused_is_reported_and_the_others_are_made(kernel: Kernel, position: int) -> None:
    bodies = [b"good", b"good", b"good"]
    bodies[position] = b"bad!"
    with pytest.raises(OSError, match="changing a port: Invalid argument"):
        NetlinkBatch("").make([(36, body) for body in bodies])
    assert kernel.batches == [bodies]


def test_nothing_to_change_is_no_request(kernel: Kernel) -> None:
    NetlinkBatch("").make([])
    assert kernel.batches == []


def test_what_is_encoded_beforehand_is_sent_byte_by_byte_as_often_as_wanted(kernel: Kernel) -> None:
    requests = [(36, b"%04d" % number) for number in range(3)]
    batch = NetlinkBatch("")
    encoded = batch.encode(requests)
    assert kernel.sent == []
    batch.send(encoded)
    batch.send(batch.encode([(40, b"else")]))
    batch.send(encoded)
    headers = [HEADER.pack(20, 36, 1 | (ACK if last else 0), 1, 0) for last in (False, False, True)]
    expected = b"".join(header + body for header, (_, body) in zip(headers, requests, strict=True))
    assert [kernel.sent[0], kernel.sent[2]] == [expected, expected]


def test_what_is_encoded_beforehand_is_what_would_be_made_at_once(kernel: Kernel) -> None:
    requests = [(36, bytes(4096)) for _ in range(100)]
    NetlinkBatch("").make(requests)
    at_once, kernel.sent = kernel.sent, []
    batch = NetlinkBatch("")
    batch.send(batch.encode(requests))
    assert kernel.sent == at_once


def test_an_encoded_request_that_is_refused_is_reported_each_time(kernel: Kernel) -> None:
    batch = NetlinkBatch("")
    encoded = batch.encode([(36, b"good"), (36, b"bad!")])
    for _ in range(2):
        with pytest.raises(OSError, match="changing a port: Invalid argument"):
            batch.send(encoded)
    assert len(kernel.sent) == 2
