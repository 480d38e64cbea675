import pytest

from tests.runner.emulation.rank_plans import ONE, PAIR, four_by_two, planned, point
from tests.support.present import present
from wanbed.workloads.transport.links_config import RingConfig, RingsConfig


def test_replicas_sum_their_gradients_in_a_ring() -> None:
    plans = planned(four_by_two(PAIR))
    assert [plan.links.rings.replicas for plan in plans] == [
        (RingConfig((n % 4, n % 4 + 4), 1 + n % 4),) for n in range(8)
    ]
    assert {(plan.compute.costs.sizes.gradient_bytes, plan.compute.collective) for plan in plans} == {(7 * 1024, None)}
    assert all(plan.links.rings == RingsConfig() for plan in planned(point()))


def test_hierarchical_replicas_are_in_a_ring_inside_and_in_one_across() -> None:
    spread = {
        "name": "spread",
        "schedule": "gpipe",
        "transport": {"all_reduce": "hierarchical"},
        "placement": [["east"] * 2, ["east"] * 2, ["west"] * 2, ["west"] * 2],
    }
    of = point(
        topology={
            "datacenters": [{"name": "east", "hosts": 4}, {"name": "west", "hosts": 4}],
            "wan": {"latency": "10ms", "node_pair_rate": "1Gbit"},
        },
        compute={"forward": "1ms", "activation": "1KiB", "gradient": "7KiB"},
        training={"microbatches": 3, "iterations": 2, "stages": 2, "pipelines": 4},
        variants=[spread],
    )
    rings = {plan.rank: [ring.ranks for ring in plan.links.rings.replicas] for plan in planned(of)}
    assert [rings[rank] for rank in (0, 2, 4, 6)] == [
        [(0, 2), (0, 4)],
        [(0, 2), (2, 6)],
        [(4, 6), (0, 4)],
        [(4, 6), (2, 6)],
    ]
    assert rings[7] == [(5, 7), (3, 7)]
    assert {peer.rank for peer in planned(of)[0].links.peers} == {1, 2, 4}


def test_in_a_butterfly_a_replica_is_in_a_pair_with_each_other_one_and_all_cut_alike() -> None:
    of = point(
        topology={
            "datacenters": [{"name": "east", "hosts": 3}, {"name": "west", "hosts": 3}],
            "wan": {"latency": "10ms", "node_pair_rate": "1Gbit"},
        },
        compute={"forward": "1ms", "activation": "1KiB", "gradient": "7KiB"},
        training={"microbatches": 3, "iterations": 2, "stages": 2, "pipelines": 3},
        variants=[{"name": "v", "schedule": "gpipe", "transport": {"all_reduce": "butterfly"}}],
    )
    for plan in planned(of):
        own, stage = plan.rank, plan.place.stage
        others = {rank for rank in range(stage, 6, 2) if rank != own}
        assert plan.links.rings.butterfly
        assert {ring.ranks for ring in plan.links.rings.replicas} == {(min(own, to), max(own, to)) for to in others}
        assert {ring.connections for ring in plan.links.rings.replicas} == {1 + stage}
        assert others < {peer.rank for peer in plan.links.peers}


@pytest.mark.parametrize(("all_reduce", "shares_gpus"), [("nccl", False), ("nccl-shared", True)])
def test_replicas_meet_at_the_host_of_their_first_to_sum_by_a_collective(all_reduce: str, shares_gpus: bool) -> None:
    of = point(
        topology={"datacenters": [{"name": "east", "hosts": 2, "gpus_per_host": 2}]},
        model="gpt-tiny",
        compute={"kind": "torch", "device": "cuda"},
        training={"precision": "fp32", "stages": 2, "pipelines": 2},
        variants=[{**ONE, "transport": {"all_reduce": all_reduce}}],
    )
    plans = planned(of)
    assert {plan.links.rings for plan in plans} == {RingsConfig()}
    for plan in plans:
        replicas = [other for other in plans if other.place.stage == plan.place.stage]
        collective = present(plan.compute.collective)
        assert (collective.backend, collective.shares_gpus) == ("nccl", shares_gpus)
        assert collective.hosts == tuple(other.host for other in replicas)
        assert collective.host == plan.host
        assert collective.store_address == replicas[0].rendezvous.listen_address
        assert collective.store_port not in {other.rendezvous.listen_port for other in plans}
    assert (
        len(
            {
                (plan.compute.collective.store_address, plan.compute.collective.store_port)
                for plan in plans
                if plan.compute.collective
            }
        )
        == 2
    )


def test_ranks_are_told_their_buckets_where_all_reduces_overlap() -> None:
    buckets = {"transport": {"all_reduce_overlap": True, "bucket": "1MiB"}}
    compute = {"forward": "1ms", "activation": "1KiB", "gradient": ["5MiB", "100KiB"]}
    topology = {"datacenters": [{"name": "east", "hosts": 4}]}
    training = {"stages": 2, "pipelines": 2}
    overlapping = point(topology=topology, compute=compute, training=training, variants=[{**PAIR, **buckets}])
    assert [plan.links.rings.buckets for plan in planned(overlapping)] == [5, 1, 5, 1]
    apart = point(topology=topology, compute=compute, training=training, variants=[PAIR])
    assert {plan.links.rings.buckets for plan in planned(apart)} == {0}
    alone = point(topology=topology, compute=compute, training={"stages": 2}, variants=[{**PAIR, **buckets}])
    assert {plan.links.rings.buckets for plan in planned(alone)} == {0}
