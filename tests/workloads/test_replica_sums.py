"""Ranks whose optimizer steps wait for the gradient norm of all, where torch trains, as processes over loopback."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.workloads.loopback_ranks import Start, in_buckets, make_configs, with_norm
from tests.support.workloads.reference_training import train_reference
from tests.support.workloads.synchronized_ranks import mean_losses
from tests.support.workloads.torch_configs import LEARNING_RATE, MICROBATCHES, SEED, TINY, make_torch_configs
from wanbed.results.records.span_log import read_span_log
from wanbed.workloads.compute.flat_parameters import FlatParameters
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.transport.links_config import RingConfig, RingsConfig

PATIENCE_S = 300

ITERATIONS = 2


@pytest.mark.parametrize("buckets", [0, 3])
def test_replicas_that_wait_for_all_learn_as_one_process(tmp_path: Path, start: Start, buckets: int) -> None:
    plans = [
        in_buckets(plan, buckets)
        for plan in with_norm(make_torch_configs(tmp_path, 2, pipelines=2, iterations=ITERATIONS, precision="fp32"))
    ]
    assert [process.wait(PATIENCE_S) for process in [start(plan) for plan in plans]] == [0] * 4
    logs = [read_span_log(Path(plan.process.span_log)) for plan in plans]
    reference = train_reference(
        TINY,
        pipelines=2,
        microbatches=MICROBATCHES,
        iterations=ITERATIONS,
        seed=SEED,
        learning_rate=LEARNING_RATE,
        precision="fp32",
    )
    assert mean_losses(plans, ITERATIONS) == pytest.approx(reference.losses, rel=1e-6)
    spans = [span for log in logs for span in log.spans]
    for iteration in range(ITERATIONS):
        own = [span for span in spans if span.iteration == iteration]
        computed_ns = max(span.end_ns for span in own if span.kind == "backward")
        assert min(span.start_ns for span in own if span.kind == "optimizer") >= computed_ns


def test_the_number_of_a_stage_is_the_sum_of_the_squares_of_its_gradients() -> None:
    parameters = FlatParameters(nn.Linear(3, 1, bias=False).to(torch.bfloat16), 1e-3)
    parameters.gradients.copy_(torch.tensor([1.0, 2.0, 2.0]))
    assert parameters.squares() == 9.0


def test_a_ring_of_the_norm_without_the_rank_is_refused(tmp_path: Path) -> None:
    plan, *_ = with_norm(make_configs(tmp_path, PipelineShape(2, 1)))
    with pytest.raises(ValueError, match=r"^rings\.norm\.ranks: rank 0 itself is not among them"):
        replace(plan.links, rings=RingsConfig(norm=RingConfig((1, 2))))
