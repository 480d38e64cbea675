"""Costs of a DP-cell, estimated from the configured network; transfers over the connections of a boundary."""

from dataclasses import replace
from typing import Any

import pytest

from wanbed.flow.line import PAYLOAD_BYTES, Line
from wanbed.flow.striping import Striping
from wanbed.flow.window import INITIAL_SEGMENTS
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.resolve.cell_costs import (
    MOST_WINDOWS,
    BoundaryTcp,
    between_iterations_ns,
    boundary_costs,
    cell_of,
    pipelines_to_share,
    transfer_in_forwards,
)
from wanbed.runner.resolve.placement import Placement, place_stages
from wanbed.runner.resolve.stage_costs import StageCosts
from wanbed.testbed.network.goodput import tcp_goodput_bps
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec
from wanbed.workloads.message import MessageKind

AUTO = TransportSpec(connections="auto")

MEGABYTE = 10**6


def network(hosts: int = 4, intra_rate: str = "8Gbit", links: tuple[dict[str, Any], ...] = (), **wan: Any) -> Topology:
    document = {
        "datacenters": [{"name": name, "hosts": hosts} for name in ("east", "west")],
        "wan": {"latency": "40ms", "rate": "unlimited", "node_pair_rate": "80Mbit", **wan},
        "intra": {"latency": "50us", "rate": intra_rate},
        "links": links,
    }
    return resolve_topology(TopologySpec.model_validate(document))


def work(stages: int, forward_ms: int = 10) -> StageCosts:
    each = (forward_ms * 10**6,) * stages
    none = (0,) * stages
    return StageCosts(each, each, each, none, none, none, (MEGABYTE,) * (stages - 1), none)


def at(topology: Topology, pipelines: int, stages: int = 4) -> Placement:
    return place_stages(topology, stages, pipelines)


def test_a_transfer_takes_size_over_goodput_of_the_slowest_link() -> None:
    topology = network()
    inside, across, _ = boundary_costs(topology, at(topology, 2), AUTO, work(4), 1)
    assert (inside.latency_ns, across.latency_ns) == (50_000, 40_000_000)
    assert across.occupancy_ns == pytest.approx(8 * MEGABYTE / tcp_goodput_bps(80e6) * 1e9, rel=1e-6)
    assert inside.occupancy_ns == pytest.approx(across.occupancy_ns / 100, rel=1e-6)
    assert [inside.shared, across.shared] == [False, False]


def test_a_dp_cell_of_two_halves_wan_transfers_only() -> None:
    topology = network()
    alone = boundary_costs(topology, at(topology, 2), AUTO, work(4), 1)
    shared = boundary_costs(topology, at(topology, 2), AUTO, work(4), 2)
    assert [profile.shared for profile in shared] == [False, True, False]
    assert shared[1].occupancy_ns == pytest.approx(alone[1].occupancy_ns / 2, abs=1)
    assert shared[0] == alone[0]


def test_of_pipelines_that_differ_the_slowest_new_connection_decides() -> None:
    # The second pipeline crosses to a datacenter twice as far away, at the same rate.
    far = network(hosts=2)
    document = {
        "datacenters": [{"name": name, "hosts": 2} for name in ("east", "west", "far")],
        "wan": {"latency": "20ms", "rate": "unlimited", "node_pair_rate": "80Mbit"},
        "links": [{"between": ["east", "far"], "latency": "40ms"}],
    }
    topology = resolve_topology(TopologySpec.model_validate(document))
    placement = place_stages(topology, 2, 2, [["east", "west"], ["east", "far"]])
    (mixed,) = boundary_costs(topology, placement, AUTO, work(2), 1)
    (distant,) = boundary_costs(far, at(far, 2, 2), AUTO, work(2), 1)
    assert mixed.links is not None
    assert distant.links is not None
    assert mixed.links.cold_ns == distant.links.cold_ns


