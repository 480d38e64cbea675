"""What a rank that computes in torch tells of its device, as processes over loopback."""

from pathlib import Path

import pytest

from tests.support.workloads.loopback_ranks import Start
from tests.support.workloads.reference_training import train_reference
from tests.support.workloads.synchronized_ranks import mean_losses
from tests.support.workloads.torch_configs import LEARNING_RATE, MICROBATCHES, SEED, TINY, make_torch_configs
from wanbed.results.records.span_log import COMPUTE_KINDS, read_span_log

PATIENCE_S = 300
ITERATIONS = 3


def test_a_bf16_pipeline_learns_as_one_process_and_logs_devices(
    tmp_path: Path, start: Start, start_alone: Start
) -> None:
    plans = make_torch_configs(tmp_path, 2, iterations=ITERATIONS, precision="bf16", check_iteration=1)
    # One of them as wanbed starts it: others of this folder are forked.
    processes = [start_alone(plans[0]), start(plans[1])]
    assert [process.wait(PATIENCE_S) for process in processes] == [0, 0]
    for plan in plans:
        log = read_span_log(Path(plan.process.span_log))
        assert log.complete
        device = log.device
        assert device is not None
        assert (device.device, device.to_host_bytes, device.to_device_bytes, device.clock_error_ns) == ("cpu", 0, 0, 0)
        assert device.check_iteration == 1
        checked = [span for span in log.spans if span.iteration == 1 and span.kind in COMPUTE_KINDS]
        assert len(checked) == 2 * MICROBATCHES + 1
        assert device.check_spans_ns == sum(span.end_ns - span.start_ns for span in checked)
        assert 0 < device.check_profiler_ns <= device.check_spans_ns
    reference = train_reference(
        TINY,
        pipelines=1,
        microbatches=MICROBATCHES,
        iterations=ITERATIONS,
        seed=SEED,
        learning_rate=LEARNING_RATE,
        precision="bf16",
    )
    assert mean_losses(plans, ITERATIONS) == pytest.approx(reference.losses, rel=1e-2)
