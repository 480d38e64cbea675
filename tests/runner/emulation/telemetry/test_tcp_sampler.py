import threading
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from results.records.schema import TcpSample
from runner.emulation.telemetry import tcp_sampler
from runner.emulation.telemetry.tcp_sampler import TcpSampler, tcp_samples
from testbed.kernel.missing import MissingError
from testbed.kernel.tcp_state import TcpState

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


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_sampler, "INTERVAL_S", 0.002)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[TcpState], None]:
    """What every message of the kernel says, in place of parsing it."""

    def say(state: TcpState) -> None:
        monkeypatch.setattr(tcp_sampler, "tcp_states", lambda messages, _: [state for _ in messages])

    return say


def test_times_and_rates_are_those_of_the_experiment_and_bytes_stay(told: Callable[[TcpState], None]) -> None:
    told(STATE)
    (sample,) = tcp_samples([(500 * MS, [memoryview(b"")])], {}, 2.0)
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


def test_what_was_not_measured_stays_unknown(told: Callable[[TcpState], None]) -> None:
    told(STATE._replace(shortest_rtt_ns=None, delivery_rate_bps=None))
    (sample,) = tcp_samples([(0, [memoryview(b"")])], {}, 2.0)
    assert (sample.shortest_rtt_ns, sample.delivery_rate_bps) == (None, None)


def test_every_connection_of_a_round_has_the_rounds_time(told: Callable[[TcpState], None]) -> None:
    told(STATE)
    rounds = [(MS, [memoryview(b"")] * 2), (3 * MS, [memoryview(b"")])]
    assert [sample.time_ns for sample in tcp_samples(rounds, {}, 1.0)] == [MS, MS, 3 * MS]


class Hosts:
    """A reader that counts, and that fails when told to."""

    def __init__(self) -> None:
        self.rounds = 0
        self.connected = True
        self.fault: Exception | None = None
        self.asked_often = threading.Event()
        self.failed = threading.Event()
        self.closed = False

    def read(self) -> list[memoryview]:
        assert not self.closed
        if self.fault is not None:
            self.failed.set()
            raise self.fault
        self.rounds += 1
        if self.rounds >= 5:
            self.asked_often.set()
        return [memoryview(str(self.rounds).encode())] if self.connected else []

    def close(self) -> None:
        self.closed = True


def sampler(hosts: Hosts, epoch_ns: int = 0) -> TcpSampler:
    return TcpSampler(hosts, epoch_ns)  # type: ignore[arg-type]


def test_hosts_are_asked_at_the_start_and_all_the_while_and_never_after_the_end() -> None:
    hosts = Hosts()
    sampling = sampler(hosts)
    sampling.start()
    assert hosts.rounds >= 1
    assert hosts.asked_often.wait(5)
    rounds = sampling.stop()
    assert hosts.closed
    assert [bytes(message) for _, (message,) in rounds] == [str(number + 1).encode() for number in range(hosts.rounds)]
    assert all(one < other for (one, _), (other, _) in pairwise(rounds))


def test_rounds_without_connections_are_not_kept() -> None:
    hosts = Hosts()
    hosts.connected = False
    sampling = sampler(hosts)
    sampling.start()
    assert hosts.asked_often.wait(5)
    assert sampling.stop() == []


def test_a_long_trial_keeps_a_bounded_number_of_evenly_spread_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_sampler, "MAX_ROUNDS", 4)
    hosts = Hosts()
    sampling = sampler(hosts)
    sampling.start()
    assert hosts.asked_often.wait(5)
    rounds = sampling.stop()
    assert len(rounds) < 4
    numbers = [int(bytes(message)) for _, (message,) in rounds]
    assert numbers[0] == 1
    assert all(later > earlier for earlier, later in pairwise(numbers))
    assert len({number % 2 for number in numbers[:2]}) == 1


def test_the_next_round_waits_fifty_times_what_the_last_one_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    # Two looks at the clock a round: each round has cost 30 ms.
    monkeypatch.setattr(tcp_sampler.time, "thread_time", iter([0.0, 0.03] * 100).__next__)
    sampling = sampler(Hosts())

    def wait(pause_s: float) -> bool:
        pauses.append(pause_s)
        return len(pauses) == 3

    monkeypatch.setattr(sampling._ending, "wait", wait)
    sampling.start()
    sampling.stop()
    assert pauses == pytest.approx([0.002, 1.5, 1.5])


def test_times_count_from_the_epoch_and_are_never_before_it() -> None:
    later = sampler(Hosts(), time.monotonic_ns() + 3600 * 10**9)
    later.start()
    assert {time_ns for time_ns, _ in later.stop()} == {0}


@pytest.mark.parametrize("fault", [OSError("a socket closed"), KeyError("x")])
def test_asking_that_fails_meanwhile_is_told_when_it_stops(fault: Exception) -> None:
    hosts = Hosts()
    sampling = sampler(hosts)
    sampling.start()
    assert hosts.asked_often.wait(5)
    hosts.fault = fault
    assert hosts.failed.wait(5)
    with pytest.raises(type(fault)) as told:
        sampling.stop()
    assert told.value is fault
    assert hosts.closed


def test_a_kernel_that_does_not_tell_is_found_out_at_the_start() -> None:
    hosts = Hosts()
    hosts.fault = MissingError("modprobe tcp_diag")
    with pytest.raises(MissingError):
        sampler(hosts).start()
    assert hosts.closed
