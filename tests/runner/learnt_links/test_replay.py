"""The queue serves in order, never faster than its rate, and lets in what fits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.runner.learnt_links.replay import ServiceRate, serve

packets = st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(1, 1500)), min_size=1, max_size=60)


@given(packets=packets, buffer_bytes=st.sampled_from([1500.0005, 4000.0005, float("inf")]))
def test_packets_leave_as_if_served_one_by_one(packets: list[tuple[int, int]], buffer_bytes: float) -> None:
    packets = sorted(packets)
    arrivals, sizes = (np.array(each, dtype=np.float64) for each in zip(*packets, strict=True))
    served = serve(arrivals, sizes, ServiceRate.constant(8e6), buffer_bytes)  # A byte takes 1000 ns.
    free_ns = 0.0
    for number, (at_ns, size) in enumerate(packets):
        done_ns = max(at_ns, free_ns) + size * 1000
        fits = (done_ns - at_ns) / 1000 <= buffer_bytes
        assert bool(served.let_in[number]) == fits
        if fits:
            free_ns = done_ns
            assert served.departure_ns[number] == pytest.approx(done_ns, abs=1)


def test_a_rate_that_falls_slows_what_is_being_sent() -> None:
    rate = ServiceRate(np.array([0.0, 1e6]), np.array([8e6, 4e6]))  # 1000 bytes in the first millisecond.
    assert serve(np.zeros(1), np.full(1, 2000.0), rate).departure_ns[0] == pytest.approx(3e6)


@given(st.floats(0, 1e10))
def test_the_bytes_served_and_their_time_are_inverse(at_ns: float) -> None:
    rate = ServiceRate(np.array([0.0, 1e6, 5e9]), np.array([8e6, 4e9, 1e6]))
    assert rate.time_ns(rate.served_bytes(np.array([at_ns])))[0] == pytest.approx(at_ns, abs=1e-3, rel=1e-9)


def test_blocks_with_and_without_overflow_make_one_queue() -> None:
    draw = np.random.default_rng(3)
    arrivals = np.cumsum(draw.exponential(1e6, 20_000))
    whole = serve(arrivals, draw.choice([300.0, 1500.0], 20_000), ServiceRate.constant(8e6), 20_000.0)
    assert 0.5 < whole.let_in.mean() < 1
    assert (np.diff(whole.departure_ns[whole.let_in]) > 0).all()
    assert (whole.departure_ns - arrivals)[whole.let_in].max() <= 20_000 * 1000 + 1
