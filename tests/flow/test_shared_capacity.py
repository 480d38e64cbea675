"""Rates recomputed only for changed and limiting resources equal those computed for all flows together."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.simulator.fair_share import fair_rates_bps
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.flow.shared_capacity import NodePairFlow, SharedCapacity
from wanbed.flow.stream import Sender


class Channel(Sender):
    """A sender that never ends."""

    def __init__(self, events: EventQueue) -> None:
        super().__init__(events, Line(None, 0, headers=False))

    def start(self, now_ns: int) -> None:
        self.load(ENDLESS_BYTES, 0, now_ns)

    def end(self) -> None:
        if self.stream is not None:
            self.leave()


ENDLESS_BYTES = 10**6

HUBS, PORTS = 30, 20
"""Numbers of the first hub and of the first port; a flow's own resource has the flow's number."""

CAPACITIES = st.sampled_from([50, 100, 100, 1000])

PATHS = st.tuples(st.none() | CAPACITIES, st.none() | st.integers(0, 1), st.sets(st.integers(0, 3))).filter(any)
"""The capacity of a flow's own resource, the port at which it arrives, and the hubs that it crosses."""


def started_at_once(
    capacities_bps: dict[int, int], flows: list[list[int]], own: Collection[int] = (), ports: Collection[int] = ()
) -> list[int]:
    """Return the rates of flows over these resources that begin at one instant."""
    events = EventQueue()
    capacity = SharedCapacity(events, capacities_bps, own, ports)
    channels = [Channel(events) for _ in flows]
    for number, (channel, resources) in enumerate(zip(channels, flows, strict=True)):
        flow = NodePairFlow(number, resources)
        capacity.expect(flow)
        channel.start(0)
        capacity.begin(channel, flow, 0)
    events.handle_next_instant()
    return [channel.rate_bps for channel in channels]


@given(
    st.lists(CAPACITIES, min_size=4, max_size=4),
    st.lists(CAPACITIES, min_size=2, max_size=2),
    st.lists(PATHS, min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=1, max_size=8),
    st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=4), max_size=12),
)
def test_after_every_change_each_flow_has_its_share(
    hubs_bps: list[int],
    ports_bps: list[int],
    paths: list[tuple[int | None, int | None, set[int]]],
    path_of_flow: list[int],
    changes: list[list[int]],
) -> None:
    events = EventQueue()
    hubs, ports = dict(enumerate(hubs_bps, HUBS)), dict(enumerate(ports_bps, PORTS))
    own: dict[int, int] = {}
    flows: list[NodePairFlow] = []
    for number, which in enumerate(path_of_flow):
        own_bps, port, crossed = paths[which % len(paths)]
        resources = [] if port is None else [PORTS + port]
        if own_bps is not None:
            own[number] = own_bps
            resources.insert(0, number)
        flows.append(NodePairFlow(number, [*resources, *sorted(HUBS + hub for hub in crossed)]))
    capacities_bps = own | ports | hubs
    capacity = SharedCapacity(events, capacities_bps, own, ports)
    channels = [Channel(events) for _ in flows]
    for flow in flows:
        capacity.expect(flow)
    sending: set[int] = set()
    for time_ns, instant in enumerate(changes):
        for which in instant:
            if which >= len(flows):
                continue
            if which in sending:
                channels[which].end()
                capacity.stop(channels[which], flows[which], time_ns)
            else:
                channels[which].start(time_ns)
                capacity.begin(channels[which], flows[which], time_ns)
            sending ^= {which}
        if events.next_ns == time_ns:
            events.handle_next_instant()
        active = sorted(sending)
        expected = fair_rates_bps([flows[which].resources for which in active], capacities_bps)
        assert [channels[which].rate_bps for which in active] == expected


@pytest.mark.parametrize(
    ("capacities_bps", "flows", "rates_bps"),
    [
        pytest.param({30: 100, 31: 150}, [[30, 31], [30, 31], [31]], [50, 50, 50], id="of two alike over two hubs"),
        pytest.param({20: 100, 30: 150}, [[20, 30], [20, 30], [30]], [50, 50, 50], id="of two alike at a port"),
        pytest.param({0: 50, 1: 100, 30: 110}, [[0, 30], [1, 30]], [50, 60], id="of the narrowest"),
        pytest.param({0: 40, 20: 100, 30: 130}, [[0, 20, 30], [20, 30], [30]], [40, 45, 45], id="of all three kinds"),
    ],
)
def test_others_share_what_is_left(
    capacities_bps: dict[int, int], flows: list[list[int]], rates_bps: list[int]
) -> None:
    own = [number for number in capacities_bps if number < PORTS]
    ports = [number for number in capacities_bps if PORTS <= number < HUBS]
    assert started_at_once(capacities_bps, flows, own, ports) == rates_bps


def test_one_of_two_equally_narrow_resources_limits_beside_a_wider_one_that_is_full() -> None:
    for wide_bps, rates_bps in ((80, [40, 40]), (1000, [50, 950])):
        assert started_at_once({0: 50, 1: 50, 2: wide_bps}, [[0, 1, 2], [2]]) == rates_bps


def test_a_capacity_that_changes_is_shared_anew_by_those_that_send() -> None:
    events = EventQueue()
    capacity = SharedCapacity(events, {0: 100})
    flows, channels = [NodePairFlow(number, [0]) for number in range(2)], [Channel(events), Channel(events)]
    for flow, channel in zip(flows, channels, strict=True):
        capacity.expect(flow)
        channel.start(0)
        capacity.begin(channel, flow, 0)
    events.handle_next_instant()
    for now_ns, whole_bps in ((5, 60), (9, 500)):
        events.at(now_ns, lambda now_ns, bps: capacity.change(0, bps, flows, now_ns), whole_bps)
        while events.next_ns is not None and events.next_ns <= now_ns:
            events.handle_next_instant()
        assert [channel.rate_bps for channel in channels] == [whole_bps // 2] * 2


def test_an_acknowledgement_waits_for_what_the_other_direction_has_queued() -> None:
    events = EventQueue()
    capacity = SharedCapacity(events, {0: 100, 1: 50})
    there, back = NodePairFlow(0, [0]), NodePairFlow(1, [1])
    there.opposite, back.opposite = back, there
    channel = Channel(events)
    assert there.acknowledged_later_ns(0) == 0
    capacity.expect(back)
    channel.start(0)
    capacity.begin(channel, back, 0)
    assert there.acknowledged_later_ns(0) == -1, "it sends, at no rate yet"
    events.handle_next_instant()
    assert there.acknowledged_later_ns(0) == ENDLESS_BYTES * 8 * 10**9 // 50
    assert back.acknowledged_later_ns(0) == 0
