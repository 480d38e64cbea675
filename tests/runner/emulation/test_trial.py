from dataclasses import replace

import pytest

from results.records.span_log import DeviceRecord, SpanLogContents, SpanLogHeader
from runner.emulation.trial import device_facts, mean_losses


def log(rank: int, *losses: tuple[int, float]) -> SpanLogContents:
    return SpanLogContents(SpanLogHeader(rank, "east-0", "east", 0, 0, rank), (), True, losses)


def test_the_shares_of_all_pipelines_add_up_to_the_mean_loss_of_each_iteration() -> None:
    logs = [log(0), log(1, (1, 2.5), (0, 3.0)), log(2), log(3, (0, 2.0), (1, 1.5))]
    assert mean_losses(logs) == pytest.approx([5.0, 4.0])


def test_where_nothing_is_learnt_there_is_no_loss() -> None:
    assert mean_losses([log(0), log(1)]) == []


def test_a_trial_keeps_what_each_rank_that_computed_knows_of_its_device() -> None:
    text = DeviceRecord("GPU-1", "NVIDIA H200", to_host_bytes=7, to_host_ns=3)
    (facts,) = device_facts([log(0), replace(log(1), device=text)])
    assert facts == {
        "rank": 1,
        "host": "east-0",
        "gpu": 0,
        "device": "GPU-1",
        "model": "NVIDIA H200",
        "to_host_bytes": 7,
        "to_host_ns": 3,
        "to_device_bytes": 0,
        "to_device_ns": 0,
        "clock_error_ns": 0,
        "check_iteration": None,
        "check_spans_ns": 0,
        "check_profiler_ns": 0,
        "deterministic": None,
    }
