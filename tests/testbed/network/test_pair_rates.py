"""What limits a node pair whose rate changes, and by how much its packets may be early."""

from functools import partial

import pytest

from wanbed.testbed.network.ethernet import FRAME_BYTES
from wanbed.testbed.network.gateway_plan import SharedRate
from wanbed.testbed.network.pair_rates import PairRates, early_s, pair_rates
from wanbed.testbed.network.shared_rate import Timers, shared_rate

MBIT, FRAMES = 10**6, 2


def limits(rates_bps: list[int | None], timers: Timers = Timers.VIRTUAL) -> PairRates:
    shared = partial(shared_rate, timers=timers, super_packet_bytes=FRAMES * FRAME_BYTES)
    return pair_rates(rates_bps, timers, shared)


def test_a_rate_that_stays_is_the_leafs_alone() -> None:
    assert limits([8 * MBIT]) == PairRates(MBIT, (None,))
    assert limits([8 * MBIT, 8 * MBIT]) == PairRates(MBIT, (None, None))
    assert limits([None, None]) == PairRates(None, (None, None))


def test_in_virtual_time_only_the_highest_rate_has_a_bucket_of_a_packet() -> None:
    packet_us = FRAMES * FRAME_BYTES
    found = limits([8 * MBIT, 4 * MBIT])
    assert found == PairRates(MBIT, (SharedRate(MBIT, packet_us), SharedRate(MBIT // 2, 1)))


def test_on_the_real_clock_each_rate_has_the_bucket_of_a_shared_one() -> None:
    rates_bps: list[int | None] = [800 * MBIT, 400 * MBIT]
    found = limits(rates_bps, Timers.GUEST)
    assert found.above == tuple(shared_rate(rate_bps, Timers.GUEST, 0) for rate_bps in (800 * MBIT, 400 * MBIT))


def test_an_unlimited_rate_leaves_the_leaf_unlimited_and_has_nothing_above() -> None:
    found = limits([None, 8 * MBIT])
    assert found == PairRates(None, (None, SharedRate(MBIT, 1)))


def test_a_packet_is_early_by_its_own_time_and_the_buckets() -> None:
    assert early_s(None, 2, FRAME_BYTES) == 0
    assert early_s(SharedRate(MBIT, 1), 3, FRAME_BYTES) == pytest.approx(3 * FRAME_BYTES / MBIT + 1e-6)
    assert early_s(SharedRate(MBIT, 500), None, FRAME_BYTES) == pytest.approx(2 * FRAME_BYTES / MBIT + 5e-4)
