"""Virtual stages in a simulation: closed forms, the wrap around, what is handed over, and what is recorded."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanbed.results.records.span_columns import VirtualSpanColumns
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.tcp_effects import IDEAL, TcpEffects
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant

MS = 1_000_000
ACTIVATION, GRADIENT = 1, 2


def simulated(
    schedule: str,
    virtual_stages: int,
    *,
    stages: int = 4,
    microbatches: int = 8,
    pipelines: int = 1,
    iterations: int = 1,
    compute: Mapping[str, Any] | None = None,
    wan: Mapping[str, Any] | None = None,
    effects: TcpEffects = IDEAL,
    symmetry: bool = True,
    variant: Mapping[str, Any] | None = None,
) -> tuple[ResolvedVariant, Simulation]:
    document = {
        "topology": {
            "datacenters": [{"name": f"dc{stage}", "hosts": pipelines} for stage in range(stages)],
            "wan": {"latency": "0ms", **(wan or {})},
        },
        "compute": {"forward": "20ms", "backward": "40ms", "activation": "1B", "gradient": "1B", **(compute or {})},
        "training": {
            "stages": stages,
            "microbatches": microbatches,
            "pipelines": pipelines,
            "iterations": iterations,
            "warmup": 0,
            "virtual_stages": virtual_stages,
        },
        "variants": [{"name": "virtual", "schedule": schedule, **(variant or {})}],
    }
    (point,) = parse_experiment(document, "virtual", Path()).points()
    (resolved,) = point.variants
    return resolved, simulate_variant(point.topology, resolved, iterations, effects=effects, symmetry=symmetry)


def iteration_ns(simulation: Simulation) -> int:
    ((begin_ns, end_ns),) = simulation.windows_ns
    return end_ns - begin_ns


def columns(simulation: Simulation) -> VirtualSpanColumns:
    assert isinstance(simulation.spans, VirtualSpanColumns)
    return simulation.spans


@given(stages=st.integers(2, 5), groups=st.integers(1, 3), chunks=st.sampled_from([2, 4, 5]))
@settings(max_examples=20, deadline=None)
def test_interleaving_divides_the_bubble_by_the_virtual_stages(stages: int, groups: int, chunks: int) -> None:
    microbatches = groups * stages
    _, simulation = simulated("interleaved-1f1b", chunks, stages=stages, microbatches=microbatches)
    assert iteration_ns(simulation) == microbatches * 60 * MS + (stages - 1) * 60 * MS // chunks


@given(stages=st.integers(2, 5), more=st.integers(0, 4))
@settings(max_examples=10, deadline=None)
def test_zb_v_leaves_half_a_forward_for_each_further_stage(stages: int, more: int) -> None:
    microbatches = 2 * stages - 1 + more
    _, simulation = simulated("zb-v", 2, stages=stages, microbatches=microbatches)
    assert iteration_ns(simulation) == microbatches * 60 * MS + (stages - 1) * 10 * MS


@pytest.mark.parametrize(("schedule", "chunks"), [("interleaved-1f1b", 2), ("interleaved-1f1b", 3), ("zb-v", 2)])
def test_every_part_is_recorded_once_and_parts_add_up_to_the_stage(schedule: str, chunks: int) -> None:
    # 20,000,001 ns do not divide by 2 or 3.
    variant, simulation = simulated(schedule, chunks, compute={"forward": "20000001ns"})
    spans = columns(simulation)
    forward = spans.kind == KIND_CODES["forward"]
    for rank in range(4):
        own = forward & (spans.rank == rank)
        parts = set(zip(spans.virtual_stage[own].tolist(), spans.microbatch[own].tolist(), strict=True))
        held = [variant.layout.number(rank, chunk) for chunk in range(chunks)]
        assert parts == {(number, microbatch) for number in held for microbatch in range(8)}
        assert int(own.sum()) == 8 * chunks
        assert int((spans.end_ns - spans.start_ns)[own].sum()) == 8 * 20_000_001
    assert set(spans.virtual_stage[spans.kind == KIND_CODES["optimizer"]].tolist()) <= {-1}


def test_the_last_stage_sends_to_the_first_over_the_way_between_them() -> None:
    variant, simulation = simulated("interleaved-1f1b", 2, stages=3, microbatches=3, wan={"latency": "30ms"})
    spans = columns(simulation)
    first, last = variant.placement.pipelines[0][0], variant.placement.pipelines[0][2]
    assert (first, last) in variant.pairs
    round_ = (spans.kind == KIND_CODES["receive"]) & (spans.rank == 0) & (spans.peer == 2)
    assert set(spans.virtual_stage[round_].tolist()) == {3}
    assert set(spans.tensor[round_].tolist()) == {ACTIVATION}
    back = (spans.kind == KIND_CODES["receive"]) & (spans.rank == 2) & (spans.peer == 0)
    assert set(spans.virtual_stage[back].tolist()) == {2}
    assert set(spans.tensor[back].tolist()) == {GRADIENT}


def test_the_turn_of_the_v_is_handed_over_at_once_and_crosses_nothing() -> None:
    variant, simulation = simulated("zb-v", 2, stages=3, microbatches=1, wan={"latency": "30ms"})
    spans = columns(simulation)
    last = (spans.rank == 2) & (spans.kind == KIND_CODES["forward"])
    assert spans.end_ns[last][0] == spans.start_ns[last][1]
    assert len(variant.pairs) == 2
    # 6 forwards and 6 input parts of 10 ms, a weight part at the turn and one at the end, and 4 + 4 hops of 30 ms.
    assert iteration_ns(simulation) == (6 + 6 + 2) * 10 * MS + 8 * 30 * MS


def test_sends_of_two_stages_go_both_ways_over_one_pair() -> None:
    variant, simulation = simulated(
        "interleaved-1f1b", 2, stages=2, microbatches=4, compute={"activation": "1MB"}, wan={"rate": "1Gbit"}
    )
    assert len(variant.pairs) == 1
    sends = columns(simulation).kind == KIND_CODES["send"]
    spans = columns(simulation)
    there = sends & (spans.rank == 0)
    both = sorted(zip(spans.start_ns[there].tolist(), spans.end_ns[there].tolist(), strict=True))
    assert all(one[1] <= other[0] for one, other in pairwise(both)), "one after the other"
    assert set(spans.tensor[there].tolist()) == {ACTIVATION, GRADIENT}
    # Activations of virtual stages 0 and 2, gradients of stage 2 to stage 1.
    assert int(there.sum()) == 4 * 3


def test_a_list_of_activations_has_one_for_each_boundary_between_virtual_stages() -> None:
    sizes = [1_000_000, 2_000_000, 3_000_000]
    _, simulation = simulated(
        "interleaved-1f1b", 2, stages=2, microbatches=2, compute={"activation": [f"{size}B" for size in sizes]}
    )
    spans = columns(simulation)
    for tensor, ends in ((ACTIVATION, (0, 1, 2)), (GRADIENT, (1, 2, 3))):
        sent = (spans.kind == KIND_CODES["send"]) & (spans.tensor == tensor)
        found = dict(zip(spans.virtual_stage[sent].tolist(), spans.size_bytes[sent].tolist(), strict=True))
        assert found == dict(zip(ends, sizes, strict=True))


@pytest.mark.parametrize(("schedule", "chunks"), [("interleaved-1f1b", 2), ("zb-v", 2)])
def test_all_parts_are_all_reduced_together_and_symmetry_changes_no_byte(schedule: str, chunks: int) -> None:
    rates = {"latency": "5ms", "rate": "1Gbit", "node_pair_rate": "300Mbit"}
    sizes = {"activation": "200kB", "gradient": "3MB"}
    one, other = (
        simulated(
            schedule, chunks, pipelines=4, iterations=2, compute=sizes, wan=rates, effects=TcpEffects(), symmetry=each
        )[1]
        for each in (True, False)
    )
    assert all((np.asarray(vars(one.spans)[name]) == vars(other.spans)[name]).all() for name in vars(one.spans))
    reduced = one.spans.kind == KIND_CODES["all_reduce"]
    assert int(reduced.sum()) == 16 * 2
    assert set(one.spans.size_bytes[reduced].tolist()) == {3_000_000}


def test_sends_that_block_hold_a_gpu_that_hands_over_to_itself_no_longer() -> None:
    blocking = {"transport": {"overlap": False}}
    sizes = {"activation": "1.25MB"}
    _, simulation = simulated(
        "zb-v", 2, stages=2, microbatches=1, compute=sizes, wan={"rate": "1Gbit"}, variant=blocking
    )
    # A forward of 10 ms, 10 ms until the activation has left and is there, and so on: the turn crosses nothing.
    spans = columns(simulation)
    first, last = (spans.rank == rank for rank in (0, 1))
    computed = (spans.end_ns > spans.start_ns) & (spans.size_bytes == 0)
    assert spans.start_ns[last & computed].tolist()[:2] == [20 * MS, 30 * MS]
    assert spans.start_ns[first & computed].tolist()[:2] == [0, 50 * MS]
