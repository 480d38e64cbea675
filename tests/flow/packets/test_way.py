"""The ways of packets: netem leaves with loss, jitter and rate, and ports whose leaves share a rate."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.simulator.events import run_all
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.packets.way import Gateways, Leaf
from wanbed.ground.impairments import Impairments
from wanbed.testbed.network.ethernet import FRAME_BYTES
from wanbed.testbed.network.gateway_layout import plan_gateways
from wanbed.testbed.network.gateway_plan import NetemPlan, SharedRate
from wanbed.testbed.network.shared_rate import Timers
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec

LATENCY_NS = 20_000_000
MS = 1_000_000


def leaf(bytes_per_s: int | None = None, *, loss: float = 0.0, jitter_ns: int = 0, seed: str = "a") -> Leaf:
    return Leaf(NetemPlan(LATENCY_NS, 1000, bytes_per_s, Impairments(loss=loss, jitter_ns=jitter_ns)), seed)


def test_a_packet_is_delayed_and_then_serialised() -> None:
    assert leaf().carried_ns(5, 1514) == 5 + LATENCY_NS
    assert leaf(1_000_000).carried_ns(0, 1000) == LATENCY_NS + 1_000_000


def test_packets_wait_for_those_before_them() -> None:
    line = leaf(1_000_000)
    assert [line.carried_ns(0, 1000) for _ in range(3)] == [LATENCY_NS + each * 1_000_000 for each in (1, 2, 3)]


@given(st.integers(0, 10**6))
def test_jitter_keeps_the_order_and_its_bounds(seed: int) -> None:
    line = leaf(jitter_ns=3_000_000, seed=str(seed))
    sent_ns = range(0, 40_000_000, 500_000)
    arrived_ns = [line.carried_ns(at_ns, 1514) for at_ns in sent_ns]
    assert arrived_ns == sorted(arrived_ns)
    late_ns = [there - (at + LATENCY_NS) for at, there in zip(sent_ns, arrived_ns, strict=True)]
    assert all(-3_000_000 <= each <= 3_000_000 for each in late_ns)


def test_the_last_of_many_packets_comes_late_by_almost_all_of_the_jitter() -> None:
    line = leaf(jitter_ns=3_000_000)
    assert LATENCY_NS + 2_900_000 < max(line.carried_ns(0, 1514) for _ in range(1000)) <= LATENCY_NS + 3_000_000


def test_the_share_that_is_lost_is_as_configured() -> None:
    line = leaf(loss=0.01)
    assert 900 < sum(line.carried_ns(each, 1514) < 0 for each in range(100_000)) < 1100


def test_the_seed_alone_decides_what_is_drawn() -> None:
    def drawn(seed: str) -> list[int]:
        line = leaf(loss=0.1, jitter_ns=1_000_000, seed=seed)
        return [line.carried_ns(each, 1514) for each in range(100)]

    assert drawn("a") == drawn("a")
    assert drawn("a") != drawn("b")


def topology(**wan: str) -> Topology:
    """Two datacenters of two hosts, 20 ms apart."""
    datacenters = [{"name": name, "hosts": 2, "gpus_per_host": 1} for name in ("east", "west")]
    intra = {"latency": "0ms", "rate": wan.pop("intra", "unlimited")}
    document = {"datacenters": datacenters, "intra": intra, "wan": {"latency": "20ms", **wan}}
    return resolve_topology(TopologySpec.model_validate(document))


def arrivals_ms(network: Topology, packets: Sequence[tuple[str, str, int]]) -> list[tuple[str, float]]:
    """When packets arrive that are all sent at once, in the order of their arrival, by the host that sends them."""
    events = EventQueue()
    gateways = Gateways(plan_gateways(network, 0, Timers.VIRTUAL), events, "seed")
    arrived: list[tuple[str, float]] = []
    for source, destination, wire_bytes in packets:
        gateways.way(source, destination).send(
            0, wire_bytes, lambda now_ns, name: arrived.append((name, now_ns / MS)), source
        )
    run_all(events)
    return arrived


FULL_MS = FRAME_BYTES * 8 / 1e6 * 1e3
"""A full frame's time at 1 Mbit/s, in milliseconds."""


