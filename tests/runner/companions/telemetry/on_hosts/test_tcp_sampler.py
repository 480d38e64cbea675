from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from wanbed.results.records.schema import TcpSample
from wanbed.results.records.trial_tables import TCP_TABLE
from wanbed.runner.companions.telemetry.on_hosts import tcp_sampler
from wanbed.runner.companions.telemetry.on_hosts.tcp_sampler import Round, TcpSampler
from wanbed.testbed.kernel.tcp_state import TcpState

MS = 1_000_000
STATE = TcpState(
    source="east-0",
    destination="west-0",
    source_port=41000,
    destination_port=20001,
    congestion="cubic",
    rtt_ns=80 * MS,
    rtt_variation_ns=4 * MS,
    shortest_rtt_ns=60 * MS,
    cwnd_segments=100,
    mss_bytes=1448,
    unacked_segments=90,
    unsent_bytes=5000,
    peer_window_bytes=4_000_000,
    delivery_rate_bps=50_000_000,
    delivery_app_limited=False,
    acked_bytes=10**9,
    sent_bytes=2 * 10**9,
    retransmitted_segments=3,
    window_limited_ns=200 * MS,
    buffer_limited_ns=100 * MS,
)


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> Callable[[TcpState], None]:
    """The fixed content of every kernel message, used instead of parsing it."""

    def say(state: TcpState) -> None:
        monkeypatch.setattr(tcp_sampler, "tcp_states", lambda messages, _: [state for _ in messages])

    return say


class Hosts:
    """A reader of some connections."""

    def __init__(self, connections: int = 1) -> None:
        self.connections = connections
        self.closed = False

    def read(self) -> list[memoryview]:
        return [memoryview(b"")] * self.connections

    def close(self) -> None:
        self.closed = True


def sampler(hosts: Hosts) -> TcpSampler:
    return TcpSampler(hosts, {})  # type: ignore[arg-type]


def tcp_samples(readings: list[tuple[int, Round]], dilation: float) -> list[TcpSample]:
    return sampler(Hosts()).tables(readings, dilation)[TCP_TABLE]


def test_durations_and_rates_are_those_of_the_experiment_and_bytes_stay(described: Callable[[TcpState], None]) -> None:
    described(STATE)
    (sample,) = tcp_samples([(250 * MS, [memoryview(b"")])], 2.0)
    assert sample == TcpSample(
        250 * MS,
        *STATE._replace(
            rtt_ns=40 * MS,
            rtt_variation_ns=2 * MS,
            shortest_rtt_ns=30 * MS,
            delivery_rate_bps=100_000_000,
            window_limited_ns=100 * MS,
            buffer_limited_ns=50 * MS,
        ),
    )


def test_what_was_not_measured_stays_unknown(described: Callable[[TcpState], None]) -> None:
    described(STATE._replace(shortest_rtt_ns=None, delivery_rate_bps=None))
    (sample,) = tcp_samples([(0, [memoryview(b"")])], 2.0)
    assert (sample.shortest_rtt_ns, sample.delivery_rate_bps) == (None, None)


def test_every_connection_of_a_round_has_the_rounds_time(described: Callable[[TcpState], None]) -> None:
    described(STATE)
    rounds = [(MS, [memoryview(b"")] * 2), (3 * MS, [memoryview(b"")])]
    assert [sample.time_ns for sample in tcp_samples(rounds, 1.0)] == [MS, MS, 3 * MS]


def test_rounds_without_connections_are_not_kept() -> None:
    assert sampler(Hosts(connections=2)).read() == [memoryview(b"")] * 2
    assert sampler(Hosts(connections=0)).read() is None


def test_the_reader_is_closed_at_the_end() -> None:
    hosts = Hosts()
    testbed = SimpleNamespace(tcp_state_reader=lambda: hosts, addresses=SimpleNamespace(host_names=dict))
    with ExitStack() as ending:
        TcpSampler.of(testbed, ending)  # type: ignore[arg-type]
        assert not hosts.closed
    assert hosts.closed


def test_sampling_takes_a_fiftieth_of_a_core_and_a_bounded_number_of_rounds_and_none_without_ranks() -> None:
    assert TcpSampler.max_core_share == 0.02
    assert TcpSampler.max_readings == 300
    assert not TcpSampler.reads_at_end
