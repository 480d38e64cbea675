"""Links that change while packets are on them: calibration of every condition, order, queues, and times.

In virtual time nothing that is asserted depends on luck: an echo crosses in exactly its latency.
"""

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.system.links.changing_links import (
    BEFORE_NS,
    BURST,
    END_NS,
    FULL_BYTES,
    MS,
    PHASES,
    S,
    network,
    probed,
    rtt_ms,
)
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip, printed_inside
from wanbed.testbed.measurement.impairment_measures import UDP_OVERHEAD_BYTES
from wanbed.testbed.testbed import bring_up

SEEN_NS = 8_000
"""A small frame takes 5 us at 100 Mbit/s and 12 us at 40 Mbit/s: so much later or earlier it meets other conditions."""
DOWN = next(at_ns for at_ns, conditions in PHASES.items() if not conditions.up)
FALLS = 1 * S
EVERYTHING_UP = DOWN + S


@pytest.fixture(scope="module")
def found() -> Any:
    return json.loads(printed_inside("tests.system.links.changing_links", kernel_or_skip()))


def changes_due_ns() -> list[int]:
    """When each direction is to change, one after the other."""
    return sorted((*PHASES,)[1:] * 2)


def test_every_condition_of_both_directions_is_calibrated_within_tolerance(found: Any) -> None:
    links = [link for link in found["calibrated"] if link["scope"] == "wan"]
    assert {(link["source"], link["condition"]) for link in links} == {
        (name, condition) for name in ("east", "west") for condition in ("0ns", "1s", "2s", "3s", "4s, down", "5s")
    }
    assert [link for link in links if not link["within"]] == []
    for link in links:
        conditions = PHASES[link["at_ns"]]
        if conditions.up:
            assert link["measured_rtt_ms"] == pytest.approx(2 * conditions.latency_ns / MS, abs=0.2)
        else:
            assert link["loss"]["measured"] == 1
        # Only the trunk of 50 Mbit/s can be filled by node pairs.
        assert ("measured_together_bps" in link) == (link["at_ns"] == 3 * S)


def test_changes_are_made_within_a_tenth_of_a_millisecond(found: Any) -> None:
    changes = found["probed"]["changes"]
    assert [change["due_ns"] for change in changes] == changes_due_ns()
    assert all(0 <= change["applied_ns"] - change["due_ns"] <= 100_000 for change in changes)


def test_packets_meet_a_change_within_a_tenth_of_a_millisecond(found: Any) -> None:
    """Small datagrams are sent every 50 us around a change. Before one, those of the burst wait in the queue."""
    sent = found["probed"]["sent"]
    for at_ns in (FALLS, DOWN, EVERYTHING_UP):
        near = [(sent_ns, arrived_ns) for sent_ns, arrived_ns in sent if abs(sent_ns - at_ns) <= MS]
        before_ns = _delay_ns(*near[0])
        for sent_ns, arrived_ns in near:
            delay_ns = _delay_ns(sent_ns, arrived_ns)
            alike = (delay_ns is None) == (before_ns is None) if at_ns == DOWN else _alike(delay_ns, before_ns)
            if sent_ns < at_ns or sent_ns > at_ns + 100_000:
                assert alike == (sent_ns < at_ns), (at_ns, sent_ns, delay_ns, before_ns)


def test_packets_stay_in_order_and_none_is_lost_but_while_the_link_is_down(found: Any) -> None:
    assert all(earlier < later for earlier, later in pairwise(found["probed"]["order"]))
    lost = [sent_ns for sent_ns, arrived_ns in found["probed"]["sent"] if arrived_ns is None]
    assert len(lost) > (EVERYTHING_UP - DOWN) // (5 * MS)
    assert all(DOWN <= sent_ns <= EVERYTHING_UP + 100_000 for sent_ns in lost)


def test_packets_that_wait_when_the_rate_falls_or_the_link_goes_down_all_arrive(found: Any) -> None:
    for at_s, flows in found["probed"]["bursts"].items():
        for flow in flows:
            assert len(flow) == BURST
            assert all(arrived_ns is not None for _, arrived_ns in flow)
            assert all(earlier < later for (_, earlier), (_, later) in pairwise(flow))
            # The last of them had not even left when the link changed.
            latency_ns = PHASES[int(at_s) * S - S].latency_ns
            assert flow[-1][1] > int(at_s) * S + latency_ns


def test_packets_that_wait_when_the_rate_rises_leave_at_the_new_rate(found: Any) -> None:
    """Two node pairs wait at 20 Mbit/s each when they come to share a trunk of 50."""
    at_s, before_bps, after_bps = 3, 20e6, 25e6
    waits_s = (BEFORE_NS - PHASES[2 * S].latency_ns) / S
    burst_bits = 8 * BURST * (FULL_BYTES + UDP_OVERHEAD_BYTES)
    empty_s = at_s + (burst_bits - before_bps * waits_s) / after_bps
    for flow in found["probed"]["bursts"][str(at_s)]:
        assert flow[-1][1] / S == pytest.approx(empty_s, abs=0.001)