@pytest.mark.parametrize(
    ("wan", "packets", "expected"),
    [
        pytest.param({}, [("east-0", "west-0", FRAME_BYTES)], [("east-0", 20)], id="latency alone"),
        pytest.param(
            {"node_pair_rate": "1Mbit"},
            [("east-0", "west-0", FRAME_BYTES)] * 2 + [("east-1", "west-0", FRAME_BYTES)],
            [("east-0", 20 + FULL_MS), ("east-1", 20 + FULL_MS), ("east-0", 20 + 2 * FULL_MS)],
            id="each pair has a line of its own",
        ),
        pytest.param(
            {"rate": "1Mbit"},
            [("east-0", "west-0", 2 * FRAME_BYTES)] * 2 + [("east-1", "west-0", 2 * FRAME_BYTES)],
            # The bucket has room for one packet; those of the two pairs take turns.
            [("east-0", 20 + 2 * FULL_MS), ("east-1", 20 + 2 * FULL_MS), ("east-0", 20 + 4 * FULL_MS)],
            id="a trunk is shared in turns",
        ),
    ],
)
def test_packets_wait_for_all_that_they_cross(
    wan: dict[str, str], packets: list[tuple[str, str, int]], expected: list[tuple[str, float]]
) -> None:
    found = arrivals_ms(topology(**wan), packets)
    assert [name for name, _ in found] == [name for name, _ in expected]
    assert [at_ms for _, at_ms in found] == pytest.approx([at_ms for _, at_ms in expected], rel=1e-3)


@pytest.mark.parametrize(("source", "destination"), [("east-0", "east-1"), ("east-0", "west-0")])
@pytest.mark.parametrize(
    "rates",
    [{}, {"node_pair_rate": "1Mbit"}, {"node_pair_rate": "1Mbit", "rate": "1500kbit"}, {"rate": "1Mbit"}],
    ids=["no rates", "of pairs", "of a trunk that pairs share", "of a trunk"],
)
@pytest.mark.parametrize("intra", ["unlimited", "2Mbit"])
def test_a_packet_alone_takes_the_latency_and_the_time_of_each_line_that_it_crosses(
    source: str, destination: str, rates: dict[str, str], intra: str
) -> None:
    network = topology(intra=intra, **rates)
    gateways = Gateways(plan_gateways(network, 0, Timers.VIRTUAL), EventQueue(), "seed")
    latency_ms = 20 if destination == "west-0" else 0
    lines_ms = gateways.way(source, destination).serialising_ns(FRAME_BYTES) / MS
    ((_, arrived_ms),) = arrivals_ms(network, [(source, destination, FRAME_BYTES)])
    assert arrived_ms == pytest.approx(latency_ms + lines_ms)
    assert (lines_ms > 0) == (intra != "unlimited" or (bool(rates) and destination == "west-0"))


def test_pairs_that_fill_a_trunk_get_equal_shares_of_it() -> None:
    network = topology(rate="1Mbit")
    found = arrivals_ms(network, [(source, "west-0", 2 * FRAME_BYTES) for source in ("east-0", "east-1") * 50])
    assert found[-1][1] == pytest.approx(20 + 200 * FULL_MS, rel=0.02)
    halfway = [name for name, _ in found[:50]]
    assert 24 <= halfway.count("east-0") <= 26


def test_a_bucket_lets_go_what_it_holds_and_its_rate_from_then_on() -> None:
    shared = SharedRate(rate_bytes_per_s=1_000_000, burst_us=10_000)
    assert shared.quantum_bytes == 10_000
    assert SharedRate(1000, 1000).quantum_bytes == FRAME_BYTES
    assert SharedRate(10**9, 10**6).quantum_bytes == 60_000


def test_all_that_arrives_at_a_host_shares_its_port() -> None:
    network = topology(intra="1Mbit", node_pair_rate="1Mbit", latency="0ms")
    found = arrivals_ms(network, [("east-1", "east-0", 2 * FRAME_BYTES), ("west-0", "east-0", 2 * FRAME_BYTES)] * 20)
    assert found[-1][1] == pytest.approx(80 * FULL_MS, rel=0.05)
