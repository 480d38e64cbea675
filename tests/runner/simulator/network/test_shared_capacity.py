"""Rates recomputed only for changed and limiting resources equal those computed for all flows together."""

from hypothesis import given
from hypothesis import strategies as st

from runner.simulator.event_queue import EventQueue
from runner.simulator.network.shared_capacity import NodePairFlow, SharedCapacity
from runner.simulator.network.stream import Sender
from testbed.network.flow_model.fair_share import fair_rates_bps


class Channel(Sender):
    """A sender that never ends."""

    def __init__(self, events: EventQueue) -> None:
        super().__init__(events, headers=False)

    def start(self, now_ns: int) -> None:
        self.load(ENDLESS_BYTES, 0, now_ns)

    def end(self) -> None:
        if self.stream is not None:
            self.leave()


ENDLESS_BYTES = 10**6

CAPACITIES = st.lists(st.sampled_from([50, 100, 100, 1000]), min_size=4, max_size=4)
FLOWS = st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=1, max_size=6)


@given(CAPACITIES, FLOWS, st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), max_size=12))
def test_after_every_change_each_flow_has_its_share(
    capacities: list[int], crossed: list[set[int]], changes: list[list[int]]
) -> None:
    events = EventQueue()
    capacity = SharedCapacity(events, dict(enumerate(capacities)))
    flows = [NodePairFlow(number, sorted(resources)) for number, resources in enumerate(crossed)]
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
        expected = fair_rates_bps([flows[which].resources for which in active], dict(enumerate(capacities)))
        assert [channels[which].rate_bps for which in active] == expected


def test_one_of_two_equally_narrow_resources_limits_beside_a_wider_one_that_is_full() -> None:
    for wide_bps, rates_bps in ((80, (40, 40)), (1000, (50, 950))):
        events = EventQueue()
        capacity = SharedCapacity(events, {0: 50, 1: 50, 2: wide_bps})
        channels = Channel(events), Channel(events)
        for number, (channel, resources) in enumerate(zip(channels, ([0, 1, 2], [2]), strict=True)):
            flow = NodePairFlow(number, resources)
            capacity.expect(flow)
            channel.start(0)
            capacity.begin(channel, flow, 0)
        events.handle_next_instant()
        assert tuple(channel.rate_bps for channel in channels) == rates_bps
