"""Rates recomputed only for changed and limiting resources equal those computed for all flows together."""

from hypothesis import given
from hypothesis import strategies as st

from runner.simulator.event_queue import EventQueue
from runner.simulator.network.shared_capacity import NodePairFlow, SharedCapacity
from testbed.network.flow_model.fair_share import fair_rates_bps


class Channel:
    """A sender that records its rate."""

    rate_bps = 0
    is_burst = False

    def send_at(self, rate_bps: int, now_ns: int) -> None:
        self.rate_bps = rate_bps

    def queued_bits_ns(self, now_ns: int) -> int:
        raise AssertionError("asked for by acknowledgements, and there are none")


CAPACITIES = st.lists(st.sampled_from([50, 100, 100, 1000]), min_size=4, max_size=4)
FLOWS = st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=1, max_size=6)


@given(CAPACITIES, FLOWS, st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), max_size=12))
def test_after_every_change_each_flow_has_its_share(
    capacities: list[int], crossed: list[set[int]], changes: list[list[int]]
) -> None:
    events = EventQueue()
    capacity = SharedCapacity(events, dict(enumerate(capacities)))
    flows = [NodePairFlow(number, sorted(resources)) for number, resources in enumerate(crossed)]
    channels = [Channel() for _ in flows]
    sending: set[int] = set()
    for time_ns, instant in enumerate(changes):
        for which in instant:
            if which >= len(flows):
                continue
            change = capacity.stop if which in sending else capacity.begin
            change(channels[which], flows[which], time_ns)
            sending ^= {which}
        while events.handle_next_instant():
            pass
        active = sorted(sending)
        expected = fair_rates_bps([flows[which].resources for which in active], dict(enumerate(capacities)))
        assert [channels[which].rate_bps for which in active] == expected


def test_one_of_two_equally_narrow_resources_limits_beside_a_wider_one_that_is_full() -> None:
    events = EventQueue()
    capacity = SharedCapacity(events, {0: 50, 1: 50, 2: 80})
    narrow, wide = Channel(), Channel()
    capacity.begin(narrow, NodePairFlow(0, [0, 1, 2]), 0)
    capacity.begin(wide, NodePairFlow(1, [2]), 0)
    events.handle_next_instant()
    assert (narrow.rate_bps, wide.rate_bps) == (40, 40)
    capacity = SharedCapacity(events, {0: 50, 1: 50, 2: 1000})
    capacity.begin(narrow, NodePairFlow(0, [0, 1, 2]), 0)
    capacity.begin(wide, NodePairFlow(1, [2]), 0)
    events.handle_next_instant()
    assert (narrow.rate_bps, wide.rate_bps) == (50, 950)
