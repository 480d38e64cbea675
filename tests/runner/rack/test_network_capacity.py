"""What sends while a rack's machines are measured, and over which network."""

from tests.support.rack.three_machines import MACHINE_OF, MBIT, demand_of, topology
from wanbed.runner.rack.machine_traffic import Carriers
from wanbed.runner.rack.network_capacity import flows_of, with_headroom


def test_rates_are_higher_than_those_of_the_experiment_and_nothing_else_is_in_the_way() -> None:
    network = with_headroom(topology(node_pair_rate="200Mbit", loss="1%", jitter="1ms"))
    there = network.conditions("east", "west")
    assert (there.rate_bps, there.node_pair_rate_bps, there.latency_ns) == (1600 * MBIT, 320 * MBIT, 5_000_000)
    assert not any(value for _, value in there.impairments.items())
    assert network.intra_rate_bps == 480 * MBIT
    assert not network.changes


def test_a_link_that_changes_stays_as_it_is_at_first() -> None:
    changing = topology(events=[{"at": "1s", "rate": "10Mbit"}])
    assert changing.changes
    assert with_headroom(changing).conditions("west", "east").rate_bps == 1600 * MBIT
    assert not with_headroom(changing).changes


def test_every_node_pair_of_the_wan_sends_and_each_machine_is_an_end_inside() -> None:
    network = topology(node_pair_rate="200Mbit")
    pairs = flows_of(demand_of(network), Carriers(network, MACHINE_OF, {}))
    assert [(pair.source, pair.destination) for pair in pairs] == [
        ("east-1", "west-0"),
        ("west-0", "east-1"),
        ("east-0", "east-1"),
        ("west-0", "west-1"),
    ]


def test_what_has_no_rate_does_not_send() -> None:
    network = topology(rate="unlimited")
    pairs = flows_of(demand_of(network), Carriers(network, MACHINE_OF, {}))
    assert {pair.source.partition("-")[0] for pair in pairs} == {"east", "west"}
    assert len(pairs) == 2
