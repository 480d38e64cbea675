"""What a generator draws: its bounds, means and periods, and that each kind of change has draws of its own."""

from itertools import pairwise
from typing import Any

import pytest

from wanbed.ground.strict_model import parse_model
from wanbed.testbed.network.links.drawn_timeline import drawn_timeline
from wanbed.testbed.network.links.link_spec import GenerateSpec
from wanbed.testbed.network.links.wan_link import LinkConditions

S = 10**9
RATE_BPS = 10**10
BASE = LinkConditions(10_000_000, RATE_BPS)


def drawn(
    key: str = "seed", base: LinkConditions = BASE, length: str = "10000s", **given: Any
) -> list[tuple[int, dict[str, Any]]]:
    return drawn_timeline(parse_model(GenerateSpec, {"length": length, **given}, "generate"), base, key)


def stays_s(timeline: list[tuple[int, dict[str, Any]]]) -> list[float]:
    return [(later_ns - at_ns) / S for (at_ns, _), (later_ns, _) in pairwise(timeline)]


def test_at_the_end_everything_is_as_without_a_generator() -> None:
    kinds: list[dict[str, Any]] = [
        {"diurnal": {"period": "20s", "low": "40%"}},
        {"latency_steps": {"every": "5s", "up_to": "15ms"}},
    ]
    for given in kinds:
        *timeline, (end_ns, values) = drawn(length="60s", **given)
        assert (end_ns, values) == (60 * S, {})
        assert all(0 <= at_ns < 60 * S for at_ns, _ in timeline)


def test_a_day_swings_once_between_all_of_the_rate_and_the_least() -> None:
    timeline = drawn(length="200s", diurnal={"period": "100s", "low": "40%"})[:-1]
    assert [at_ns for at_ns, _ in timeline] == list(range(0, 200 * S, S))
    factors = [values["rate"] / RATE_BPS for _, values in timeline]
    assert factors[:100] == pytest.approx(factors[100:])
    # Of a cosine that is seen a hundred times: its extremes, its mean, and that it falls for half of its period.
    assert max(factors) == pytest.approx(1, abs=0.001)
    assert min(factors) == pytest.approx(0.4, abs=0.001)
    assert sum(factors) / len(factors) == pytest.approx(0.7)
    assert sum(other < one for one, other in pairwise(factors[:101])) in {49, 50, 51}
    # Opposite each other in the day, two rates have the same mean as all.
    assert [one + other for one, other in zip(factors, factors[50:100], strict=False)] == pytest.approx([1.4] * 50)


def test_the_seed_draws_where_the_day_begins() -> None:
    begins = {
        round(drawn(f"seed {each}", length="2s", diurnal={"period": "1min", "low": "10%"})[0][1]["rate"] / RATE_BPS, 1)
        for each in range(50)
    }
    assert min(begins) < 0.2
    assert max(begins) > 0.9
    assert len(begins) > 5


def test_a_rate_jumps_from_the_first_level_to_any_other_and_stays_as_long_as_it_is_to() -> None:
    levels = {"100%": 1.0, "50%": 0.5, "20%": 0.2}
    timeline = drawn(markov={"levels": list(levels), "stay": "10s"})
    found = [values["rate"] / RATE_BPS for _, values in timeline[:-1]]
    assert timeline[0][0] == 0
    assert found[0] == 1
    assert all(one != other for one, other in pairwise(found))
    jumps = [other for one, other in pairwise(found) if one == 0.5]
    assert jumps.count(1) == pytest.approx(jumps.count(0.2), rel=0.3)
    stays = stays_s(timeline)[:-1]
    assert sum(stays) / len(stays) == pytest.approx(10, rel=0.1)
    # Exponentially distributed: a part of 1 / e lasts longer than the mean.
    assert sum(stay > 10 for stay in stays) / len(stays) == pytest.approx(0.368, abs=0.06)


