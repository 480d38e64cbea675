"""One transfer over a link that changes, over TCP: each case is worked out beside it."""

from typing import Any

import pytest

from runner.simulator.deadlock import SimulationError
from runner.simulator.variant_simulation import simulate_variant
from runner.tcp.effects import IDEAL, TcpEffects
from runner.validation.case import arrival_ns, chain
from tests.runner.simulator.network.changing_topologies import Changes, with_courses
from tests.runner.simulator.variants import sweep_point

MS = 10**6
WINDOW_ONLY = TcpEffects(window=True, slow_start=False, headers=False)
OPEN = {"window": "64MiB"}
"""44.8 MiB in flight: at 1 Gbit/s far more than the line holds in a round trip of 40 ms."""


def arrives_ms(
    there: Changes, back: Changes | None = None, *, size: str = "12500000B", effects: TcpEffects = IDEAL, **options: Any
) -> float:
    """When a transfer of 12.5 MB arrives after its begin, at 10 ms: 1 Gbit/s, 20 ms from here to there and back."""
    point = sweep_point(
        {
            "topology": chain([20 * MS], node_pair_rate="1Gbit"),
            "compute": {"activation": size, "gradient": "1B", "forward": "10ms"},
            "training": {"iterations": 1, "warmup": 0, "stages": 2, "microbatches": 1},
            "engine": "simulate",
            "variants": [{"name": "any", "schedule": "gpipe", "transport": options.pop("transport", {})}],
        }
    )
    topology = with_courses(point.topology, there, back, **options)
    return arrival_ns(simulate_variant(topology, point.variants[0], 1, effects=effects), 1) / MS


def test_what_windows_have_let_out_leaves_at_the_rate_at_which_the_line_accepted_it() -> None:
    # The window of 44.8 MiB lets out all 12.5 MB at once, before the rate changes.
    assert arrives_ms([(30 * MS, {"node_pair_rate_bps": 10**8})], effects=WINDOW_ONLY, transport=OPEN) == 120


def test_what_had_been_let_out_arrives_although_the_link_is_down_by_then() -> None:
    down = [(30 * MS, {"up": False}), (3000 * MS, {})]
    assert arrives_ms(down, effects=WINDOW_ONLY, transport=OPEN) == 120


def test_a_window_beyond_what_the_line_holds_hides_a_longer_latency() -> None:
    # Of 100 MB 47 MB are always let out, 376 ms, so that bytes never wait for a round trip of 100 ms.
    longer = [(310 * MS, {"latency_ns": 50 * MS})]
    assert arrives_ms(longer, size="100000000B", effects=WINDOW_ONLY, transport=OPEN) == 820


def test_a_window_that_the_line_holds_waits_for_the_longer_round_trip() -> None:
    # 2.94 MB in a round trip of 40 ms, then of 100 ms: the rest of the transfer takes 2.5 times as long.
    transport = {"window": "4MiB"}
    size = "60000000B"
    before = arrives_ms([(10**15, {"latency_ns": 1})], size=size, effects=WINDOW_ONLY, transport=transport)
    after = arrives_ms([(10 * MS + 1, {"latency_ns": 50 * MS})], size=size, effects=WINDOW_ONLY, transport=transport)
    assert after == pytest.approx(2.5 * before, rel=0.06)


@pytest.mark.parametrize(("effects", "off"), [(IDEAL, 0.002), (WINDOW_ONLY, 0.035)])
def test_rates_that_alternate_quickly_are_their_mean(effects: TcpEffects, off: float) -> None:
    # 1 Gbit/s, 500 Mbit/s and 1.5 Gbit/s, 0.5 ms each: 1 Gbit/s on average.
    rates = [(MS // 2, {"node_pair_rate_bps": 500_000_000}), (MS, {"node_pair_rate_bps": 1_500_000_000})]
    arrived = arrives_ms(rates, size="125000000B", effects=effects, transport=OPEN, period_ns=3 * MS // 2)
    # How much of a window waits is estimated with the present rate: much faster changes than round trips blur it.
    assert arrived == pytest.approx(1020, rel=off)


def test_an_outage_of_acknowledgements_alone_delays_only_what_waits_for_them() -> None:
    down = [(30 * MS, {"up": False}), (500 * MS, {})]
    assert arrives_ms([], down, effects=WINDOW_ONLY, transport=OPEN) == 120
    transport = {"window": "1MiB"}
    constant = arrives_ms([(10**15, {"latency_ns": 1})], effects=WINDOW_ONLY, transport=transport)
    delayed = arrives_ms([], down, effects=WINDOW_ONLY, transport=transport)
    # From the first timeout that finds the way back: 350 and 835 ms after a byte that left between 10 and 50 ms.
    assert 835 < delayed - constant < 915


def test_a_transfer_goes_on_with_a_retransmission_long_after_the_outage() -> None:
    # Sent again 105, 350, 835 and 1840 ms after the begin (test_retransmission.py), for which the last is too early.
    down = [(5 * MS, {"up": False}), (1999 * MS, {})]
    # The next: 192 ticks, late by 4.5 of them.
    assert arrives_ms(down, effects=WINDOW_ONLY, transport=OPEN) == 1840 + 1965 + 120


def test_tcp_gives_up_and_training_ends_with_a_line() -> None:
    with pytest.raises(SimulationError, match=r"down .* for longer than TCP sends again, 924\.6 s"):
        arrives_ms([(5 * MS, {"up": False})], effects=WINDOW_ONLY)
    with pytest.raises(SimulationError, match=r"down from 0\.01 s on for ever"):
        arrives_ms([(5 * MS, {"up": False})])


def test_without_windows_a_transfer_goes_on_at_each_rate_that_its_node_pair_has() -> None:
    # It begins at 10 ms, from which its arrival counts. 20 ms at 1 Gbit/s carry 2.5 of the 12.5 MB, 100 at 400 Mbit/s
    # 5 more, and 5 are left for 100 Mbit/s.
    rates = [(30 * MS, {"node_pair_rate_bps": 4 * 10**8}), (130 * MS, {"node_pair_rate_bps": 10**8})]
    assert arrives_ms(rates) == 20 + 100 + 400 + 20
    # A narrow line that widens.
    assert arrives_ms([(1 * MS, {"node_pair_rate_bps": 10**8}), (510 * MS, {})]) == 500 + 50 + 20


def test_a_trunk_changes_for_what_left_a_latency_before() -> None:
    # From 30 ms on at the far end of the link: for all that leaves after 10 ms.
    assert arrives_ms([(30 * MS, {"rate_bps": 10**8})]) == 1000 + 20
    # From 80 ms on: 50 ms at 1 Gbit/s are half of it.
    assert arrives_ms([(80 * MS, {"rate_bps": 10**8})]) == 50 + 500 + 20


def test_a_latency_that_becomes_longer_delays_what_leaves_from_then_on() -> None:
    assert arrives_ms([(50 * MS, {"latency_ns": 50 * MS})]) == 100 + 50
    assert arrives_ms([(111 * MS, {"latency_ns": 50 * MS})]) == 100 + 20


def test_without_tcp_a_transfer_goes_on_as_soon_as_the_link_is_up() -> None:
    # Down from 30 ms to 500: what had not left by then waits.
    assert arrives_ms([(30 * MS, {"up": False}), (500 * MS, {})]) == 490 + 80 + 20