def test_few_connections_move_a_window_a_round_trip_each() -> None:
    topology = network()
    two = TransportSpec(connections=2, window="100KB")
    (profile,) = boundary_costs(topology, at(topology, 1, 2), two, work(2), 1)
    assert profile.occupancy_ns == pytest.approx(MEGABYTE / (2 * 100_000) * 80e6, rel=1e-6)


def test_the_pairs_of_all_pipelines_share_a_trunk() -> None:
    topology = network(rate="100Mbit")
    profile = boundary_costs(topology, at(topology, 4, 2), AUTO, work(2), 1)[0]
    assert profile.occupancy_ns == pytest.approx(8 * MEGABYTE / tcp_goodput_bps(25e6) * 1e9, rel=1e-6)


def test_unlimited_transfers_take_no_time() -> None:
    topology = network(node_pair_rate="unlimited", intra_rate="unlimited")
    assert boundary_costs(topology, at(topology, 1, 2), AUTO, work(2), 1)[0].occupancy_ns == 0


def test_a_port_slower_than_the_wan_limits_its_transfers() -> None:
    topology = network(node_pair_rate="800Mbit", intra_rate="80Mbit")
    profile = boundary_costs(topology, at(topology, 1, 2), AUTO, work(2), 1)[0]
    assert profile.occupancy_ns == pytest.approx(8 * MEGABYTE / tcp_goodput_bps(80e6) * 1e9, rel=1e-6)


@pytest.mark.parametrize(
    ("forward_ms", "pipelines", "expected"),
    [(200, 4, 1), (60, 4, 2), (30, 4, 4), (1, 4, 4), (60, 3, 3), (40, 6, 3), (60, 1, 1)],
)
def test_pipelines_to_share_follow_from_transfer_and_forward_times(
    forward_ms: int, pipelines: int, expected: int
) -> None:
    topology = network(hosts=pipelines)
    # A transfer lasts 104.6 ms.
    assert pipelines_to_share(topology, at(topology, pipelines, 2), AUTO, work(2, forward_ms)) == expected


def test_without_a_wan_to_cross_there_is_nothing_to_share() -> None:
    topology = network()
    assert pipelines_to_share(topology, place_stages(topology, 2, 2, ["east", "east"]), AUTO, work(2, 1)) == 1


def test_an_ideal_transport_has_neither_window_nor_headers() -> None:
    topology = network()
    ideal = TransportSpec(model="ideal")
    inside, across, _ = boundary_costs(topology, at(topology, 1), ideal, work(4), 1)
    assert (inside.occupancy_ns, across.occupancy_ns) == (1_000_000, 100_000_000)


def test_gradients_have_the_costs_of_the_direction_that_they_take() -> None:
    topology = network(links=({"from": "west", "to": "east", "latency": "10ms", "node_pair_rate": "20Mbit"},))
    inside, across, _ = boundary_costs(topology, at(topology, 2), AUTO, work(4), 1)
    gradients = across.of(MessageKind.GRADIENT)
    assert inside.of(MessageKind.GRADIENT) == inside
    assert (across.latency_ns, gradients.latency_ns) == (40_000_000, 10_000_000)
    assert gradients.occupancy_ns == pytest.approx(4 * across.occupancy_ns, rel=1e-6)


def test_links_alike_in_both_directions_have_one_cost() -> None:
    topology = network()
    assert all(costs.gradients is None for costs in boundary_costs(topology, at(topology, 2), AUTO, work(4), 1))


IDEAL = TransportSpec(model="ideal")

MS = 10**6


def between(
    topology: Topology, placement: Placement, *, optimizer_ms: int = 0, transport: TransportSpec = IDEAL
) -> tuple[int, ...]:
    costs = replace(
        work(placement.stages),
        gradient_bytes=(MEGABYTE,) * placement.stages,
        optimizer_ns=(optimizer_ms * MS,) * placement.stages,
    )
    return between_iterations_ns(topology, placement, transport, costs)