def test_links_have_their_first_conditions_again_afterwards(found: Any) -> None:
    assert found["rtt_afterwards_ms"] == pytest.approx(2 * PHASES[0].latency_ns / MS, abs=0.2)


def _delay_ns(sent_ns: int, arrived_ns: int | None) -> int | None:
    return None if arrived_ns is None else arrived_ns - sent_ns


def _alike(one_ns: int | None, other_ns: int | None) -> bool:
    return one_ns == other_ns if one_ns is None or other_ns is None else abs(one_ns - other_ns) <= SEEN_NS


RUNS = 4
"""How often the courses run on the real clock, at most, until every change was seen by a probe that was on time."""
ON_TIME_NS = 5 * MS
WITHIN_NS = 10 * MS


def kept_waiting_ns(found: Any, due_ns: int) -> int:
    """How late the probe sent around a change, at worst: so long the machine may have kept others waiting too."""
    late_ns: int = max(
        sent_ns - planned_ns
        for planned_ns, (sent_ns, _) in zip(found["planned"], found["sent"], strict=True)
        if due_ns - WITHIN_NS <= planned_ns <= due_ns + WITHIN_NS
    )
    return late_ns


def undisturbed(found: Any) -> list[Any]:
    """The changes around which the probe itself was on time."""
    return [change for change in found["changes"] if kept_waiting_ns(found, change["due_ns"]) <= ON_TIME_NS]


@pytest.fixture(scope="module")
def on_the_real_clock(substrate: str) -> tuple[list[Any], float]:
    """What was probed, once or until every change was seen undisturbed, and the RTT afterwards."""
    runs: list[Any] = []
    with bring_up(network(), substrate=substrate) as testbed:
        while len(runs) < RUNS and {each["due_ns"] for run in runs for each in undisturbed(run)} < {*changes_due_ns()}:
            runs.append(probed(testbed, spacing_ns=5 * MS, near_ns=200_000))
        return runs, rtt_ms(testbed)


def latest_ms(found: Any) -> float:
    """How late a change was made, at worst."""
    return max(float(change["applied_ns"] - change["due_ns"]) / MS for change in found["changes"])


@pytest.mark.measures
def test_on_the_real_clock_changes_are_made_within_10_ms(on_the_real_clock: tuple[list[Any], float]) -> None:
    runs, _ = on_the_real_clock
    seen = [each for run in runs for each in undisturbed(run)]
    late_ms = [(each["applied_ns"] - each["due_ns"]) / MS for each in seen]
    error_ms = max(run["clock_error_ns"] for run in runs) / MS
    print(
        f"{len(runs)} runs: late by at most {max(late_ms, default=0):.2f} ms in {len(seen)} undisturbed changes, "
        f"{max(map(latest_ms, runs)):.2f} ms in all, clock known within {error_ms:.2f} ms"
    )
    assert {each["due_ns"] for each in seen} == {*changes_due_ns()}, f"the probe was not on time in {RUNS} runs"
    assert 0 <= min(late_ms) <= max(late_ms) <= WITHIN_NS / MS
    assert error_ms < 1


@pytest.mark.measures
def test_on_the_real_clock_packets_meet_changes_in_order(on_the_real_clock: tuple[list[Any], float]) -> None:
    runs, afterwards_ms = on_the_real_clock
    for found in runs:
        assert [change["due_ns"] for change in found["changes"]] == changes_due_ns()
        assert all(earlier < later for earlier, later in pairwise(found["order"]))
        lost = [sent_ns for sent_ns, arrived_ns in found["sent"] if arrived_ns is None]
        assert lost
        assert all(DOWN - MS <= sent_ns <= EVERYTHING_UP + (latest_ms(found) + 10) * MS for sent_ns in lost)
        for flows in found["bursts"].values():
            assert all(arrived_ns is not None for flow in flows for _, arrived_ns in flow)
        for at_ns, conditions in PHASES.items():
            if conditions.up:
                # After the packets that were sent before the change.
                settled_ns = at_ns + round((100 + latest_ms(found)) * MS)
                delays_ns = sorted(
                    arrived_ns - sent_ns
                    for sent_ns, arrived_ns in found["sent"]
                    if settled_ns <= sent_ns < min(at_ns + S - 30 * MS, END_NS) and arrived_ns is not None
                )
                # Packets may be kept waiting, and are never early.
                assert delays_ns[len(delays_ns) // 4] == pytest.approx(conditions.latency_ns, abs=0.5 * MS)
    assert afterwards_ms == pytest.approx(2 * PHASES[0].latency_ns / MS, abs=1.6)
