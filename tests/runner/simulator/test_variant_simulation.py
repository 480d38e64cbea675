"""Properties of every simulation."""

import gc
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.present import present
from tests.support.runner.small_experiment import sweep_point
from tests.support.simulator.simulation_of import simulation_of
from wanbed.ground.errors import SimulationError
from wanbed.results.records.span_log import COMPUTE_KINDS
from wanbed.runner.resolve.equal_parts import equal_parts
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.tcp_effects import IDEAL, TcpEffects
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.gpipe import GPipe
from wanbed.workloads.transport.frame import HEADER_BYTES

SCHEDULES = ("gpipe", "1f1b", "eager-1f1b", "varuna", "zb-h1", "zb-2p", "atlas")
ITERATIONS = 2
COMPUTE_CODES = [KIND_CODES[kind] for kind in COMPUTE_KINDS]


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Small experiments of every kind, with trunks that bind and trunks that do not."""
    datacenters = draw(st.integers(1, 3))
    stages = draw(st.integers(2, 5))
    per_point = draw(st.integers(1, 3))
    pipelines = per_point * draw(st.integers(1, 3))
    rate = draw(st.sampled_from(["unlimited", "30Mbit", "200Mbit"]))
    gpus = draw(st.sampled_from([1, 1, 2, 3]))
    topology: dict[str, Any] = {
        "datacenters": [
            {"name": f"dc{index}", "hosts": -(-stages * pipelines // gpus) + 1, "gpus_per_host": gpus}
            for index in range(datacenters)
        ],
        "intra": {
            "latency": draw(st.sampled_from(["0ms", "1ms"])),
            "rate": draw(st.sampled_from(["unlimited", "1Gbit"])),
        },
    }
    if datacenters > 1:
        topology["wan"] = {
            "latency": draw(st.sampled_from(["0ms", "5ms", "40ms"])),
            "rate": rate,
            "node_pair_rate": draw(st.sampled_from(["20Mbit", "100Mbit"])),
        }
        back = {"from": "dc1", "to": "dc0", "latency": "12ms", "node_pair_rate": "50Mbit"}
        topology["links"] = draw(st.sampled_from([[], [back]]))
    millis = st.integers(1, 30).map(lambda value: f"{value}ms")
    return {
        "engine": "simulate",
        "topology": topology,
        "model": {"hidden": 64, "context": 64},
        "compute": {
            "forward": [draw(millis) for _ in range(stages)],
            "backward": [draw(millis) for _ in range(stages)],
            "recompute": draw(st.sampled_from(["0ms", "7ms"])),
            "optimizer": draw(st.sampled_from(["0ms", "3ms"])),
            "activation": [f"{draw(st.integers(1, 300))}KiB" for _ in range(stages - 1)],
            "gradient": draw(st.sampled_from(["1B", "200KiB"])),
        },
        "training": {
            "stages": stages,
            "pipelines": pipelines,
            "microbatches": draw(st.integers(1, 5)),
            "iterations": ITERATIONS,
            "warmup": 0,
        },
        "variants": [
            {
                "name": "any",
                "schedule": draw(st.sampled_from(SCHEDULES)),
                "transport": {
                    "model": "mean",
                    "connections": draw(st.sampled_from([1, 3, "auto"])),
                    "window": draw(st.sampled_from(["64KiB", "6MiB"])),
                    "sharing": "temporal" if per_point > 1 else "none",
                    **({"pipelines_per_cell": per_point} if per_point > 1 else {}),
                    **draw(st.sampled_from([{}, {"all_reduce_overlap": True, "bucket": "64KiB"}])),
                },
            }
        ],
    }


effects_of = st.builds(TcpEffects, st.booleans(), st.booleans(), st.booleans())


def simulated(point: SweepPoint, effects: TcpEffects, *, symmetry: bool = True) -> Simulation:
    return simulate_variant(point.topology, point.variants[0], ITERATIONS, effects=effects, symmetry=symmetry)


def same(one: Simulation, other: Simulation) -> bool:
    spans = all(np.array_equal(vars(one.spans)[name], vars(other.spans)[name]) for name in vars(one.spans))
    traffic = [
        (a.source, a.destination) == (b.source, b.destination)
        and np.array_equal(a.times_ns, b.times_ns)
        and np.array_equal(a.wire_bytes, b.wire_bytes)
        for a, b in zip(sorted(one.traffic, key=str), sorted(other.traffic, key=str), strict=True)
    ]
    return spans and all(traffic) and one.connections == other.connections


@given(documents(), effects_of)
def test_no_gpu_does_two_things_at_once_and_each_does_all_its_work(
    document: Mapping[str, Any], effects: TcpEffects
) -> None:
    point = sweep_point(document)
    variant, spans = point.variants[0], simulated(point, effects).spans
    for place in variant.placement.places:
        rank = variant.placement.rank(place)
        own = (spans.rank == rank) & np.isin(spans.kind, COMPUTE_CODES)
        order = np.argsort(spans.start_ns[own], kind="stable")
        start_ns, end_ns = spans.start_ns[own][order], spans.end_ns[own][order]
        assert (start_ns[1:] >= end_ns[:-1]).all()
        forwards = (spans.rank == rank) & (spans.kind == KIND_CODES["forward"])
        assert forwards.sum() == ITERATIONS * variant.microbatches


@given(documents(), effects_of)
def test_what_is_sent_is_received_later_by_a_latency_at_least(document: Mapping[str, Any], effects: TcpEffects) -> None:
    point = sweep_point(document)
    variant, spans = point.variants[0], simulated(point, effects).spans
    places = variant.placement.places
    sends, receives = spans.kind == KIND_CODES["send"], spans.kind == KIND_CODES["receive"]
    sent = {
        (rank, peer, iteration, microbatch): (start_ns, end_ns, size)
        for rank, peer, iteration, microbatch, start_ns, end_ns, size in zip(
            *(
                getattr(spans, name)[sends].tolist()
                for name in ("rank", "peer", "iteration", "microbatch", "start_ns", "end_ns", "size_bytes")
            ),
            strict=True,
        )
    }
    assert sends.sum() == receives.sum() == len(sent)
    for rank, peer, iteration, microbatch, start_ns, end_ns, size in zip(
        *(
            getattr(spans, name)[receives].tolist()
            for name in ("rank", "peer", "iteration", "microbatch", "start_ns", "end_ns", "size_bytes")
        ),
        strict=True,
    ):
        left_ns, gone_ns, sent_size = sent[peer, rank, iteration, microbatch]
        one, other = places[peer], places[rank]
        latency_ns = 0
        if one.datacenter != other.datacenter:
            latency_ns = point.topology.conditions(one.datacenter, other.datacenter).latency_ns
        assert size == sent_size
        assert start_ns <= end_ns
        assert start_ns >= left_ns + latency_ns
        assert end_ns >= gone_ns + latency_ns


@given(documents(), effects_of)
def test_as_many_bytes_cross_the_wan_as_its_boundaries_ask_for(
    document: Mapping[str, Any], effects: TcpEffects
) -> None:
    point = sweep_point(document)
    variant = point.variants[0]
    asked = sum(
        2 * ITERATIONS * variant.microbatches * variant.work.activation_bytes[one.stage]
        for one, other in variant.placement.boundaries
        if one.datacenter != other.datacenter
    )
    crossed = sum(int(traffic.wire_bytes[-1]) for traffic in simulated(point, effects).traffic)
    if effects.headers:
        assert asked * 1514 / 1448 - 10_000 <= crossed <= 1.2 * asked * 1514 / 1448 + 10_000
    else:
        assert crossed == asked


@given(documents(), effects_of)
def test_no_link_is_above_its_rate_at_any_instant(document: Mapping[str, Any], effects: TcpEffects) -> None:
    point = sweep_point(document)
    on_trunk = defaultdict(list)
    homes = {host.name: host.datacenter for host in point.topology.hosts}
    for traffic in simulated(point, effects).traffic:
        conditions = point.topology.conditions(homes[traffic.source], homes[traffic.destination])
        spent_ns, moved = np.diff(traffic.times_ns), np.diff(traffic.wire_bytes)
        # Counts are whole bytes: two of them are wrong by less than one each.
        assert ((moved - 2) * 8e9 <= conditions.node_pair_rate_bps * spent_ns.astype(float)).all()
        on_trunk[homes[traffic.source], homes[traffic.destination]].append(traffic)
    for (source, destination), pairs in on_trunk.items():
        rate_bps = point.topology.conditions(source, destination).rate_bps
        if rate_bps is None:
            continue
        times = np.unique(np.concatenate([pair.times_ns for pair in pairs]))
        counts = sum(np.interp(times, pair.times_ns, pair.wire_bytes) for pair in pairs)
        assert ((np.diff(counts) - 2 * len(pairs)) * 8e9 <= rate_bps * np.diff(times).astype(float)).all()


@given(documents(), effects_of)
def test_an_iteration_takes_as_long_as_its_busiest_gpu_and_its_longest_path_at_least(
    document: Mapping[str, Any], effects: TcpEffects
) -> None:
    point = sweep_point(document)
    variant, simulation = point.variants[0], simulated(point, effects)
    work, microbatches = variant.work, variant.microbatches
    busiest_ns = max(
        microbatches * (forward_ns + backward_ns)
        for forward_ns, backward_ns in zip(work.forward_ns, work.backward_ns, strict=True)
    )
    latencies_ns = sum(
        point.topology.conditions(one.datacenter, other.datacenter).latency_ns
        for one, other in variant.placement.boundaries[: work.stages - 1]
        if one.datacenter != other.datacenter
    )
    backward_ns = [work.backward_ns[0] - work.backward_weight_ns[0], *work.backward_ns[1:]]
    path_ns = sum(work.forward_ns) + sum(backward_ns) - sum(work.backward_weight_ns[1:]) + 2 * latencies_ns
    for start_ns, end_ns in simulation.windows_ns:
        assert end_ns - start_ns >= max(busiest_ns, path_ns)


@given(documents(), effects_of)
@settings(max_examples=30)
def test_one_of_several_equal_parts_stands_for_all_to_the_byte(
    document: Mapping[str, Any], effects: TcpEffects
) -> None:
    point = sweep_point(document)
    assert same(simulated(point, effects), simulated(point, effects, symmetry=False))


def test_equal_parts_are_the_smallest_that_share_no_host() -> None:
    document: dict[str, Any] = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 8}, {"name": "west", "hosts": 8}],
            "wan": {"latency": "5ms", "rate": "60Mbit", "node_pair_rate": "20Mbit"},
        },
        "model": {"hidden": 64, "context": 64},
        "compute": {"activation": "64KiB", "gradient": "1KiB"},
        "training": {"stages": 2, "pipelines": 8, "microbatches": 4, "iterations": ITERATIONS, "warmup": 0},
        "variants": [
            {"name": "any", "schedule": "atlas", "transport": {"sharing": "temporal", "pipelines_per_cell": 2}}
        ],
    }
    for hosts, gpus, parts in ((8, 1, 4), (4, 2, 4), (2, 4, 2), (1, 8, 1), (3, 3, 1)):
        document["topology"]["datacenters"] = [
            {"name": name, "hosts": hosts, "gpus_per_host": gpus} for name in ("east", "west")
        ]
        point = sweep_point(document)
        assert equal_parts(point.variants[0]) == parts
        assert same(simulated(point, TcpEffects()), simulated(point, TcpEffects(), symmetry=False))


@given(documents(), effects_of)
@settings(max_examples=20)
def test_the_same_input_gives_the_same_output(document: Mapping[str, Any], effects: TcpEffects) -> None:
    assert same(simulated(sweep_point(document), effects), simulated(sweep_point(document), effects))


def test_iterations_do_not_wait_for_each_other_beyond_what_they_need() -> None:
    """No barrier: the last stage begins an iteration only when its first activation has come, the first one at once."""
    document = {
        "topology": {"datacenters": [{"name": "east", "hosts": 2}], "intra": {"latency": "1ms"}},
        "model": {"hidden": 64, "context": 64},
        "compute": {"forward": "10ms", "backward": "20ms", "activation": "1KiB"},
        "training": {"stages": 2, "microbatches": 1, "iterations": 2, "warmup": 0},
        "variants": [{"name": "any", "schedule": "gpipe"}],
    }
    assert simulated(sweep_point(document), IDEAL).windows_ns == [(0, 62_000_000), (62_000_000, 124_000_000)]


def test_what_replicas_far_apart_sum_crosses_the_wan() -> None:
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
            "wan": {"latency": "10ms", "rate": "100Mbit"},
        },
        "model": {"hidden": 64, "context": 64},
        "compute": {"gradient": "8MB"},
        "training": {"stages": 1, "pipelines": 4, "microbatches": 2, "iterations": ITERATIONS, "warmup": 0},
        "variants": [{"name": "any", "schedule": "dp"}],
    }
    traffic = simulated(sweep_point(document), IDEAL).traffic
    # The ring goes over and back once, and every replica sends 2 (P - 1)/P of the data.
    assert [(pair.source, pair.destination) for pair in traffic] == [("east-1", "west-0"), ("west-1", "east-0")]
    assert [pair.wire_bytes[-1] for pair in traffic] == [ITERATIONS * 2 * 3 * 2_000_000] * 2


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        ("Raising", rf"^Raising fails: KeyError: 'lost' \({re.escape(__file__)}:\d+\)$"),
        ("Confused", r"^Confused fails: Confused chose '.*' at stage 0, which is no Action$"),
        ("Unready", r"^Unready fails: Unready chose backward of microbatch 0 at stage 0, which is not ready$"),
        ("Astray", r"^Astray fails: it sends to stage 0, no neighbour of stage 0$"),
        ("Reversed", r"^Reversed fails: it sends the gradient of stage 0 to stage 1$"),
    ],
)
def test_faults_of_a_schedule_are_reported_in_one_line(schedule: str, text: str) -> None:
    document = {
        "topology": {"datacenters": [{"name": "east", "hosts": 2}]},
        "model": {"hidden": 64, "context": 64},
        "compute": {"activation": "1KiB"},
        "training": {"stages": 2, "microbatches": 2, "iterations": 1, "warmup": 0},
        "variants": [{"name": "any", "schedule": "gpipe"}],
    }
    point = sweep_point(document)
    vars(point.variants[0])["schedule"] = f"{__name__}:{schedule}"
    with pytest.raises(SimulationError, match=text):
        simulated(point, IDEAL)


def test_a_schedule_that_deadlocks_is_named_with_its_stage_its_action_and_the_last_events() -> None:
    document = {
        "topology": {"datacenters": [{"name": "east", "hosts": 2}]},
        "model": {"hidden": 64, "context": 64},
        "compute": {"activation": "1KiB"},
        "training": {"stages": 2, "microbatches": 2, "iterations": 2, "warmup": 0},
        "variants": [{"name": "any", "schedule": "gpipe"}],
    }
    point = sweep_point(document)
    vars(point.variants[0])["schedule"] = f"{__name__}:Stubborn"
    with pytest.raises(
        SimulationError,
        match=r"^Stubborn deadlocks: stage 1 of pipeline 0 waits for the backward of microbatch 1, which is ready and "
        r"not chosen; last events: .*ms stage 0 of pipeline 0 ended backward of microbatch 0",
    ):
        simulated(point, IDEAL)


class Stubborn(GPipe):
    """GPipe that never runs the last microbatch's backward at the last stage."""

    def choose(self, stage: int) -> Action | None:
        action = super().choose(stage)
        return None if stage == 1 and action == Action(ActionKind.BACKWARD, 1) else action


