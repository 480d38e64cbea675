"""Replicas that synchronise over a star: who sends to whom, when, and what crosses the WAN."""

from typing import Any

from tests.runner.simulator.variants import sweep_point
from wanbed.runner.resolve.connections import count_connections
from wanbed.runner.simulator.channels.network import Network
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.tcp.effects import IDEAL, TcpEffects
from wanbed.runner.trainings.local_updates.simulation import star_ends
from wanbed.workloads.transport.frame import HEADER_BYTES

MS = 10**6
COMPUTING_MS = 4 * 15
"""Four microbatches of 5 ms forward and 10 ms backward."""


def document(*, hosts: tuple[int, int, int] = (1, 1, 1), gradient: str = "1000KB", **options: int) -> dict[str, Any]:
    """Three replicas of one stage, a byte a microsecond and 10 ms apart, that sum every second iteration."""
    return {
        "topology": {
            "datacenters": [
                {"name": name, "hosts": count}
                for name, count in zip(("east", "central", "west"), hosts, strict=True)
                if count
            ],
            "intra": {"latency": "3ms"},
            "wan": {"latency": "10ms", "node_pair_rate": "8Mbit"},
        },
        "compute": {"forward": "5ms", "backward": "10ms", "activation": "1KiB", "gradient": gradient},
        "training": {"stages": 1, "pipelines": 3, "microbatches": 4, "iterations": 4, "warmup": 0},
        "variants": [
            {
                "name": "star",
                "schedule": "diloco",
                "options": {"sync_every": 2, "topology": "star", **options},
                "transport": {"connections": 1},
            }
        ],
        "engine": "simulate",
    }


def simulated(written: dict[str, Any], iterations: int = 4, effects: TcpEffects = IDEAL) -> Simulation:
    point = sweep_point(written)
    return simulate_variant(point.topology, point.variants[0], iterations, effects=effects)


def sums_ms(simulation: Simulation, rank: int) -> list[tuple[float, float]]:
    """Return when a rank was ready for each sum and when it had it."""
    spans = simulation.spans
    own = (spans.rank == rank) & (spans.kind == KIND_CODES["all_reduce"])
    return list(zip((spans.start_ns[own] / MS).tolist(), (spans.end_ns[own] / MS).tolist(), strict=True))


def test_every_other_replica_sends_to_the_first_and_has_the_sum_a_way_there_and_back_later() -> None:
    simulation = simulated(document())
    # A part has four bytes for each two of gradients. It takes two seconds and 10 ms to the first, and the sum back.
    way_ms = 2000 + 10
    first_ms = 2 * COMPUTING_MS
    after_ms = first_ms + way_ms + 2 * COMPUTING_MS
    assert sums_ms(simulation, 0)[0] == (first_ms, first_ms + way_ms)
    for rank in (1, 2):
        assert sums_ms(simulation, rank) == [
            (first_ms, first_ms + 2 * way_ms),
            # The first replica is ready again before, and waits for the others.
            (after_ms + way_ms, after_ms + 3 * way_ms),
        ]
    assert sums_ms(simulation, 0)[1] == (after_ms, after_ms + 2 * way_ms)
    assert simulation.sums == ((3, 0), (3, 0))
    assert simulation.dropped == 0


def test_a_part_and_a_sum_cross_each_way_for_each_synchronization() -> None:
    traffic = simulated(document()).traffic
    ways = {(each.source, each.destination): int(each.wire_bytes[-1]) for each in traffic}
    names = [("central-0", "east-0"), ("west-0", "east-0")]
    assert ways == dict.fromkeys([*names, *(way[::-1] for way in names)], 2 * 2_000_000)
    # What stays in a datacenter does not cross.
    within = simulated(document(hosts=(2, 1, 0))).traffic
    assert {(each.source, each.destination) for each in within} == {("east-0", "central-0"), ("central-0", "east-0")}
    # None is begun whose end no iteration would await.
    assert simulated(document(), iterations=1).traffic == ()


def test_parts_are_cut_into_chunks_with_headers_where_headers_count() -> None:
    headers = TcpEffects(window=False, slow_start=False, headers=True)
    # 20,000 bytes are one chunk, 80,000 are four of 16 KiB at least.
    for gradient, part_bytes in (("10KB", 20_000 + HEADER_BYTES), ("40KB", 80_000 + 4 * HEADER_BYTES)):
        traffic = simulated(document(gradient=gradient), 2, headers).traffic
        assert [each.wire_bytes[-1] for each in traffic] == [part_bytes * 1514 // 1448] * 4


def test_stars_have_the_ways_of_the_replicas_of_each_stage() -> None:
    point = sweep_point(document())
    (variant,) = point.variants
    connections = count_connections(point.topology, variant.pairs, variant.transport)
    found = star_ends(Network(point.topology, connections, variant, IDEAL))
    ways = {stage: [(one.pipeline, other.pipeline) for one, other in ends] for stage, ends in found.items()}
    assert ways == {0: [(1, 0), (2, 0), (0, 1), (0, 2)]}


def test_a_quorum_does_not_wait_for_a_replica_that_is_far_away() -> None:
    far = [{"between": ["east", "west"], "latency": "1s"}]
    first_ms, sending_ms = 2 * COMPUTING_MS, 2000
    for quorum, latency_ms in ((None, 1000), (3, 1000), (2, 10)):
        written = document() if quorum is None else document(quorum=quorum)
        written["topology"]["links"] = far
        assert sums_ms(simulated(written), 0)[0] == (first_ms, first_ms + sending_ms + latency_ms)
