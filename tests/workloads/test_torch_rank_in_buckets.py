"""Ranks that sum their gradients while torch still computes others, as processes over loopback."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.workloads.loopback_ranks import Start, in_buckets
from tests.support.workloads.reference_training import train_reference
from tests.support.workloads.synchronized_ranks import mean_losses
from tests.support.workloads.torch_configs import LEARNING_RATE, MICROBATCHES, SEED, TINY, make_torch_configs
from wanbed.results.records.span_log import read_span_log

PATIENCE_S = 300
ITERATIONS, PIPELINES, BUCKETS = 2, 2, 5


def test_replicas_that_sum_in_buckets_learn_as_one_process(tmp_path: Path, start: Start) -> None:
    plans = [
        in_buckets(plan, BUCKETS)
        for plan in make_torch_configs(tmp_path, 1, pipelines=PIPELINES, iterations=ITERATIONS, precision="fp32")
    ]
    processes = [start(plan) for plan in plans]
    assert [process.wait(PATIENCE_S) for process in processes] == [0] * PIPELINES
    for plan in plans:
        log = read_span_log(Path(plan.process.span_log))
        for iteration in range(ITERATIONS):
            own = [span for span in log.spans if span.iteration == iteration]
            sums = sorted((span for span in own if span.kind == "all_reduce"), key=lambda span: span.start_ns)
            backward = max((span for span in own if span.kind == "backward"), key=lambda span: span.start_ns)
            assert sum(span.size_bytes for span in sums) == TINY.gradient_bytes(0, 1, "fp32")
            assert len(sums) == BUCKETS
            assert all(earlier.end_ns <= later.start_ns for earlier, later in pairwise(sums))
            assert sums[0].start_ns > backward.start_ns
    reference = train_reference(
        TINY,
        pipelines=PIPELINES,
        microbatches=MICROBATCHES,
        iterations=ITERATIONS,
        seed=SEED,
        learning_rate=LEARNING_RATE,
        precision="fp32",
    )
    assert mean_losses(plans, ITERATIONS) == pytest.approx(reference.losses, rel=1e-6)
