from dataclasses import replace

from wanbed.results.records.span_log import DeviceRecord, RankPlace, SpanLogContents, SwappedGroup, SwappingRecord
from wanbed.runner.emulation.trial import device_facts, swapping_facts


def log(rank: int, *losses: tuple[int, float]) -> SpanLogContents:
    return SpanLogContents(RankPlace(rank, "east-0", "east", 0, 0, rank), (), True, losses)


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


def test_a_trial_keeps_what_swapping_took_each_rank_that_swapped() -> None:
    record = SwappingRecord((SwappedGroup(3, 10, 2, 3, 4),), 10, None, 9, 9, 2, 20, 8, 20, 6, 4, 1)
    (row,) = swapping_facts([log(0), replace(log(1), swapping=record)])
    assert (row["rank"], row["host"], row["gpu"]) == (1, "east-0", 0)
    assert row["groups"] == ({"layers": 3, "size_bytes": 10, "forward_ns": 2, "backward_ns": 3, "load_ns": 4},)
    assert (row["loaded_bytes"], row["load_wait_ns"]) == (20, 4)