class Raising(GPipe):
    """GPipe that raises an error."""

    def choose(self, stage: int) -> Action | None:
        raise KeyError("lost")


class Confused(GPipe):
    """GPipe that does not know what an action is."""

    def choose(self, stage: int) -> Action | None:
        return "forward"  # type: ignore[return-value]


class Unready(GPipe):
    """GPipe that begins at the end."""

    def choose(self, stage: int) -> Action | None:
        return Action(ActionKind.BACKWARD, 0)


class Astray(GPipe):
    """GPipe that sends to itself."""

    def sends(self, stage: int, action: Action) -> tuple[int, Message] | None:
        return stage, Message(MessageKind.ACTIVATION, action.microbatch)


class Reversed(GPipe):
    """GPipe that sends gradients forward."""

    def sends(self, stage: int, action: Action) -> tuple[int, Message] | None:
        return stage + 1, Message(MessageKind.GRADIENT, action.microbatch)


def test_activations_and_gradients_take_the_rate_and_latency_of_their_own_direction() -> None:
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
            "links": [
                {"from": "east", "to": "west", "latency": "40ms", "rate": "8Mbit"},
                {"from": "west", "to": "east", "latency": "10ms", "rate": "80Mbit"},
            ],
        },
        "compute": {"forward": "5ms", "backward": "7ms", "activation": "1000KB"},
        "training": {"stages": 2, "microbatches": 1, "iterations": 1, "warmup": 0},
        "variants": [{"name": "any", "schedule": "gpipe", "transport": {"model": "ideal"}}],
        "engine": "simulate",
    }
    spans = simulated(sweep_point(document), IDEAL).spans
    ms = 10**6
    # Out 1000 ms on the wire and 40 of latency, back 100 and 10; forward and backward at either end.
    assert int(spans.end_ns.max()) == ITERATIONS * (5 + 1000 + 40 + 5 + 7 + 100 + 10 + 7) * ms


