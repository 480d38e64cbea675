from dataclasses import replace

from results.records.span_log import DeviceRecord, SpanLogContents, SpanLogHeader
from runner.emulation.trial import device_facts


def log(rank: int, *losses: tuple[int, float]) -> SpanLogContents:
    return SpanLogContents(SpanLogHeader(rank, "east-0", "east", 0, 0, rank), (), True, losses)


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
