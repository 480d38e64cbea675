import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from wanbed.ground.strict_model import parse_model
from wanbed.testbed.measurement import bounded_transfer
from wanbed.testbed.measurement import bounded_transfer as module
from wanbed.testbed.measurement.bounded_transfer import (
    BUFFER_MAX_BYTES,
    Ends,
    StalledError,
    connected,
    namespace_buffers,
    transfer_bps,
)
from wanbed.testbed.network.topology import resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec


class Recorded(socket.socket):
    """A socket that records its options, and whose connections fail."""

    def __init__(self) -> None:
        super().__init__()
        self.timeouts: list[float | None] = []
        self.buffers: list[Any] = []

    def settimeout(self, value: float | None) -> None:
        self.timeouts.append(value)

    def setsockopt(self, *args: Any) -> None:
        self.buffers.append(args[2])

    def connect(self, address: object) -> None:
        raise TimeoutError("timed out")


@dataclass(frozen=True)
class FailingEnds(Ends):
    made: list[Recorded] = field(default_factory=list)

    def connect(self, sender: socket.socket, listener: socket.socket) -> None:
        sender.connect(listener.getsockname())

    def socket(self, host: str, kind: int) -> socket.socket:
        self.made.append(Recorded())
        return self.made[-1]


def ends(latency: str) -> FailingEnds:
    document = {"datacenters": [{"name": name, "hosts": 1} for name in ("east", "west")], "wan": {"latency": latency}}
    topology = resolve_topology(parse_model(TopologySpec, document, "test"))
    stacks = SimpleNamespace(use_window=lambda _: None)
    return FailingEnds(cast("Any", SimpleNamespace(topology=topology, stacks=stacks)), "east-0", "west-0")


def test_a_connection_that_is_not_made_is_reported_in_a_line() -> None:
    with (
        pytest.raises(StalledError, match=r"east-0 to west-0: no connection \(timed out"),
        connected(ends("1ms"), 1, None),
    ):
        pass


@pytest.mark.parametrize(("latency", "rtt_s"), [("0ms", 0), ("60s", 120)])
def test_a_connection_over_a_long_line_may_take_round_trips(latency: str, rtt_s: float) -> None:
    path = ends(latency)
    with pytest.raises(StalledError), connected(path, 1, None):
        pass
    assert [each.timeouts for each in path.made] == [[60 + 4 * rtt_s]] * 2


def test_no_buffer_is_larger_than_the_kernels_maximum() -> None:
    path = ends("40ms")
    with pytest.raises(StalledError), connected(path, 1, 2**40):
        pass
    assert [each.buffers for each in path.made] == [[BUFFER_MAX_BYTES // 2], [BUFFER_MAX_BYTES]]


def test_a_connection_that_breaks_is_reported_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair()

    @contextmanager
    def broken(*_: object) -> Iterator[tuple[list[socket.socket], list[socket.socket]]]:
        yield [one], [other]

    monkeypatch.setattr(bounded_transfer, "connected", broken)
    with one:
        other.close()
        sizes = {"buffer_bytes": None, "warming_bytes": 1, "measured_bytes": 1}
        with pytest.raises(StalledError, match=r"east-0 to west-0: the connection broke after 0 bytes \(Broken pipe\)"):
            transfer_bps(ends("1ms"), 1, **sizes, turn_s=0.0, patience_s=1.0)


BEFORE = {"net.ipv4.tcp_rmem": "4096 131072 6291456", "net.ipv4.tcp_wmem": "4096 16384 4194304"}


@pytest.fixture
def sysctls(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    """The sysctls of two namespaces."""
    held = {"/east": dict(BEFORE), "/west": dict(BEFORE)}

    def read(namespace: str, names: Iterable[str]) -> dict[str, str]:
        return {name: held[namespace][name] for name in names}

    monkeypatch.setattr(module, "read_sysctls", read)
    monkeypatch.setattr(module, "write_sysctls", lambda namespace, settings: held[namespace].update(settings))
    return held


def test_sockets_made_in_the_block_get_the_sizes_and_later_ones_those_from_before(
    sysctls: dict[str, dict[str, str]],
) -> None:
    with namespace_buffers(["/east", "/west"], receive_bytes=500_000, send_bytes=1_000_000):
        wanted = {"net.ipv4.tcp_rmem": "4096 500000 500000", "net.ipv4.tcp_wmem": "4096 1000000 1000000"}
        assert sysctls == {"/east": wanted, "/west": wanted}
    assert sysctls == {"/east": BEFORE, "/west": BEFORE}


def test_sysctls_are_restored_after_an_error(sysctls: dict[str, dict[str, str]]) -> None:
    with (
        pytest.raises(TimeoutError),
        namespace_buffers(["/east"], receive_bytes=500_000, send_bytes=1_000_000),
    ):
        raise TimeoutError
    assert sysctls["/east"] == BEFORE