def test_times_are_steps_and_one_at_least() -> None:
    timeline = drawn(step="500ms", length="1000s", markov={"levels": ["100%", "50%"], "stay": "100ms"})
    stays = stays_s(timeline)
    assert set(stays) <= {each * 0.5 for each in range(1, 10)}
    assert min(stays) == 0.5


def test_a_latency_steps_up_by_anything_up_to_the_most() -> None:
    timeline = drawn(latency_steps={"every": "10s", "up_to": "15ms"})
    added_ms = [values["latency"] / 10**6 - 10 for _, values in timeline[:-1]]
    assert 0 <= min(added_ms) < 0.5
    assert 14.5 < max(added_ms) <= 15
    assert sum(added_ms) / len(added_ms) == pytest.approx(7.5, abs=0.7)
    times = [timeline[0][0] / S, *stays_s(timeline)[:-1]]
    assert sum(times) / len(times) == pytest.approx(10, rel=0.1)
    # Until the first step the latency is the constant one.
    assert timeline[0][0] > 0


def test_a_link_goes_down_and_up_in_turn_and_is_up_in_the_end() -> None:
    timeline = drawn(outages={"mtbf": "20s", "mttr": "5s"})
    ups = [values["up"] for _, values in timeline[:-1]]
    assert ups[:2] == [False, True]
    assert all(one != other for one, other in pairwise(ups))
    assert timeline[-1] == (10000 * S, {})


def test_levels_and_days_are_multiplied_and_none_changes_what_is_drawn_for_the_other() -> None:
    day, levels = {"period": "50s", "low": "40%"}, {"levels": ["100%", "50%", "20%"], "stay": "7s"}
    both = drawn(length="300s", diurnal=day, markov=levels)
    by_day, by_level = drawn(length="300s", diurnal=day), drawn(length="300s", markov=levels)
    factors = dict(by_level[:-1])
    now = 1.0
    product = []
    for at_ns, values in by_day[:-1]:
        now = factors[at_ns]["rate"] / RATE_BPS if at_ns in factors else now
        product.append((at_ns, values["rate"] * now))
    assert [at_ns for at_ns, _ in both[:-1]] == [at_ns for at_ns, _ in product]
    assert [values["rate"] for _, values in both[:-1]] == pytest.approx([rate for _, rate in product], abs=1)


def test_what_is_drawn_holds_until_it_is_drawn_anew_whatever_else_changes() -> None:
    steps, outages = {"every": "7s", "up_to": "15ms"}, {"mtbf": "20s", "mttr": "3s"}
    both = drawn(length="300s", latency_steps=steps, outages=outages)
    alone = {
        "latency": drawn(length="300s", latency_steps=steps)[:-1],
        "up": drawn(length="300s", outages=outages)[:-1],
    }
    for name, expected in alone.items():
        seen: list[tuple[int, Any]] = []
        for at_ns, values in both[:-1]:
            if name in values and (not seen or seen[-1][1] != values[name]):
                seen.append((at_ns, values[name]))
        assert seen == [(at_ns, values[name]) for at_ns, values in expected]


def test_every_rate_that_a_link_has_changes_and_is_a_bit_a_second_at_least() -> None:
    given: dict[str, Any] = {"length": "10s", "diurnal": {"period": "4s", "low": "50%"}}
    for at_ns, values in drawn(base=LinkConditions(0, 1000, 600), **given)[:-1]:
        assert set(values) == {"rate", "node_pair_rate"}, at_ns
        assert values["node_pair_rate"] == pytest.approx(0.6 * values["rate"], abs=1)
    assert all(set(values) == {"node_pair_rate"} for _, values in drawn(base=LinkConditions(0, None, 6), **given)[:-1])
    slow = drawn(base=LinkConditions(0, 1), length="10s", diurnal={"period": "4s", "low": "1%"})
    assert {values["rate"] for _, values in slow[:-1]} == {1}
