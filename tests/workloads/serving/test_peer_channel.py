import selectors
import socket
from collections.abc import Iterator

import pytest

from wanbed.workloads.serving.peer_channel import dispatch


@pytest.fixture
def selector() -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as made:
        yield made


def ready_socket() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.send(b"x")
    return ours, theirs


def test_a_channel_that_another_one_closed_in_the_same_round_is_left_out(selector: selectors.BaseSelector) -> None:
    pairs = [ready_socket(), ready_socket()]
    called: list[int] = []

    def closing_the_other(number: int) -> None:
        called.append(number)
        other = pairs[1 - number][0]
        selector.unregister(other)
        other.close()

    for number, (ours, _) in enumerate(pairs):
        selector.register(ours, selectors.EVENT_READ, lambda _, number=number: closing_the_other(number))
    dispatch(selector, 1)
    assert len(called) == 1


def test_a_new_channel_with_the_descriptor_of_a_closed_one_is_not_called_in_its_place(
    selector: selectors.BaseSelector,
) -> None:
    pairs = [ready_socket(), ready_socket()]
    called: list[str] = []

    def replacing_the_other(number: int) -> None:
        called.append("first")
        other = pairs[1 - number][0]
        descriptor = other.fileno()
        selector.unregister(other)
        other.close()
        new = ready_socket()
        pairs.append(new)
        assert new[0].fileno() == descriptor
        selector.register(new[0], selectors.EVENT_READ, lambda _: called.append("new"))

    for number, (ours, _) in enumerate(pairs[:2]):
        selector.register(ours, selectors.EVENT_READ, lambda _, number=number: replacing_the_other(number))
    dispatch(selector, 1)
    assert called == ["first"]