def test_a_ring_takes_its_steps_at_the_rate_and_one_latency_and_the_optimizer_follows() -> None:
    # 4 replicas send 2 x 3 / 4 of 1 MB at 8 Gbit/s, 1 ns a byte, and the last byte has 50 us to go.
    topology = network()
    assert between(topology, place_stages(topology, 1, 4, ["east"]), optimizer_ms=7) == (1_550_000 + 7 * MS,)
    assert between(topology, place_stages(topology, 1, 1, ["east"]), optimizer_ms=7) == (7 * MS,)


def test_a_ring_takes_at_least_a_latency_each_step() -> None:
    topology = network(node_pair_rate="unlimited")
    assert between(topology, place_stages(topology, 1, 2, [["east"], ["west"]])) == (2 * 40 * MS,)


def test_the_rings_of_all_stages_share_a_trunk() -> None:
    # 2 replicas send 2 x 1 / 2 of 1 MB: 80 ms at the whole 100 Mbit/s.
    topology = network(node_pair_rate="unlimited", rate="100Mbit")
    alone = place_stages(topology, 1, 2, [["east"], ["west"]])
    both = place_stages(topology, 2, 2, [["east", "east"], ["west", "west"]])
    assert between(topology, alone) == (80 * MS + 40 * MS,)
    assert between(topology, both) == (160 * MS + 40 * MS,) * 2


def test_hierarchical_rings_follow_one_another_and_send_a_share_across() -> None:
    # Inside, 2 replicas send 1 MB at 1 ns a byte and wait 50 us twice; across, 0.5 MB at 80 Mbit/s, 100 ns a byte.
    topology = network()
    placement = place_stages(topology, 1, 4, [["east"], ["east"], ["west"], ["west"]])
    nested = TransportSpec(model="ideal", all_reduce="hierarchical")
    inside_ns, across_ns = 1 * MS + 2 * 50_000, 50 * MS + 40 * MS
    assert between(topology, placement, transport=nested) == (inside_ns + across_ns,)


def test_a_butterfly_sends_a_part_and_a_sum_between_each_two() -> None:
    # 2 / 4 of 1 MB over each node pair at 80 Mbit/s, 100 ns a byte, and a latency of 40 ms until it is there.
    topology = network()
    placement = place_stages(topology, 1, 4, [["east"], ["east"], ["west"], ["west"]])
    butterfly = TransportSpec(model="ideal", all_reduce="butterfly")
    assert between(topology, placement, transport=butterfly) == (50 * MS + 40 * MS,)


def test_a_chain_sends_all_there_and_back_and_takes_all_hops_latencies() -> None:
    # 1 MB at 80 Mbit/s, 100 ns a byte, twice, and six hops of up to 40 ms.
    topology = network()
    placement = place_stages(topology, 1, 4, [["east"], ["east"], ["west"], ["west"]])
    chain = TransportSpec(model="ideal", all_reduce="chain")
    assert between(topology, placement, transport=chain) == (200 * MS + 6 * 40 * MS,)


def test_gloo_sends_two_chunks_in_a_round_trip() -> None:
    # 1 MB in 8 chunks of 12.5 ms at 80 Mbit/s, of which each pass sends 6, and a round trip of 80 ms.
    topology = network()
    placement = place_stages(topology, 1, 4, [["east"], ["east"], ["west"], ["west"]])
    gloo = TransportSpec(model="ideal", all_reduce="gloo")
    assert between(topology, placement, transport=gloo) == (2 * (3 * (80 * MS + 12_500_000) + 12_500_000),)


def test_gradients_of_no_bytes_take_no_time() -> None:
    topology = network()
    placement = place_stages(topology, 1, 2, [["east"], ["west"]])
    assert between_iterations_ns(topology, placement, IDEAL, work(1)) == (0,)


def test_a_transfer_is_counted_in_forwards_of_its_sender_and_at_least_as_one() -> None:
    topology = network(rate="80Mbit")
    placement = at(topology, 4, 2)
    forwards = transfer_in_forwards(topology, placement, IDEAL, work(2, 40))
    assert forwards == pytest.approx(2.5), "100 ms on a trunk of its own"
    assert transfer_in_forwards(topology, placement, IDEAL, work(2, 200)) == 1.0
    slow_back = network(links=({"from": "west", "to": "east", "node_pair_rate": "20Mbit"},))
    assert transfer_in_forwards(slow_back, at(slow_back, 2, 2), IDEAL, work(2, 40)) == 10.0
    assert transfer_in_forwards(topology, placement, IDEAL, work(2, 0)) == 1e8


