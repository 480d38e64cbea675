"""Node pairs, trunks and ports are shared first between node pairs and then between channels."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.runner.simulator.channels.changing_topologies import Changes, with_courses
from tests.support.runner.small_experiment import sweep_point
from tests.support.simulator.events import run_all
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import PAYLOAD_BYTES
from wanbed.flow.window import LEAST_TIMEOUT_NS
from wanbed.runner.resolve.connections import count_connections
from wanbed.runner.resolve.placement import StagePlace
from wanbed.runner.resolve.tcp_effects import IDEAL, TcpEffects
from wanbed.runner.simulator.channels.network import Ends, Network

MEGABYTE = 10**6
S = 10**9
WINDOW_ONLY = TcpEffects(window=True, slow_start=False, headers=False)
OUT, BACK = ("east-0.0", "west-0.0"), ("west-0.0", "east-0.0")


def network(*, gpus: int = 4, window: str = "6MiB", effects: TcpEffects = IDEAL, **limits: Any) -> Network:
    """Two datacenters of two hosts; one pipeline, a stage on each GPU, those of east first."""
    wan = {"latency": "0ms", **limits.pop("wan", {})}
    document = {
        "topology": {
            "datacenters": [{"name": name, "hosts": 2, "gpus_per_host": gpus} for name in ("east", "west")],
            "intra": {"latency": "0ms", **limits.pop("intra", {})},
            "wan": wan,
            "links": limits.pop("links", []),
        },
        "compute": {"activation": "1B"},
        "training": {"stages": 4 * gpus, "pipelines": 1, "microbatches": 1, "iterations": 1, "warmup": 0},
        "engine": "simulate",
        "variants": [{"name": "any", "schedule": "gpipe", "transport": {"connections": 1, "window": window}}],
    }
    point = sweep_point(document)
    (variant,) = point.variants
    places = variant.placement.places
    pairs = [(one, other) for one in places for other in places if one is not other]
    connections = count_connections(point.topology, pairs, variant.transport)
    return Network(point.topology, connections, variant, effects)


def by_name(of: Network) -> dict[str, StagePlace]:
    return {f"{place.host.name}.{place.gpu}": place for place in of.variant.placement.places}


def seconds(of: Network, transfers: dict[tuple[str, str], int]) -> list[float]:
    """Return when simultaneous transfers of 1 MB have left, given their number from one GPU's place to another's."""
    places = by_name(of)
    events = EventQueue()
    wanted: dict[Ends, int] = {(places[one], places[other]): count for (one, other), count in transfers.items()}
    channels = of.channels(wanted, events)
    ends: dict[Ends, int] = {}

    def note(pair: Ends, _: int, end_ns: int) -> None:
        ends[pair] = end_ns

    for pair, count in wanted.items():
        for _ in range(count):
            channels[pair].queue(0, MEGABYTE, partial(note, pair))
    run_all(events)
    return [round(ends[pair] / 1e9, 6) for pair in wanted]


def known_at_once(of: Network, *ways: tuple[str, str]) -> list[bool]:
    """Return of each channel whether it knows when a transfer will have left as soon as it is queued.

    Only one does that shares nothing, and whose acknowledgements no other delays.
    """
    places = by_name(of)
    channels = of.channels([(places[one], places[other]) for one, other in ways], EventQueue())
    told: list[tuple[int, int]] = []
    known: list[bool] = []
    for one, other in ways:
        before = len(told)
        channels[places[one], places[other]].queue(0, MEGABYTE, lambda *times_ns: told.append(times_ns))
        known.append(len(told) > before)
    return known


def changing(of: Network, changes: Changes) -> Network:
    """Return the network with links that change."""
    return replace(of, topology=with_courses(of.topology, changes))


DOWN_EAST, ACROSS = ("east-1.0", "west-0.1"), ("east-1.0", "west-1.0")
"""From the other host of east, to the same host of west and to the other one."""

SAME_PAIR = ("east-0.1", "west-0.1")
"""Between the hosts of ``OUT``, and other GPUs."""

NARROW_PAIR = {"wan": {"node_pair_rate": "8Mbit"}}
NARROW_PORT = {"intra": {"rate": "8Mbit"}}
AT_ONCE: dict[str, Any] = {"wan": {"node_pair_rate": "8Mbit", "latency": "1ms"}, "effects": WINDOW_ONLY}


@pytest.mark.parametrize(
    ("limits", "transfers", "left_s"),
    [
        # Half of 2 MB/s each: 1 s for the pair with one transfer, then all of it for what the three have left.
        pytest.param(
            {"wan": {"rate": "16Mbit"}},
            [OUT, SAME_PAIR, ("east-0.2", "west-0.2"), ACROSS],
            [2.0, 2.0, 2.0, 1.0],
            id="a trunk is shared between node pairs however many channels each has",
        ),
        pytest.param(NARROW_PAIR, [OUT, SAME_PAIR], [2.0, 2.0], id="a node pair is shared between its channels"),
        pytest.param({"wan": {"rate": "8Mbit"}}, [OUT, BACK], [1.0, 1.0], id="both directions are independent"),
        pytest.param(
            NARROW_PORT,
            [OUT, ("west-1.0", "west-0.1")],
            [2.0, 2.0],
            id="what arrives at a host from anywhere shares its port",
        ),
        pytest.param(
            NARROW_PORT,
            [("east-0.0", "east-1.0"), ("east-0.1", "west-0.0")],
            [1.0, 1.0],
            id="what a host sends to several is not limited by its own port",
        ),
        pytest.param(
            {"intra": {"rate": "80Mbit"}, **NARROW_PAIR},
            [OUT, DOWN_EAST],
            [1.0, 1.0],
            id="a port wider than all its senders does not limit",
        ),
        pytest.param(
            {"window": "16MiB", **AT_ONCE},
            [OUT, SAME_PAIR],
            [1.0, 2.0],
            id="what windows have let out at once waits in line",
        ),
    ],
)
def test_trunks_node_pairs_and_ports_are_shared(
    limits: dict[str, Any], transfers: list[tuple[str, str]], left_s: list[float]
) -> None:
    assert seconds(network(**limits), dict.fromkeys(transfers, 1)) == left_s


def test_data_that_windows_let_out_gradually_is_interleaved() -> None:
    assert seconds(network(window="16KiB", **AT_ONCE), dict.fromkeys((OUT, SAME_PAIR), 1))[0] > 1.9


def test_a_line_is_as_fast_as_the_narrowest_of_what_it_crosses() -> None:
    of = network(intra={"rate": "8Mbit"}, wan={"rate": "80Mbit", "node_pair_rate": "40Mbit"})
    places = of.variant.placement.places
    assert of.line((places[0], places[-1])).rate_bps == 8 * MEGABYTE


def test_a_trunk_that_carries_all_its_node_pairs_at_once_limits_none() -> None:
    pairs = [OUT, ACROSS]
    assert known_at_once(network(wan={"rate": "16Mbit", "node_pair_rate": "8Mbit"}), *pairs) == [True, True]
    assert known_at_once(network(wan={"rate": "15999999bit", "node_pair_rate": "8Mbit"}), *pairs) == [False, False]
    # One that nothing narrower comes before limits also a single node pair.
    alone = network(wan={"rate": "8Mbit"})
    assert known_at_once(alone, *pairs[:1]) == [True]
    assert seconds(alone, {pairs[0]: 1}) == [1.0]


def test_what_reaches_a_port_is_as_little_as_the_narrowest_before_it_lets_through() -> None:
    arriving = [OUT, DOWN_EAST]
    wide = network(intra={"rate": "80Mbit"}, wan={"rate": "80Mbit", "node_pair_rate": "8Mbit"})
    assert known_at_once(wide, *arriving) == [True, True]
    for narrow in ({"rate": "80Mbit", "node_pair_rate": "8Mbit"}, {"rate": "16Mbit", "node_pair_rate": "80Mbit"}):
        assert seconds(network(intra={"rate": "80Mbit"}, wan=narrow), dict.fromkeys(arriving, 1)) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("wan", "changes", "transfers", "left_s"),
    [
        # 1 MB/s each before, and afterwards half of the 2 MB/s that the trunk carries; one of them alone has it all.
        *(
            pytest.param(
                {"rate": "16Mbit", "node_pair_rate": "8Mbit"},
                [(S // 2, {"node_pair_rate_bps": 16 * MEGABYTE})],
                transfers,
                left_s,
                id=f"node pairs that widen share a trunk from then on: {len(transfers)}",
            )
            for transfers, left_s in (((OUT, ACROSS), [1.0, 1.0]), ((OUT,), [0.75]))
        ),
        # 1 MB/s each for half a second, then half of 1 MB/s.
        *(
            pytest.param(
                {"node_pair_rate": "8Mbit", **wan},
                [(S // 2, {"rate_bps": 8 * MEGABYTE})],
                (OUT, ACROSS),
                [1.5, 1.5],
                id=f"a trunk that narrows is shared whatever it had before: {wan}",
            )
            for wan in ({"rate": "80Mbit"}, {})
        ),
        pytest.param(
            {},
            [(0, {}), (S // 2, {"node_pair_rate_bps": 8 * MEGABYTE})],
            (OUT,),
            [0.0],
            id="a node pair has no rate before its link has one",
        ),
        pytest.param(
            {"node_pair_rate": "8Mbit"},
            [(S // 2, {"node_pair_rate_bps": 4 * MEGABYTE})],
            (OUT,),
            [1.5],
            id="a node pair narrows with its link",
        ),
    ],
)
def test_what_changes_counts_from_then_on(
    wan: dict[str, Any], changes: Changes, transfers: tuple[tuple[str, str], ...], left_s: list[float]
) -> None:
    assert seconds(changing(network(wan=wan), changes), dict.fromkeys(transfers, 1)) == left_s


def test_a_part_has_its_share_of_every_trunk_and_all_of_a_node_pair() -> None:
    of = network(wan={"rate": "16Mbit", "node_pair_rate": "12Mbit"})
    assert seconds(of, {OUT: 1}) == [round(1 / 1.5, 6)]
    assert seconds(replace(of, equal_parts=2), {OUT: 1}) == [1.0]
    assert seconds(replace(network(wan={"rate": "3bit"}), equal_parts=4), {OUT: 1}) == [8.0 * MEGABYTE]


def test_acknowledgements_wait_behind_windows_of_an_eighth_of_what_the_line_holds_at_least() -> None:
    def both_ways(latency_ns: int, window: str = "1MiB", back: str = "4Gbit") -> list[bool]:
        links = [
            {"from": "east", "to": "west", "latency": f"{latency_ns}ns", "node_pair_rate": "4Gbit"},
            {"from": "west", "to": "east", "latency": f"{latency_ns}ns", "node_pair_rate": back},
        ]
        return known_at_once(network(window=window, effects=WINDOW_ONLY, wan={}, links=links), OUT, BACK)

    window_bytes = network(window="1MiB").variant.tcp.window_bytes
    # Half a byte a nanosecond: a line holds a byte for each nanosecond of its latency, and one that is under way.
    assert both_ways(8 * window_bytes - 1) == [False, False]
    assert both_ways(8 * window_bytes) == [True, True]
    # One direction that others wait behind is enough: both are looked at.
    assert both_ways(8 * window_bytes, back="3Gbit") == [False, False]


def test_acknowledgements_wait_only_where_both_ways_are_used_and_windows_and_round_trips_count() -> None:
    near: dict[str, Any] = {"wan": {"latency": "1ms", "node_pair_rate": "8Mbit"}}
    assert known_at_once(network(effects=WINDOW_ONLY, **near), OUT, BACK) == [False, False]
    assert known_at_once(network(effects=WINDOW_ONLY, **near), OUT) == [True]
    assert known_at_once(network(effects=WINDOW_ONLY, **near), OUT, ("west-1.0", "east-0.0")) == [True, True]
    assert known_at_once(network(effects=IDEAL, **near), OUT, BACK) == [True, True]
    at_once = network(effects=WINDOW_ONLY, wan={"latency": "0ms", "node_pair_rate": "8Mbit"})
    assert known_at_once(at_once, OUT, BACK) == [True, True]


def test_packets_are_drawn_only_on_links_that_lose_some() -> None:
    lossy = network(wan={"loss": "1%"}, effects=TcpEffects())
    within = ("east-0.0", "east-1.0")
    assert known_at_once(lossy, within, OUT) == [True, False]
    assert known_at_once(replace(lossy, effects=IDEAL), within, OUT) == [True, True]


def test_the_greeting_of_a_rank_that_was_called_is_in_flight_when_training_begins_over_the_slowest_lines() -> None:
    links = [{"between": ["east", "west"], "latency": "20ms"}]
    of = replace(network(links=links, intra={"latency": "1ms"}, effects=TcpEffects()), packets=True)
    ways = [OUT, BACK, ("east-0.0", "east-1.0"), ("east-1.0", "east-0.0")]
    places, events = by_name(of), EventQueue()
    channels = of.channels([(places[one], places[other]) for one, other in ways], events)
    left_ms: list[float] = []
    for one, other in ways:
        size_bytes = 10 * PAYLOAD_BYTES
        channels[places[one], places[other]].queue(0, size_bytes, lambda _, last_ns: left_ms.append(last_ns / 1e6))
    run_all(events)
    # Nine of the ten segments go at once; the last follows when the greeting has been acknowledged.
    assert sorted(left_ms) == [0, 0, 0, 20]


@pytest.mark.parametrize(("beside", "last_ms"), [(("east-1.0", "east-0.0"), 3), (("east-0.0", "east-0.1"), 0)])
def test_training_begins_20_ms_after_the_first_call_if_two_ranks_are_on_one_host(
    beside: tuple[str, str], last_ms: float
) -> None:
    # The first of two ranks on a host calls before the other listens, and calls again. By then the other greetings,
    # of 15 ms, are long acknowledged, and the first window is whole.
    of = replace(network(wan={"latency": "3ms"}, effects=TcpEffects()), packets=True)
    places, events = by_name(of), EventQueue()
    channels = of.channels([(places[one], places[other]) for one, other in (OUT, BACK, beside)], events)
    left_ms: list[float] = []
    channels[places[BACK[0]], places[BACK[1]]].queue(
        0, 10 * PAYLOAD_BYTES, lambda _, last_ns: left_ms.append(last_ns / 1e6)
    )
    run_all(events)
    assert left_ms == [pytest.approx(last_ms, abs=0.02)]


def test_a_timeout_that_an_emulation_does_not_dilate_is_shorter_in_its_time() -> None:
    of = network(wan={"latency": "10ms", "node_pair_rate": "8Mbit"}, effects=WINDOW_ONLY)
    ends = of.variant.placement.places[0], of.variant.placement.places[-1]
    timeouts_ns = [replace(of, dilation=dilation).window(ends).timeout_ns for dilation in (1.0, 4.0)]
    assert timeouts_ns[0] - timeouts_ns[1] == LEAST_TIMEOUT_NS - LEAST_TIMEOUT_NS // 4


def history_within(watched: Collection[str], transfers: Sequence[tuple[str, str]]) -> list[int]:
    """Return the history of the first of several transfers of 1 MB, at a port of 1 MB/s each."""
    of = network(intra={"rate": "8Mbit"})
    places = by_name(of)
    events = EventQueue()
    ends = [(places[one], places[other]) for one, other in transfers]
    channels = of.channels(ends, events, watched)
    for each in ends:
        channels[each].queue(0, MEGABYTE, lambda *_: None)
    run_all(events)
    return list(channels[ends[0]].history)


def test_what_arrives_at_a_watched_host_is_remembered() -> None:
    transfers = [("east-0.0", "east-1.0"), ("west-0.0", "east-1.1")]
    assert history_within({"east-1"}, transfers) == [0, 2 * S, MEGABYTE]
    assert history_within({"east-0"}, transfers) == []


def test_only_what_crosses_the_wan_is_remembered() -> None:
    transfers = [("east-0.0", "east-1.0"), ("west-0.0", "east-1.0")]
    assert history_within((), transfers) == []
    # The two share the port of 1 MB/s.
    assert history_within((), transfers[::-1]) == [0, 2 * S, MEGABYTE]