def cell_of_two(**changes: Any) -> dict[str, Any]:
    """Two pipelines of two stages, one in each datacenter, that share their node pairs and take turns on them."""
    return {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
            "intra": {"latency": "3ms"},
            "wan": {"latency": "5ms", "node_pair_rate": "8Mbit"},
        },
        "model": {"hidden": 64, "context": 64},
        "compute": {"forward": "10ms", "backward": "20ms", "activation": "2B", "gradient": "2B"},
        "training": {"stages": 2, "pipelines": 2, "microbatches": 1, "iterations": 1, "warmup": 0},
        "variants": [
            {
                "name": "any",
                "schedule": "atlas",
                "transport": {"sharing": "temporal", "pipelines_per_cell": 2, "connections": 1},
            }
        ],
        **changes,
    }


def times_ns(simulation: Simulation, kind: str) -> list[tuple[int, int, int]]:
    """Return the start of each span of a kind in order, with its rank and microbatch."""
    spans = simulation.spans
    own = spans.kind == KIND_CODES[kind]
    return sorted(
        zip(spans.start_ns[own].tolist(), spans.rank[own].tolist(), spans.microbatch[own].tolist(), strict=True)
    )


def test_what_a_cell_shares_is_scattered_and_gathered_inside_its_datacenters() -> None:
    spans = simulated(sweep_point(cell_of_two()), IDEAL).spans
    arrived_ns = spans.end_ns[(spans.kind == KIND_CODES["receive"]) & (spans.iteration == 0)]
    # A byte, a microsecond, over each pair: 10 ms of computation, 3 to the mate, 5 over the WAN, 3 from the mate there.
    assert sorted(arrived_ns.tolist())[:2] == [21_001_000] * 2


