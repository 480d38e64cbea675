"""How many microbatches a stage held at once."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runner.small_experiment import sweep_point
from wanbed.results.metrics.held import most_held
from wanbed.results.records.span_log import SPAN_KINDS
from wanbed.runner.resolve.device_memory import most_in_flight
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.simulator.variant_simulation import simulate_variant


def frame(*rows: tuple[int, int, str, int, int]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["rank", "stage", "kind", "start_ns", "end_ns"])


def test_a_microbatch_is_held_from_its_forward_to_its_backward() -> None:
    rows = [(0, 0, "forward", 0, 1), (0, 0, "forward", 1, 2), (0, 0, "backward", 5, 6), (0, 0, "forward", 6, 7)]
    assert most_held(frame(*rows)) == {0: 2}
    assert most_held(frame(*rows, (0, 0, "forward", 5, 7))) == {0: 3}


def test_one_whose_weight_part_is_still_to_come_is_held() -> None:
    rows = [(0, 0, "forward", 0, 1), (0, 0, "backward_input", 2, 3), (0, 0, "forward", 3, 4)]
    assert most_held(frame(*rows, (0, 0, "backward_weight", 5, 6))) == {0: 2}


def test_stages_are_apart_and_the_fullest_replica_counts() -> None:
    held_by = {0: (0, 1), 1: (1, 3), 2: (0, 4), 3: (1, 2)}
    rows = [
        (rank, stage, "forward", start_ns, start_ns + 1)
        for rank, (stage, count) in held_by.items()
        for start_ns in range(count)
    ]
    assert most_held(frame(*rows)) == {0: 4, 1: 3}


def test_what_computes_no_forward_holds_nothing() -> None:
    assert most_held(frame((0, 0, "all_reduce", 0, 9))) == {}


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1", "zb-2p", "atlas"])
@given(microbatches=st.integers(1, 6))
def test_a_simulated_training_holds_what_its_order_says(schedule: str, microbatches: int) -> None:
    point = sweep_point(
        {
            "topology": {"datacenters": [{"name": "east", "hosts": 3}]},
            "compute": {"forward": "1ms", "activation": "1KiB"},
            "training": {"stages": 3, "microbatches": microbatches, "iterations": 2, "warmup": 0},
            "variants": [{"name": "v", "schedule": schedule}],
            "engine": "simulate",
        }
    )
    (variant,) = point.variants
    assert isinstance(variant, PipelineVariant)
    spans = simulate_variant(point.topology, variant, 2).spans
    stages = variant.placement.stages
    rows = pd.DataFrame(
        {
            "rank": spans.rank,
            "stage": spans.rank % stages,
            "kind": pd.Categorical.from_codes(spans.kind, list(SPAN_KINDS)),
            "start_ns": spans.start_ns,
            "end_ns": spans.end_ns,
        }
    )
    assert most_held(rows) == {stage: most_in_flight(variant, 0, stage) for stage in range(stages)}