@pytest.mark.parametrize(
    ("pipelines", "forwards", "cell"),
    [(12, 1.0, 1), (12, 1.01, 2), (12, 4.0, 4), (12, 4.5, 6), (12, 6.01, 12), (12, 50, 12), (7, 1.5, 7), (1, 3, 1)],
)
def test_a_cell_is_the_next_divisor_of_the_pipelines(pipelines: int, forwards: float, cell: int) -> None:
    assert cell_of(pipelines, forwards) == cell


def test_windows_matter_where_a_round_trip_takes_time_and_a_transfer_is_not_of_very_many() -> None:
    topology = network()
    placement = at(topology, 1, 2)
    two = TransportSpec.model_validate({"connections": 2, "window": "64KiB"})
    most_bytes = MOST_WINDOWS * 2 * two.window
    for size_bytes, limited in ((most_bytes, True), (most_bytes + 1, False)):
        found = boundary_costs(topology, placement, two, replace(work(2), activation_bytes=(size_bytes,)), 1)[0]
        assert (found.links is not None) is limited
    near = network(latency="0ns")
    assert boundary_costs(near, at(near, 1, 2), AUTO, work(2), 1)[0].links is None
    assert boundary_costs(topology, placement, IDEAL, work(2), 1)[0].links is None


def test_one_pipeline_over_a_link_of_two_rates_gives_gradients_costs_of_their_own() -> None:
    topology = network(links=({"from": "west", "to": "east", "node_pair_rate": "20Mbit"},))
    placement = place_stages(topology, 2, 2, [["east", "west"], ["east", "east"]])
    (costs,) = boundary_costs(topology, placement, IDEAL, work(2), 1)
    assert (costs.occupancy_ns, costs.of(MessageKind.GRADIENT).occupancy_ns) == (100 * MS, 400 * MS)


FIRST_BYTES = INITIAL_SEGMENTS * PAYLOAD_BYTES

UNLIMITED = Line(None, 20 * MS, headers=True)


def tcp(size_bytes: int, *, line: Line = UNLIMITED, connections: int = 1, restarts: bool = True) -> BoundaryTcp:
    settings = TcpSettings(2**22, congestion="reno", slow_start_after_idle=restarts)
    return BoundaryTcp(line, size_bytes, settings, Striping(connections, 16, -(-size_bytes // 16)))


@pytest.mark.parametrize(("size_bytes", "rounds"), [(FIRST_BYTES, 0), (FIRST_BYTES + 1, 1), (7 * FIRST_BYTES, 2)])
def test_a_new_connection_doubles_what_it_sends_each_round_trip(size_bytes: int, rounds: int) -> None:
    assert tcp(size_bytes).cold_ns == (40 * rounds + 20) * MS


def test_windows_stay_open_and_close_after_a_pause_unless_configured() -> None:
    for restarts, after_a_pause_ms in ((True, 60), (False, 20)):
        links = tcp(3 * FIRST_BYTES, restarts=restarts).opened()
        left_ns, _ = links.send(0)
        soon_ns, later_ns = left_ns + 100 * MS, left_ns + 2_000 * MS
        assert links.send(soon_ns)[1] - soon_ns == 20 * MS
        assert links.send(later_ns)[1] - later_ns == after_a_pause_ms * MS


def test_transfers_leave_one_after_the_other() -> None:
    links = tcp(1448 * 1000, line=Line(121_120_000, 0, headers=True)).opened()
    assert links.send(0) == (100 * MS, 100 * MS)
    assert links.send(0) == (200 * MS, 200 * MS)
    assert links.send(250 * MS)[0] == 350 * MS
