"""Ranks as processes over loopback, whose GPU does whatever CUDA allows while their threads do what they do."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.workloads.loopback_ranks import Start
from tests.support.workloads.reference_training import train_reference
from tests.support.workloads.synchronized_ranks import mean_losses
from tests.support.workloads.torch_configs import LEARNING_RATE, MICROBATCHES, SEED, TINY, make_torch_configs
from wanbed.results.records.span_log import COMPUTE_KINDS, read_span_log

PATIENCE_S = 300
ITERATIONS = 2
BACKEND = "tests.support.workloads.hostile_gpu.hostile_backend:HostileBackend"


def test_two_pipelines_train_as_one_process_and_stage_every_message(tmp_path: Path, start: Start) -> None:
    plans = [
        replace(plan, compute=replace(plan.compute, backend=BACKEND))
        for plan in make_torch_configs(tmp_path, 2, pipelines=2, iterations=ITERATIONS)
    ]
    processes = [start(plan) for plan in plans]
    assert [process.wait(PATIENCE_S) for process in processes] == [0] * 4
    for plan in plans:
        log = read_span_log(Path(plan.process.span_log))
        device = log.device
        assert device is not None
        assert device.device == "GPU-hostile"
        messages_bytes = MICROBATCHES * ITERATIONS * TINY.activation_bytes("fp32")
        gradients_bytes = ITERATIONS * TINY.gradient_bytes(plan.place.stage, 2, "fp32")
        assert device.to_host_bytes == device.to_device_bytes == messages_bytes + gradients_bytes
        assert all(span.start_ns <= span.end_ns for span in log.spans if span.kind in COMPUTE_KINDS)
    reference = train_reference(
        TINY, pipelines=2, microbatches=MICROBATCHES, iterations=ITERATIONS, seed=SEED, learning_rate=LEARNING_RATE
    )
    assert mean_losses(plans, ITERATIONS) == pytest.approx(reference.losses, rel=1e-5)
