from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.results.perfetto.spans_on_paper import send, spans, texts
from wanbed.results.perfetto import counters
from wanbed.results.perfetto.counters import (
    BACKLOG,
    GPU,
    RETRANSMISSIONS,
    RTT,
    THROUGHPUT,
    WINDOW,
    Steps,
    background_steps,
    contention_of,
    gpu_steps,
    link_steps,
    tcp_steps,
)
from wanbed.results.perfetto.trial_tables import LinkCounters, TcpColumns
from wanbed.results.records.schema import GpuSample

MS = 1_000_000

HOSTS_OF_FLOW = {"source": "east-background-0", "destination": "west-background-0"}


def column(values: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def samples(*rows: tuple[int, str, str, str, int, int]) -> LinkCounters:
    """Rows of time, scope, source, destination, wire bytes, backlog bytes."""
    time_ns, scope, source, destination, wire_bytes, backlog = zip(*rows, strict=True) if rows else ((),) * 6
    return LinkCounters(
        column(time_ns), texts(scope), texts(source), texts(destination), column(wire_bytes), column(backlog)
    )


def steps_of(found: Steps) -> list[tuple[int, int]]:
    return list(zip(found.time_ns.tolist(), found.thousandths.tolist(), strict=True))


def test_throughput_is_what_was_sent_between_two_samples_and_backlog_what_stood_at_each() -> None:
    of = samples(
        (0, "link", "east", "west", 0, 0),
        (10 * MS, "link", "east", "west", 12_500, 800),
        (20 * MS, "link", "east", "west", 12_500, 300),
        (30 * MS, "link", "east", "west", 25_000, 0),
    )
    throughput, backlog = link_steps(of, 0, 40 * MS)
    assert (throughput.source, throughput.destination, throughput.quantity) == ("east", "west", THROUGHPUT)
    assert steps_of(throughput) == [(0, 10_000), (10 * MS, 0), (20 * MS, 10_000), (30 * MS, 0)]
    assert backlog.quantity == BACKLOG
    assert steps_of(backlog) == [(0, 0), (10 * MS, 800_000), (20 * MS, 300_000), (30 * MS, 0)]


@given(st.lists(st.tuples(st.integers(1, 10**9), st.integers(0, 10**9)), min_size=1, max_size=30))
def test_the_throughput_over_time_is_what_was_sent(pieces: list[tuple[int, int]]) -> None:
    times = np.cumsum([0, *(length for length, _ in pieces)])
    sent = np.cumsum([0, *(size for _, size in pieces)])
    rows = zip(times.tolist(), sent.tolist(), strict=True)
    throughput, _ = link_steps(samples(*((t, "link", "a", "b", size, 0) for t, size in rows)), 0, int(times[-1]))
    kbit = (throughput.thousandths[:-1] * np.diff(throughput.time_ns)).sum() / 1e9
    # Each stretch is rounded to 1 kbit/s.
    assert kbit * 1000 / 8 == pytest.approx(sent[-1], abs=0.5 * 1000 / 8 * times[-1] / 1e9 + 1e-6, rel=1e-9)


def test_a_cut_counter_begins_with_the_valid_value_and_ends_at_zero() -> None:
    times, values = counters.within(column([0, 10, 20, 30]), column([5, 6, 7, 8]), 15, 25)
    assert (times.tolist(), values.tolist()) == ([15, 20, 25], [6, 7, 0])


def test_a_step_that_changes_nothing_is_left_out() -> None:
    times, values = counters.within(column([0, 10, 10, 20, 30]), column([0, 5, 4, 4, 0]), 0, 40)
    assert (times.tolist(), values.tolist()) == ([0, 10, 30], [0, 4, 0])


def test_a_pair_of_hosts_has_no_backlog() -> None:
    of = samples((0, "node_pair", "h0", "h1", 0, 7), (10, "node_pair", "h0", "h1", 5, 7))
    assert [found.quantity for found in link_steps(of, 0, 10)] == [THROUGHPUT]


def test_of_many_pairs_of_hosts_the_busiest_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MAX_NODE_PAIRS", 2)
    rows = [(t, "node_pair", f"h{n}", "x", t * size, 0) for n, size in enumerate((3, 9, 1, 5)) for t in (0, 10)]
    assert [found.source for found in link_steps(samples(*rows), 0, 10)] == ["h1", "h3"]


def test_the_connections_of_a_pair_are_reported_together() -> None:
    of = TcpColumns(
        time_ns=column([5, 5, 5, 9]),
        source=texts(["a", "a", "a", "a"]),
        destination=texts(["b", "b", "b", "b"]),
        rtt_ns=column([30 * MS, 10 * MS, 80 * MS, 20 * MS]),
        cwnd_segments=column([10, 20, 30, 5]),
        mss_bytes=column([1000, 1000, 1000, 1448]),
        retransmitted_segments=column([1, 0, 2, 4]),
    )
    found = {each.quantity: steps_of(each) for each in tcp_steps(of, 0, 20)}
    assert found == {
        WINDOW: [(5, 60_000_000), (9, 7_240_000), (20, 0)],
        RTT: [(5, 30_000), (9, 20_000), (20, 0)],
        RETRANSMISSIONS: [(5, 3_000), (9, 4_000), (20, 0)],
    }


def test_an_even_number_of_connections_has_the_mean_of_the_two_in_the_middle() -> None:
    same = texts(["a", "a"])
    of = TcpColumns(column([5, 5]), same, same, column([10 * MS, 20 * MS]), *(column([1, 1]) for _ in range(3)))
    assert steps_of(list(tcp_steps(of, 0, 20))[1])[0] == (5, 15_000)


def test_a_trial_without_samples_has_no_counters() -> None:
    assert list(link_steps(samples(), 0, 10)) == []


def test_an_nvml_sample_is_valid_until_the_next_one() -> None:
    rows = [
        GpuSample(time_ns, device, utilization, None, 412.5, 1_980_000_000, None, 54, "")._asdict()
        for time_ns, device, utilization in ((0, "GPU-2", 0.5), (0, "GPU-1", None), (200 * MS, "GPU-2", 0.25))
    ]
    found = {(steps.source, steps.quantity.name): steps for steps in gpu_steps(rows, 0, 300 * MS)}
    assert sorted(found) == sorted(
        [("GPU-2", "NVML utilization")]
        + [(device, name) for device in ("GPU-1", "GPU-2") for name in ("power", "SM clock", "temperature")]
    )
    assert {steps.scope for steps in found.values()} == {GPU}
    assert steps_of(found["GPU-2", "NVML utilization"]) == [(0, 50_000), (200 * MS, 25_000), (300 * MS, 0)]
    assert steps_of(found["GPU-1", "SM clock"]) == [(0, 1_980_000), (300 * MS, 0)]
    assert steps_of(found["GPU-1", "power"]) == [(0, 412_500), (300 * MS, 0)]


def test_the_goodput_of_a_flow_in_the_background_is_what_all_its_connections_got() -> None:
    rows = [
        {"time_ns": at_ns, "flow": flow, "connection": number, **HOSTS_OF_FLOW, "received_bytes": received}
        for flow, number, counts in (
            ("backup", 0, (0, 12_500, 12_500)),
            ("backup", 1, (0, 0, 25_000)),
            ("idle", 0, (0,)),
        )
        for at_ns, received in zip((0, 10 * MS, 20 * MS), counts, strict=False)
    ]
    backup, idle = background_steps(rows, 0, 30 * MS)
    assert (backup.source, backup.destination) == ("east-background-0", "west-background-0")
    assert (backup.quantity.name, backup.quantity.unit) == ("goodput of backup", "Mbit/s")
    assert steps_of(backup) == [(0, 10_000), (10 * MS, 20_000), (20 * MS, 0)]
    assert steps_of(idle) == [(0, 0)]


FACTS = {"devices": [{"host": host, "gpu": 0, "device": "GPU-1"} for host in ("e0", "w0")]}


def test_computation_that_shares_a_device_is_contended_and_nothing_else_is() -> None:
    of = spans(
        {"host": "e0", "start_ns": 0, "end_ns": 100},
        {"host": "w0", "kind": "backward", "start_ns": 60, "end_ns": 200},
        {"host": "w0", "kind": "prefill", "start_ns": 300, "end_ns": 400},
        {"host": "e0", "kind": "optimizer", "start_ns": 310, "end_ns": 320},
        {"host": "elsewhere", "start_ns": 0, "end_ns": 400},
        send(0, 0, 400, host="e0"),
    )
    assert contention_of(of, FACTS).tolist() == [40, 40, 10, 10, 0, 0]


def test_a_trial_without_devices_has_no_contention() -> None:
    of = spans({"host": "e0"}, {"host": "w0"})
    assert contention_of(of, {}).tolist() == [0, 0]
    assert contention_of(spans(), FACTS).tolist() == []