def test_transfers_over_a_shared_boundary_leave_in_the_order_of_the_plan_for_their_direction() -> None:
    point = sweep_point(
        cell_of_two(
            compute={"forward": "10ms", "backward": "20ms", "activation": "4KiB", "gradient": "2B"},
            training={"stages": 2, "pipelines": 2, "microbatches": 3, "iterations": 1, "warmup": 0},
        )
    )
    variant = point.variants[0]
    plan = present(variant.plan)
    turned = tuple((1 - pipeline, microbatch) for pipeline, microbatch in plan.gradient_turns[0])
    own = replace(variant, plan=replace(plan, gradient_turns=(turned,)))
    sends = times_ns(simulate_variant(point.topology, own, 1, effects=IDEAL), "send")
    for stage, turns in ((0, plan.activation_turns[0]), (1, turned)):
        assert [(rank // 2, microbatch) for _, rank, microbatch in sends if rank % 2 == stage] == list(turns)


def wire_bytes(document: Mapping[str, Any], effects: TcpEffects) -> list[int]:
    traffic = simulation_of(document, 1, effects=effects).traffic
    return [int(each.wire_bytes[-1]) for each in traffic]


def test_chunks_have_headers_of_their_own_inside_those_of_their_packets() -> None:
    headers = TcpEffects(window=False, slow_start=False, headers=True)
    compute = {"forward": "10ms", "activation": "100KiB", "gradient": "2B"}
    alone = cell_of_two(compute=compute, variants=[{"name": "any", "schedule": "gpipe"}])
    # Chunks have 16 KiB at least, and a node pair has as many as it can of them, but 16 at most: six of 102,400 bytes,
    # three of half of these.
    assert wire_bytes(alone, IDEAL) == [102_400] * 4
    assert wire_bytes(alone, headers) == [(102_400 + 6 * HEADER_BYTES) * 1514 // 1448] * 4
    assert wire_bytes(cell_of_two(compute=compute), headers) == [(102_400 + 6 * HEADER_BYTES) * 1514 // 1448] * 4


@given(documents(), effects_of)
@settings(max_examples=20)
def test_spans_are_in_order_of_rank_iteration_start_and_end(document: Mapping[str, Any], effects: TcpEffects) -> None:
    spans = simulated(sweep_point(document), effects).spans
    rows = np.column_stack((spans.rank, spans.iteration, spans.start_ns, spans.end_ns)).tolist()
    assert rows == sorted(rows)


def test_spans_of_one_part_are_the_first_of_all() -> None:
    document = cell_of_two(
        topology={
            "datacenters": [{"name": "east", "hosts": 8}, {"name": "west", "hosts": 8}],
            "wan": {"latency": "5ms"},
        },
        compute={"activation": "2KiB", "gradient": "1KiB"},
        training={"stages": 2, "pipelines": 8, "microbatches": 2, "iterations": 2, "warmup": 0},
    )
    point = sweep_point(document)
    by_mean = partial(simulate_variant, point.topology, point.variants[0], 2, effects=TcpEffects(packets=False))
    every, one = (by_mean(one_part=each) for each in (False, True))
    assert (every.parts, one.parts) == (1, 4)
    assert one.spans.rank.tolist() == [rank for rank in every.spans.rank.tolist() if rank < 4]
    assert set(every.spans.rank.tolist()) == set(range(16))
    for name in ("kind", "iteration", "microbatch", "start_ns", "end_ns", "size_bytes", "peer"):
        column = getattr(every.spans, name)
        assert getattr(one.spans, name).tolist() == column[: len(one.spans.rank)].tolist(), name
    # Peers are those of the same part.
    peers = every.spans.peer >= 0
    assert (every.spans.peer[peers] // 4 == every.spans.rank[peers] // 4).all()
    assert len(every.traffic) == len(one.traffic) == 16


def test_garbage_collection_is_as_before_also_where_a_simulation_fails() -> None:
    fails = sweep_point(cell_of_two(variants=[{"name": "any", "schedule": "gpipe"}]))
    vars(fails.variants[0])["schedule"] = f"{__name__}:Raising"
    assert gc.isenabled()
    try:
        for change in (gc.disable, gc.enable):
            change()
            simulated(sweep_point(cell_of_two()), IDEAL)
            assert gc.isenabled() == (change is gc.enable)
            with pytest.raises(SimulationError):
                simulated(fails, IDEAL)
            assert gc.isenabled() == (change is gc.enable)
    finally:
        gc.enable()


def test_all_effects_of_tcp_are_simulated_unless_others_are_asked_for() -> None:
    point = sweep_point(cell_of_two(compute={"forward": "10ms", "activation": "4MiB", "gradient": "2B"}))
    default = simulate_variant(point.topology, point.variants[0], ITERATIONS)
    assert same(default, simulated(point, TcpEffects()))
    assert not same(default, simulated(point, IDEAL))
