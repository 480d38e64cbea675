import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.runner.simulator.rings.ring_all_reduce import RingCut, all_reduce_ends_ns
from wanbed.runner.tcp.channel import PrivateChannel
from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.network.flow_model.striping import Striping
from wanbed.testbed.network.flow_model.window import TcpWindow

MEGABYTE = 10**6


def ring(rates_bps: list[int | None], latency_ns: int = 0) -> list[PrivateChannel]:
    return [
        PrivateChannel(Line(rate, latency_ns, headers=False), TcpWindow(2 * latency_ns, None, None))
        for rate in rates_bps
    ]


@pytest.mark.parametrize("replicas", [2, 3, 5, 8])
def test_on_equal_lines_it_takes_twice_the_share_of_the_others(replicas: int) -> None:
    # 8 Mbit/s carry a megabyte a second: each replica sends 2 (P - 1)/P of the data.
    size_bytes = replicas * MEGABYTE
    ends_ns = all_reduce_ends_ns([0] * replicas, ring([8 * MEGABYTE] * replicas), RingCut.of(size_bytes, replicas))
    assert ends_ns == [2 * (replicas - 1) * 10**9] * replicas


def test_where_the_rate_costs_nothing_every_step_takes_a_latency() -> None:
    assert all_reduce_ends_ns([0] * 4, ring([None] * 4, 50), RingCut.of(MEGABYTE, 4)) == [6 * 50] * 4


def test_a_latency_shorter_than_a_segment_counts_once() -> None:
    # Segments of a second, chunk by chunk: the next step begins while the last one is still on its way.
    assert (
        all_reduce_ends_ns([0] * 2, ring([8 * MEGABYTE] * 2, 10**8), RingCut.of(2 * MEGABYTE, 2))
        == [2 * 10**9 + 10**8] * 2
    )


def test_a_segments_first_chunk_and_its_rest_are_dealt_to_connections_by_whole_chunks() -> None:
    cut = RingCut.of(2 * 10 * MEGABYTE, 2)
    first_bytes, _ = cut.parts_bytes
    assert cut.stripings(4) == (Striping(4, 1, first_bytes), Striping(4, cut.chunks - 1, cut.chunk_bytes))
    assert cut.stripings(1) == (None, None)


def test_everybody_waits_for_the_last_to_begin() -> None:
    late_ns = 5 * 10**9
    ends_ns = all_reduce_ends_ns([0, late_ns, 0], ring([8 * MEGABYTE] * 3), RingCut.of(3 * MEGABYTE, 3))
    assert max(ends_ns) == late_ns + 4 * 10**9
    assert min(ends_ns) > late_ns


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(10**6, 10**9)), min_size=2, max_size=6),
    st.integers(1, 10**7),
    st.integers(0, 10**8),
)
def test_a_ring_waits_for_the_last_to_begin_and_for_the_slowest_link(
    replicas: list[tuple[int, int]], size_bytes: int, latency_ns: int
) -> None:
    starts_ns = [start_ns for start_ns, _ in replicas]
    ends_ns = all_reduce_ends_ns(
        starts_ns, ring([rate for _, rate in replicas], latency_ns), RingCut.of(size_bytes, len(replicas))
    )
    assert min(ends_ns) >= max(starts_ns)
    count = len(replicas)
    for (start_ns, rate), end_ns in zip(replicas, ends_ns, strict=True):
        assert end_ns >= start_ns + 2 * (count - 1) * (size_bytes // count) * 8 * 10**9 // rate


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(10**6, 10**9)), min_size=1, max_size=3),
    st.integers(2, 4),
    st.integers(0, 10**8),
)
def test_a_ring_that_repeats_is_known_from_one_of_its_repetitions(
    replicas: list[tuple[int, int]], times: int, latency_ns: int
) -> None:
    starts_ns, rates_bps = ([*column] for column in zip(*replicas, strict=True))
    cut = RingCut.of(MEGABYTE, len(replicas) * times)
    whole = all_reduce_ends_ns(starts_ns * times, ring(rates_bps * times, latency_ns), cut)
    part = all_reduce_ends_ns(starts_ns, ring(rates_bps, latency_ns), cut)
    assert whole == part * times
