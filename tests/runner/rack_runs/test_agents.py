"""Whether a machine has gone is asked of its kernel, which answers however busy its processes are."""

import socket

import pytest

from wanbed.runner.rack_runs.agents import is_reachable
from wanbed.runner.rack_runs.cluster import Node


def node(port: int) -> Node:
    return Node("east", "1", "127.0.0.1", port=port)


def test_a_process_that_never_accepts_does_not_make_its_machine_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        assert is_reachable(node(busy.getsockname()[1]), 5)


def test_a_kernel_that_refuses_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ended:
        port = ended.getsockname()[1]
    assert is_reachable(node(port), 5)


@pytest.mark.parametrize("fault", [TimeoutError(), OSError("no route to host")])
def test_a_silent_one_is_tried_for_the_whole_time_and_has_gone(fault: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[float] = []

    def silent(address: tuple[str, int], timeout_s: float) -> socket.socket:
        tries.append(timeout_s)
        raise fault

    monkeypatch.setattr(socket, "create_connection", silent)
    assert not is_reachable(node(1), 0.3)
    assert len(tries) > 1


def test_without_a_port_nothing_is_said_against_it() -> None:
    assert is_reachable(node(0), 0)
