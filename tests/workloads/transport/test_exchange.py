"""Messages of many sizes between two ranks: how they are cut, and which chunks are refused."""

from dataclasses import replace
from typing import Any

import pytest

from wanbed.workloads.transport.event import Event, Received
from wanbed.workloads.transport.exchange import Exchange
from wanbed.workloads.transport.frame import FrameError, FrameHeader, FrameKind, request
from wanbed.workloads.transport.links_config import ExchangeConfig, LinksConfig
from wanbed.workloads.transport.peer import Peer
from wanbed.workloads.transport.receive_buffers import BufferPool

PEER = Peer(1, "west-0", "127.0.0.1", 20_000, 1)
LINKS = LinksConfig(0, 0, 0, (PEER,), iterations=2)


class _Link:
    touched = 0

    def __init__(self) -> None:
        self.requests: list[FrameHeader] = []

    def touch(self) -> None:
        self.touched += 1

    def request(self, header: FrameHeader) -> None:
        self.requests.append(header)


def exchange(events: list[Event], links_config: LinksConfig = LINKS, link: _Link | None = None) -> Exchange:
    config = ExchangeConfig(1, outgoing_bytes=(5, 2_000_000), incoming_bytes=(7, 9))
    made = Exchange(links_config, config, PEER, pool=BufferPool(), report=events.append)
    links: Any = {1: link or _Link()}
    made.use_links(links)
    return made


def header(**changes: Any) -> FrameHeader:
    whole = {"kind": FrameKind.ACTIVATION, "owner": 0, "iteration": 1, "number": 1}
    return FrameHeader(**{**whole, "total_bytes": 9, "offset": 0, "length": 9, **changes})


def test_a_large_message_leaves_in_chunks() -> None:
    made = exchange([])
    made.offer(0, 1, memoryview(bytes(2_000_000)))
    chunks = []
    while made.queue.ready:
        chunks.append(made.queue.pop().header)
    assert len(chunks) == 16
    assert sum(chunk.length for chunk in chunks) == 2_000_000
    assert {(chunk.number, chunk.total_bytes) for chunk in chunks} == {(1, 2_000_000)}


def test_a_message_is_received_once_all_of_it_is_there() -> None:
    events: list[Event] = []
    exchange(events).place(header()).complete()
    (received,) = events
    assert isinstance(received, Received)
    assert (received.peer, received.iteration, received.message.microbatch) == (PEER, 1, 1)
    assert received.transfer_bytes == 9


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"number": 2}, "it sent the chunk at 0 of message 2 in iteration 1, which does not exist"),
        ({"iteration": 2}, "it sent the chunk at 0 of message 1 in iteration 2, which does not exist"),
        ({"number": 0}, "9 of 9 bytes: expected are 7"),
        ({"length": 4}, "4 of 9 bytes: expected are 9, and it is not cut there"),
        ({"kind": FrameKind.GRADIENT}, "as gradient of pipeline 0"),
        ({"owner": 3}, "as activation of pipeline 3"),
    ],
)
def test_a_chunk_of_no_message_is_refused(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(FrameError, match=fault):
        exchange([]).place(header(**changes))


@pytest.mark.parametrize(
    ("iteration", "number", "size_bytes"), [(2, 0, 5), (0, 2, 5), (0, 0, 6)], ids=["iteration", "number", "size"]
)
def test_a_message_that_the_configuration_lacks_cannot_be_sent(iteration: int, number: int, size_bytes: int) -> None:
    with pytest.raises(ValueError, match=r"there is no message|expects 5 bytes"):
        exchange([]).check(iteration, number, memoryview(bytes(size_bytes)))


def test_a_rank_has_boundaries_or_exchanges() -> None:
    with pytest.raises(ValueError, match="exchanges: rank 3 is none of the peers"):
        LinksConfig(0, 0, 0, (PEER,), iterations=1, exchanges=(ExchangeConfig(3, (), ()),))


def test_on_request_a_message_leaves_when_it_is_made_and_asked_for() -> None:
    made = exchange([], replace(LINKS, on_request=True))
    made.offer(0, 0, memoryview(bytes(5)))
    assert made.queue.empty
    made.asked(request(FrameKind.ACTIVATION, 0, 1, 0))
    assert made.queue.empty
    made.asked(request(FrameKind.ACTIVATION, 0, 0, 0))
    assert made.queue.pop().header.iteration == 0
    made.offer(1, 0, memoryview(bytes(5)))
    assert made.queue.pop().header.iteration == 1


def test_a_message_is_asked_for_by_its_number() -> None:
    link = _Link()
    exchange([], replace(LINKS, on_request=True), link).request(1, 0)
    assert link.requests == [request(FrameKind.ACTIVATION, 0, 1, 0)]


@pytest.mark.parametrize(
    ("on_request", "numbers", "fault"),
    [
        (False, (0, 0, 0), "asks for message 0 of iteration 0, and nothing waits for that"),
        (True, (7, 0, 0), "asks for message 0 of iteration 0, and nothing waits for that"),
        (True, (0, 0, 2), "asks for message 2 of iteration 0, which does not exist"),
        (True, (0, 2, 0), "asks for message 0 of iteration 2, which does not exist"),
        (True, (0, 1, 1), "asks for message 1 of iteration 1 twice"),
    ],
)
def test_a_request_that_is_not_expected_is_refused(on_request: bool, numbers: tuple[int, ...], fault: str) -> None:
    made = exchange([], replace(LINKS, on_request=on_request))
    if on_request:
        made.asked(request(FrameKind.ACTIVATION, 0, 1, 1))
    with pytest.raises(FrameError, match=fault):
        made.asked(request(FrameKind.ACTIVATION, *numbers))
